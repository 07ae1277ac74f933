"""The session: one conversation, its messages and what they cost (SE1 to SE8).

What is wrong is told in the same words whether a session is made or read. It must not know how
sessions are stored, nor who may see them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from math import isfinite
from typing import Any, Final

import msgspec
import orjson
from msgspec import Struct, field

from protocol.codes import ErrorCode
from protocol.errors import BadFrame, Fault
from protocol.ids import is_ulid, new_ulid, utc_now
from protocol.strict import check_json, parse
from protocol.tool_call import ExecutionState, ToolCall, ToolError

SCHEMA_VERSION: Final = 1
MAX_IMPORT_BYTES: Final = 64 * 1024 * 1024
MAX_EXPORT_DEPTH: Final = 128
RECENT_MESSAGES: Final = 5


class SessionServiceError(Fault):
    """The base of what goes wrong with sessions."""

    default_code = ErrorCode.INTERNAL

    def __init__(
        self, message: str = "", *, code: ErrorCode | None = None, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(code or self.default_code, message, details=details)


class SessionNotFoundError(SessionServiceError):
    """No such session, or not the caller's."""

    default_code = ErrorCode.NOT_FOUND


class SessionExportError(SessionServiceError):
    """A session that cannot be written as JSON."""

    default_code = ErrorCode.INVALID_REQUEST


class SessionImportError(SessionServiceError):
    """Bytes that are no export, of another schema version, or not as they were exported."""

    default_code = ErrorCode.INVALID_EXPORT


class SessionValidationError(SessionServiceError, ValueError):
    """A session or a message that breaks a rule of SE4, which the text names."""

    default_code = ErrorCode.INVALID_REQUEST


class MessageRole(StrEnum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class TokenUsage(Struct, frozen=True, kw_only=True):
    """Tokens and what they cost in USD (0 where the price is not known)."""

    input_tokens: int = 0
    output_tokens: int = 0
    estimated_cost: float = 0.0

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise SessionValidationError(f"{name} must be an integer, not {value!r}")
            if value < 0:
                raise SessionValidationError(f"{name} must not be negative: {value}")
        cost = self.estimated_cost
        if not isinstance(cost, int | float) or isinstance(cost, bool) or not isfinite(cost):
            raise SessionValidationError(f"estimated_cost must be a finite number, not {cost!r}")
        if cost < 0:
            raise SessionValidationError(f"estimated_cost must not be negative: {cost}")

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            estimated_cost=self.estimated_cost + other.estimated_cost,
        )


def check_content(content: str) -> None:
    """Check what a client says: not empty, not only white space (ER3, SE4).

    Raises:
        SessionValidationError: With the code ``invalid_message``.
    """
    if not content or content.isspace():
        raise SessionValidationError(
            "content must not be empty or whitespace only", code=ErrorCode.INVALID_MESSAGE
        )


class SessionMessage(Struct, frozen=True, kw_only=True):
    """One message.

    The content of user and system messages is never blank. What the engine makes may be empty: an assistant
    message that only calls tools, a stopped answer, a tool's empty result; a tool message that a *client*
    sends is checked where it comes in (:func:`check_content`).
    """

    message_id: str = field(default_factory=new_ulid)
    sequence: int = 0
    role: MessageRole
    content: str
    tool_call_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime = field(default_factory=utc_now)

    def __post_init__(self) -> None:
        _check_ulid("message_id", self.message_id)
        if not isinstance(self.sequence, int) or isinstance(self.sequence, bool) or self.sequence < 0:
            raise SessionValidationError(f"sequence must be an integer from 0, not {self.sequence!r}")
        if self.role not in MessageRole:
            raise SessionValidationError(f"role must be one of {', '.join(MessageRole)}, not {self.role!r}")
        if not isinstance(self.content, str):
            raise SessionValidationError(f"content must be a string, not {self.content!r}")
        if self.role is MessageRole.TOOL and not self.tool_call_id:
            raise SessionValidationError("a tool message needs a tool_call_id")
        if self.role in {MessageRole.USER, MessageRole.SYSTEM}:
            check_content(self.content)
        _check_object("metadata", self.metadata)
        _check_time("created_at", self.created_at)

    def export_dict(self) -> dict[str, Any]:
        """The message as SE6 writes it: JSON types, decisions on tool calls left out (TL8)."""
        return {
            "message_id": self.message_id,
            "sequence": self.sequence,
            "role": self.role.value,
            "content": self.content,
            "tool_call_id": self.tool_call_id,
            "tool_calls": [_export_call(call) for call in self.tool_calls],
            "metadata": _sorted(self.metadata),
            "created_at": rfc3339(self.created_at),
        }


