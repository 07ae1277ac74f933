"""The document that an exported session is (SE6): its keys, its version, its checksum."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from protocol.canonical import canonical_sha256
from protocol.codes import ErrorCode
from protocol.errors import BadFrame
from protocol.message import MessageRole, SessionMessage, TokenUsage
from protocol.session_errors import SessionImportError, SessionValidationError
from protocol.strict import parse
from protocol.tool_call import ExecutionState, ToolCall, ToolError

SCHEMA_VERSION: Final = 1
MAX_IMPORT_BYTES: Final = 64 * 1024 * 1024
MAX_EXPORT_DEPTH: Final = 128


class ExportedCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tool_call_id: str
    name: str
    arguments: str
    execution_state: ExecutionState
    result: str | None
    error: ToolError | None

    def restored(self) -> ToolCall:
        """The call without any decision; one that was not settled is cancelled (TL8)."""
        state = self.execution_state if self.execution_state.settled else ExecutionState.CANCELLED
        return ToolCall(
            tool_call_id=self.tool_call_id,
            name=self.name,
            arguments=self.arguments,
            execution_state=state,
            result=self.result,
            error=self.error,
        )


class ExportedMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    message_id: str
    sequence: int
    role: MessageRole
    content: str
    tool_call_id: str | None
    tool_calls: tuple[ExportedCall, ...]
    metadata: dict[str, Any]
    created_at: datetime

    def restored(self) -> SessionMessage:
        """The message; raises :class:`SessionValidationError` where it breaks SE4."""
        return SessionMessage(
            message_id=self.message_id,
            sequence=self.sequence,
            role=self.role,
            content=self.content,
            tool_call_id=self.tool_call_id,
            tool_calls=tuple(call.restored() for call in self.tool_calls),
            metadata=self.metadata,
            created_at=self.created_at,
        )


class SessionExport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema_version: int
    session_id: str
    namespace: str
    actor_name: str | None
    created_at: datetime
    updated_at: datetime
    metadata: dict[str, Any]
    linked_plan_ids: list[str]
    token_usage: TokenUsage
    messages: list[ExportedMessage]
    checksum: str


def checksum(body: Mapping[str, Any]) -> str:
    """``sha256:`` and the hex hash over the canonical JSON of all keys but ``checksum``."""
    return f"sha256:{canonical_sha256({key: value for key, value in body.items() if key != 'checksum'})}"


def read_export(data: bytes, max_bytes: int) -> SessionExport:
    """Read the document, and check all that does not take a session to check.

    Raises:
        SessionImportError, SessionValidationError: As :func:`protocol.session.import_session`.
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
    return _convert(raw)


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


def _convert(raw: dict[str, Any]) -> SessionExport:
    try:
        return msgspec.convert(raw, SessionExport)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, SessionValidationError):
            raise SessionValidationError(error.__cause__.message, code=ErrorCode.INVALID_EXPORT) from None
        raise SessionImportError(f"not an export: {error}") from None
