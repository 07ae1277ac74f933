"""The session: one conversation, its messages and what they cost (SE1 to SE8).

What is wrong is told in the same words whether a session is made or read. It must not know how
sessions are stored, nor who may see them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec
import orjson
from msgspec import Struct, field

from protocol.canonical import rfc3339, sorted_json
from protocol.codes import ErrorCode
from protocol.errors import BadFrame
from protocol.ids import new_message_id, new_ulid, utc_now
from protocol.message import (
    MessageRole,
    SessionMessage,
    TokenUsage,
    check_content,
    check_object,
    check_time,
    check_ulid,
    role_of,
)
from protocol.session_errors import (
    SessionExportError,
    SessionImportError,
    SessionNotFoundError,
    SessionServiceError,
    SessionValidationError,
)
from protocol.session_export import (
    MAX_EXPORT_DEPTH,
    MAX_IMPORT_BYTES,
    SCHEMA_VERSION,
    SessionExport,
    checksum,
    read_export,
)
from protocol.strict import check_json
from protocol.tool_call import ToolCall

__all__ = [
    "MAX_IMPORT_BYTES",
    "SCHEMA_VERSION",
    "MessageRole",
    "Session",
    "SessionExportError",
    "SessionImportError",
    "SessionMessage",
    "SessionNotFoundError",
    "SessionServiceError",
    "SessionValidationError",
    "TokenUsage",
    "check_actor_name",
    "check_content",
    "checksum",
    "convert_session",
    "decode_session",
    "import_session",
    "rfc3339",
]

RECENT_MESSAGES: Final = 5


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
        check_ulid("session_id", self.session_id)
        if not isinstance(self.namespace, str) or not self.namespace or self.namespace.isspace():
            raise SessionValidationError(f"namespace must be a name, not {self.namespace!r}")
        check_actor_name(self.actor_name)
        if self.project_id is not None:
            check_ulid("project_id", self.project_id)
        for plan_id in self.linked_plan_ids:
            check_ulid("linked_plan_ids", plan_id)
        _check_order(self.messages)
        check_object("metadata", self.metadata)
        check_time("created_at", self.created_at)
        check_time("updated_at", self.updated_at)

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
            role=role_of(role),
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
        check_ulid("plan_id", plan_id)
        if plan_id not in self.linked_plan_ids:
            self.linked_plan_ids.append(plan_id)
            self.updated_at = utc_now()

    def get_messages(self, limit: int | None = None, offset: int = 0) -> list[SessionMessage]:
        """The messages from ``offset``, at most ``limit``, in order."""
        if offset < 0 or (limit is not None and limit < 0):
            raise SessionValidationError("limit and offset must not be negative")
        end = None if limit is None else offset + limit
        return self.messages[offset:end]

    def with_new_ids(self) -> Session:
        """A copy under a new session id, with new message ids; what it links to and says is the same."""
        return msgspec.structs.replace(
            self,
            session_id=new_ulid(),
            linked_plan_ids=list(self.linked_plan_ids),
            messages=[
                msgspec.structs.replace(message, message_id=new_message_id()) for message in self.messages
            ],
        )

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
            "metadata": sorted_json(self.metadata),
            "linked_plan_ids": list(self.linked_plan_ids),
            "token_usage": self.token_usage.export_dict(),
            "messages": [message.export_dict() for message in self.messages],
        }
        try:
            check_json(body, MAX_EXPORT_DEPTH)
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
            "token_usage": self.token_usage.export_dict(),
            "linked_plan_ids": list(self.linked_plan_ids),
            "recent_messages": [message.export_dict() for message in self.messages[-RECENT_MESSAGES:]],
        }


def import_session(data: bytes, *, max_bytes: int = MAX_IMPORT_BYTES) -> Session:
    """Read an export, and check all that can be checked.

    Unsettled tool calls come in as ``cancelled``, and none with a decision (TL8).

    Raises:
        SessionImportError: Larger than ``max_bytes`` (``too_large``), no JSON, another schema version, a
            missing or unknown key or one of a wrong type (``invalid_export``), a checksum that does not
            match (``checksum_mismatch``).
        SessionValidationError: A rule of SE4 is broken (``invalid_export``).
    """
    document = read_export(data, max_bytes)
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


def convert_session(value: object) -> Session:
    """As :func:`decode_session`, from JSON types."""
    try:
        return msgspec.convert(value, Session)
    except msgspec.MsgspecError as error:
        raise _unwrapped(error) from None


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


def _session_of(document: SessionExport) -> Session:
    return Session(
        session_id=document.session_id,
        namespace=document.namespace,
        actor_name=document.actor_name,
        messages=[message.restored() for message in document.messages],
        linked_plan_ids=document.linked_plan_ids,
        token_usage=document.token_usage,
        metadata=document.metadata,
        created_at=document.created_at,
        updated_at=document.updated_at,
    )


def _unwrapped(error: msgspec.MsgspecError) -> SessionValidationError:
    cause = error.__cause__
    return cause if isinstance(cause, SessionValidationError) else SessionValidationError(str(error))


def _check_order(messages: list[SessionMessage]) -> None:
    seen: set[str] = set()
    for index, message in enumerate(messages):
        if message.sequence != index:
            raise SessionValidationError(
                "messages must be ordered by sequence, from 0 and without gaps:"
                f" number {index} has sequence {message.sequence}"
            )
        if message.message_id in seen:
            raise SessionValidationError(f"message_id {message.message_id} occurs twice")
        seen.add(message.message_id)