class Session(Struct, kw_only=True):
    """One conversation: what ``/ws/conversations/{session_id}`` serves."""

    session_id: str
    namespace: str = "local"
    actor_name: str | None = None
    project_id: str | None = None
    messages: list[SessionMessage] = field(default_factory=list)
    linked_plan_ids: list[str] = field(default_factory=list)
    token_usage: TokenUsage = field(default_factory=TokenUsage)
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = field(default_factory=utc_now)

    def __post_init__(self) -> None:
        _check_ulid("session_id", self.session_id)
        if not isinstance(self.namespace, str) or not self.namespace or self.namespace.isspace():
            raise SessionValidationError(f"namespace must be a name, not {self.namespace!r}")
        check_actor_name(self.actor_name)
        if self.project_id is not None:
            _check_ulid("project_id", self.project_id)
        for plan_id in self.linked_plan_ids:
            _check_ulid("linked_plan_ids", plan_id)
        for index, message in enumerate(self.messages):
            if message.sequence != index:
                raise SessionValidationError(
                    f"messages must be ordered by sequence, from 0 and without gaps:"
                    f" number {index} has sequence {message.sequence}"
                )
        _check_object("metadata", self.metadata)
        _check_time("created_at", self.created_at)
        _check_time("updated_at", self.updated_at)

    @property
    def message_count(self) -> int:
        return len(self.messages)

    @property
    def is_empty(self) -> bool:
        return not self.messages

    @property
    def last_message(self) -> SessionMessage | None:
        return self.messages[-1] if self.messages else None

    def append_message(
        self,
        role: MessageRole | str,
        content: str,
        *,
        tool_call_id: str | None = None,
        tool_calls: tuple[ToolCall, ...] = (),
        metadata: dict[str, Any] | None = None,
        from_engine: bool = False,
    ) -> SessionMessage:
        """Put a message at the end, with the next sequence; touches ``updated_at``.

        Args:
            from_engine: The engine made it, so that a tool message may be empty.

        Raises:
            SessionValidationError: SE4; the session is left as it was.
        """
        if role == MessageRole.TOOL and not from_engine:
            check_content(content)
        now = utc_now()
        message = SessionMessage(
            sequence=len(self.messages),
            role=_role(role),
            content=content,
            tool_call_id=tool_call_id,
            tool_calls=tool_calls,
            metadata={} if metadata is None else metadata,
            created_at=now,
        )
        self.messages.append(message)
        self.updated_at = now
        return message

    def link_plan(self, plan_id: str) -> None:
        """Link a plan; linking it again does nothing."""
        _check_ulid("plan_id", plan_id)
        if plan_id not in self.linked_plan_ids:
            self.linked_plan_ids.append(plan_id)
            self.updated_at = utc_now()

    def get_messages(self, limit: int | None = None, offset: int = 0) -> list[SessionMessage]:
        """The messages from ``offset``, at most ``limit``, in order."""
        if offset < 0 or (limit is not None and limit < 0):
            raise SessionValidationError("limit and offset must not be negative")
        end = None if limit is None else offset + limit
        return self.messages[offset:end]

    def export_dict(self) -> dict[str, Any]:
        """The session as SE6 writes it: JSON types, in a fixed order, with a checksum over the rest.

        ``orjson.dumps`` of it is the same bytes for equal sessions. ``project_id`` and decisions on tool
        calls are left out.

        Raises:
            SessionExportError: Metadata or text that is no JSON.
        """
        body: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "session_id": self.session_id,
            "namespace": self.namespace,
            "actor_name": self.actor_name,
            "created_at": rfc3339(self.created_at),
            "updated_at": rfc3339(self.updated_at),
            "metadata": _sorted(self.metadata),
            "linked_plan_ids": list(self.linked_plan_ids),
            "token_usage": _export_usage(self.token_usage),
            "messages": [message.export_dict() for message in self.messages],
        }
        try:
            check_json(body)
        except BadFrame as problem:
            raise SessionExportError(f"the session is no JSON: {problem.message}") from None
        return {**body, "checksum": checksum(body)}

    def export_bytes(self) -> bytes:
        """The export as the bytes of a file."""
        return orjson.dumps(self.export_dict())

    def cli_dict(self) -> dict[str, Any]:
        """What the command line prints of a session (SE7)."""
        shown: dict[str, Any] = {"session_id": self.session_id, "namespace": self.namespace}
        if self.actor_name is not None:
            shown["actor_name"] = self.actor_name
        return shown | {
            "message_count": self.message_count,
            "created_at": rfc3339(self.created_at),
            "updated_at": rfc3339(self.updated_at),
            "token_usage": _export_usage(self.token_usage),
            "linked_plan_ids": list(self.linked_plan_ids),
            "recent_messages": [message.export_dict() for message in self.messages[-RECENT_MESSAGES:]],
        }


class _ExportedCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tool_call_id: str
    name: str
    arguments: str
    execution_state: ExecutionState
    result: str | None
    error: ToolError | None


class _ExportedMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    message_id: str
    sequence: int
    role: MessageRole
    content: str
    tool_call_id: str | None
    tool_calls: tuple[_ExportedCall, ...]
    metadata: dict[str, Any]
    created_at: datetime


class _Export(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema_version: int
    session_id: str
    namespace: str
    actor_name: str | None
    created_at: datetime
    updated_at: datetime
    metadata: dict[str, Any]
    linked_plan_ids: list[str]
    token_usage: TokenUsage
    messages: list[_ExportedMessage]
    checksum: str


def import_session(data: bytes, *, max_bytes: int = MAX_IMPORT_BYTES) -> Session:
    """Read an export, and check all that can be checked.

    Unsettled tool calls come in as ``cancelled``, and none with a decision (TL8).

    Raises:
        SessionImportError: Larger than ``max_bytes`` (``too_large``), no JSON, another schema version, a
            missing or unknown key or one of a wrong type (``invalid_export``), a checksum that does not
            match (``checksum_mismatch``).
        SessionValidationError: A rule of SE4 is broken (``invalid_export``).
    """
    if len(data) > max_bytes:
        raise SessionImportError(
            f"the export has {len(data)} bytes, more than {max_bytes}", code=ErrorCode.TOO_LARGE
        )
    try:
        raw = parse(data, MAX_EXPORT_DEPTH)
    except BadFrame as problem:
        raise SessionImportError(f"not an export: {problem.message}") from None
    if not isinstance(raw, dict):
        raise SessionImportError("not an export: expected an object")
    _check_version_and_checksum(raw)
    document = _convert(raw)
    try:
        return _session_of(document)
    except SessionValidationError as problem:
        raise SessionValidationError(problem.message, code=ErrorCode.INVALID_EXPORT) from None


def decode_session(data: bytes) -> Session:
    """Read a whole session from JSON, all its fields as they are; for stores and tools of the server's own.

    Raises:
        SessionValidationError: No JSON of a session, or a rule of SE4 is broken.
    """
    try:
        return msgspec.json.decode(data, type=Session)
    except msgspec.MsgspecError as error:
        raise _unwrapped(error) from None


def checksum(body: Mapping[str, Any]) -> str:
    """``sha256:`` and the hex hash over the canonical JSON of all keys but ``checksum``."""
    rest = {key: value for key, value in body.items() if key != "checksum"}
    digest = hashlib.sha256(orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return f"sha256:{digest}"


def rfc3339(moment: datetime) -> str:
    """A time in UTC with six decimals, ``2026-01-02T03:04:05.000006Z``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def check_actor_name(name: str | None) -> None:
    """Check ``namespace/name``, or ``None``.

    Raises:
        SessionValidationError: Not exactly one ``/``, or nothing on one side of it.
    """
    if name is None:
        return
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) != 2 or not all(part.strip() for part in parts):
        raise SessionValidationError(
            f"actor_name must be `namespace/name` with exactly one `/`, not {name!r}"
        )


def _check_version_and_checksum(raw: dict[str, Any]) -> None:
    version = raw.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise SessionImportError(f"schema_version must be {SCHEMA_VERSION}, not {version!r}")
    stated = raw.get("checksum")
    if stated is None:
        raise SessionImportError("checksum is missing")
    computed = checksum(raw)
    if stated != computed:
        raise SessionImportError(
            f"checksum mismatch: the file says {stated}, its content has {computed}",
            code=ErrorCode.CHECKSUM_MISMATCH,
        )


def _convert(raw: dict[str, Any]) -> _Export:
    try:
        return msgspec.convert(raw, _Export)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, SessionValidationError):
            raise SessionValidationError(error.__cause__.message, code=ErrorCode.INVALID_EXPORT) from None
        raise SessionImportError(f"not an export: {error}") from None


def _session_of(document: _Export) -> Session:
    return Session(
        session_id=document.session_id,
        namespace=document.namespace,
        actor_name=document.actor_name,
        messages=[_message_of(message) for message in document.messages],
        linked_plan_ids=document.linked_plan_ids,
        token_usage=document.token_usage,
        metadata=document.metadata,
        created_at=document.created_at,
        updated_at=document.updated_at,
    )


def _message_of(message: _ExportedMessage) -> SessionMessage:
    return SessionMessage(
        message_id=message.message_id,
        sequence=message.sequence,
        role=message.role,
        content=message.content,
        tool_call_id=message.tool_call_id,
        tool_calls=tuple(_call_of(call) for call in message.tool_calls),
        metadata=message.metadata,
        created_at=message.created_at,
    )


def _call_of(call: _ExportedCall) -> ToolCall:
    state = call.execution_state if call.execution_state.settled else ExecutionState.CANCELLED
    return ToolCall(
        tool_call_id=call.tool_call_id,
        name=call.name,
        arguments=call.arguments,
        execution_state=state,
        result=call.result,
        error=call.error,
    )


def _export_call(call: ToolCall) -> dict[str, Any]:
    error = call.error
    return {
        "tool_call_id": call.tool_call_id,
        "name": call.name,
        "arguments": call.arguments,
        "execution_state": call.execution_state.value,
        "result": call.result,
        "error": None if error is None else {"code": error.code, "message": error.message},
    }


def _export_usage(usage: TokenUsage) -> dict[str, Any]:
    # Equal costs are equal bytes: 0 and -0.0 too.
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "estimated_cost": float(usage.estimated_cost) + 0.0,
    }


def _sorted(value: Any) -> Any:
    """JSON types with the keys of every object in order."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return value


def _role(role: MessageRole | str) -> MessageRole:
    try:
        return MessageRole(role)
    except ValueError:
        raise SessionValidationError(f"role must be one of {', '.join(MessageRole)}, not {role!r}") from None


def _check_ulid(name: str, text: object) -> None:
    if not is_ulid(text):
        raise SessionValidationError(f"{name} must be a ULID (26 upper-case characters), not {text!r}")


def _check_object(name: str, value: object) -> None:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise SessionValidationError(f"{name} must be an object with string keys")


def _check_time(name: str, moment: object) -> None:
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise SessionValidationError(f"{name} must be a time with a zone, not {moment!r}")


def _unwrapped(error: msgspec.MsgspecError) -> SessionValidationError:
    cause = error.__cause__
    return cause if isinstance(cause, SessionValidationError) else SessionValidationError(str(error))
