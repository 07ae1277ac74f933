"""The one table of error and close codes; SPEC.md, the schema and every answer are made from it.

It must not know who raises a code or how it is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct


class CloseCode(IntEnum):
    """Why a WebSocket was closed."""

    NORMAL = 1000
    GOING_AWAY = 1001
    UNSUPPORTED_DATA = 1003
    TOO_BIG = 1009
    INTERNAL = 1011
    RESTARTING = 1012
    OVERLOADED = 1013
    SLOW_CONSUMER = 4008
    RESOURCE_BUSY = 4009
    SUPERSEDED = 4010
    OWNER_MOVED = 4012
    TOO_MANY = 4029
    BAD_RESOURCE = 4400
    UNAUTHENTICATED = 4401
    NOT_FOUND = 4404


class ErrorCode(StrEnum):
    """What went wrong, in ``error`` frames, in REST failures and in ``tool_call.error``."""

    BAD_FRAME = "bad_frame"
    INVALID_MESSAGE = "invalid_message"
    INVALID_REQUEST = "invalid_request"
    TOO_LARGE = "too_large"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN_ORIGIN = "forbidden_origin"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    USE_PROJECT_SOCKET = "use_project_socket"
    SESSION_EXISTS = "session_exists"
    PROJECT_EXISTS = "project_exists"
    RESOURCE_BUSY = "resource_busy"
    REQUEST_ID_CONFLICT = "request_id_conflict"
    COMPLETION_BUSY = "completion_busy"
    QUEUE_FULL = "queue_full"
    NOTHING_TO_STOP = "nothing_to_stop"
    TOOLS_PENDING = "tools_pending"
    DECISION_CONFLICT = "decision_conflict"
    UNKNOWN_TOOL_CALL = "unknown_tool_call"
    VERSION_CONFLICT = "version_conflict"
    INVALID_CANVAS = "invalid_canvas"
    RATE_LIMITED = "rate_limited"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    STORAGE_UNAVAILABLE = "storage_unavailable"
    DRAINING = "draining"
    OVERLOADED = "overloaded"
    LLM_TIMEOUT = "llm_timeout"
    LLM_UNAVAILABLE = "llm_unavailable"
    LLM_RATE_LIMITED = "llm_rate_limited"
    LLM_CONTEXT_LENGTH = "llm_context_length"
    LLM_CONTENT_FILTER = "llm_content_filter"
    LLM_BAD_RESPONSE = "llm_bad_response"
    UNKNOWN_MODEL = "unknown_model"
    TOOL_FAILED = "tool_failed"
    TOOL_TIMEOUT = "tool_timeout"
    OUTCOME_UNKNOWN = "outcome_unknown"
    INVALID_EXPORT = "invalid_export"
    CHECKSUM_MISMATCH = "checksum_mismatch"
    INTERNAL = "internal"


class CloseInfo(Struct, frozen=True):
    """One row of the table of close codes."""

    code: CloseCode
    meaning: str
    client_should: str


class ErrorInfo(Struct, frozen=True):
    """One row of the table of error codes.

    - ``http_status``: of a REST answer; ``None`` for codes that only occur inside of a ``tool_call``.
    - ``close``: what a connection is closed with *if* this refuses or ends it; a refused frame never does.
    - ``retryable``: whether the same request may work later.
    """

    code: ErrorCode
    http_status: int | None
    close: CloseCode | None
    retryable: bool
    meaning: str


_E: Final = ErrorCode
_C: Final = CloseCode

# fmt: off
_ERROR_ROWS: Final = (
    ErrorInfo(_E.BAD_FRAME, 400, _C.BAD_RESOURCE, False,
              "Not JSON, an unknown type, or a wrong field, which the message names."),
    ErrorInfo(_E.INVALID_MESSAGE, 400, None, False,
              "A message without content, or a content that what it answers does not take."),
    ErrorInfo(_E.INVALID_REQUEST, 400, _C.BAD_RESOURCE, False,
              "A wrong path, query parameter or body."),
    ErrorInfo(_E.TOO_LARGE, 413, _C.TOO_BIG, False,
              "Larger than the limit that the message names."),
    ErrorInfo(_E.UNAUTHENTICATED, 401, _C.UNAUTHENTICATED, False,
              "Not signed in, or no longer."),
    ErrorInfo(_E.FORBIDDEN_ORIGIN, 403, None, False,
              "A web page of a foreign origin asked."),
    ErrorInfo(_E.NOT_FOUND, 404, _C.NOT_FOUND, False,
              "Not there, deleted, or not yours."),
    ErrorInfo(_E.METHOD_NOT_ALLOWED, 405, None, False,
              "The path does not know this HTTP method."),
    ErrorInfo(_E.USE_PROJECT_SOCKET, 409, _C.NOT_FOUND, False,
              "The conversation belongs to a project and is reached through the project's socket."),
    ErrorInfo(_E.SESSION_EXISTS, 409, None, False,
              "A session of this id exists or existed."),
    ErrorInfo(_E.PROJECT_EXISTS, 409, None, False,
              "A project of this id exists or existed."),
    ErrorInfo(_E.RESOURCE_BUSY, 409, _C.RESOURCE_BUSY, True,
              "Another connection that is alive holds the resource."),
    ErrorInfo(_E.REQUEST_ID_CONFLICT, 409, None, False,
              "The request_id was used before for something else."),
    ErrorInfo(_E.COMPLETION_BUSY, 409, None, True,
              "A completion is running and the request did not want to wait."),
    ErrorInfo(_E.QUEUE_FULL, 429, None, True,
              "Too many completions wait already."),
    ErrorInfo(_E.NOTHING_TO_STOP, 409, None, False,
              "No such completion is running or queued, or it is being stopped already."),
    ErrorInfo(_E.TOOLS_PENDING, 409, None, False,
              "Tool calls wait for a decision or an answer."),
    ErrorInfo(_E.DECISION_CONFLICT, 409, None, False,
              "The tool call was decided otherwise before; details say by whom, what and when."),
    ErrorInfo(_E.UNKNOWN_TOOL_CALL, 404, None, False,
              "No tool call of this id waits for that."),
    ErrorInfo(_E.VERSION_CONFLICT, 409, None, False,
              "The entity changed meanwhile; details have the current one."),
    ErrorInfo(_E.INVALID_CANVAS, 400, None, False,
              "An invalid canvas change; nothing was applied."),
    ErrorInfo(_E.RATE_LIMITED, 429, None, True,
              "Too many frames or calls; nothing was stored. retry_after_ms says how long to wait."),
    ErrorInfo(_E.TOO_MANY_CONNECTIONS, 429, _C.TOO_MANY, True,
              "Too many connections of this caller, or in all."),
    ErrorInfo(_E.STORAGE_UNAVAILABLE, 503, _C.OVERLOADED, True,
              "The store is away; nothing was confirmed."),
    ErrorInfo(_E.DRAINING, 503, _C.RESTARTING, True,
              "The server is shutting down."),
    ErrorInfo(_E.OVERLOADED, 503, _C.OVERLOADED, True,
              "The server has more to do than it takes on."),
    ErrorInfo(_E.LLM_TIMEOUT, 504, None, True,
              "The model kept silent for too long, or took too long in all."),
    ErrorInfo(_E.LLM_UNAVAILABLE, 502, None, True,
              "The model's endpoint refused or broke the connection."),
    ErrorInfo(_E.LLM_RATE_LIMITED, 429, None, True,
              "The model's endpoint limits the rate."),
    ErrorInfo(_E.LLM_CONTEXT_LENGTH, 422, None, False,
              "The conversation is longer than the model takes."),
    ErrorInfo(_E.LLM_CONTENT_FILTER, 422, None, False,
              "The model's endpoint refused the content."),
    ErrorInfo(_E.LLM_BAD_RESPONSE, 502, None, False,
              "The model's endpoint sent what cannot be understood."),
    ErrorInfo(_E.UNKNOWN_MODEL, 400, None, False,
              "No model of this name."),
    ErrorInfo(_E.TOOL_FAILED, None, None, False,
              "The tool failed; the model was told."),
    ErrorInfo(_E.TOOL_TIMEOUT, None, None, False,
              "The tool took too long; the model was told."),
    ErrorInfo(_E.OUTCOME_UNKNOWN, None, None, False,
              "The server went down while the tool ran; it is never run again by itself."),
    ErrorInfo(_E.INVALID_EXPORT, 422, None, False,
              "Not an export of a session, or one that breaks the rules of sessions."),
    ErrorInfo(_E.CHECKSUM_MISMATCH, 422, None, False,
              "The export was changed after it was made."),
    ErrorInfo(_E.INTERNAL, 500, _C.INTERNAL, True,
              "A bug. The correlation id is in the server's log."),
)

_CLOSE_ROWS: Final = (
    CloseInfo(_C.NORMAL, "normal", "nothing"),
    CloseInfo(_C.GOING_AWAY, "normal, the other side goes away", "nothing"),
    CloseInfo(_C.UNSUPPORTED_DATA, "a binary message", "be fixed"),
    CloseInfo(_C.TOO_BIG, "a frame over the size limit", "be fixed"),
    CloseInfo(_C.INTERNAL, "internal error", "reconnect with back-off"),
    CloseInfo(_C.RESTARTING, "the server restarts", "reconnect with jitter"),
    CloseInfo(_C.OVERLOADED, "the server is overloaded", "reconnect with jitter"),
    CloseInfo(_C.SLOW_CONSUMER, "slow consumer: too far behind", "reconnect and resume"),
    CloseInfo(_C.RESOURCE_BUSY, "held by another live connection", "tell the user; retry later or take over"),
    CloseInfo(_C.SUPERSEDED, "superseded by your newer connection", "stop"),
    CloseInfo(_C.OWNER_MOVED, "the resource's owner moved to another node or process", "reconnect at once"),
    CloseInfo(_C.TOO_MANY, "too many connections", "back off"),
    CloseInfo(_C.BAD_RESOURCE, "bad resource id or position, or ten bad frames in a row", "be fixed"),
    CloseInfo(_C.UNAUTHENTICATED, "not authenticated, or no longer", "sign in again"),
    CloseInfo(_C.NOT_FOUND, "not there, or not yours", "stop"),
)
# fmt: on


def _errors(rows: Iterable[ErrorInfo]) -> Mapping[ErrorCode, ErrorInfo]:
    """Index the rows; a code without one, or with two, keeps the program from starting."""
    table = {row.code: row for row in rows}
    if missing := set(ErrorCode) - table.keys():
        raise LookupError(f"error codes without a row: {sorted(missing)}")
    return MappingProxyType(table)


def _closes(rows: Iterable[CloseInfo]) -> Mapping[CloseCode, CloseInfo]:
    """Index the rows; a code without one keeps the program from starting."""
    table = {row.code: row for row in rows}
    if missing := set(CloseCode) - table.keys():
        raise LookupError(f"close codes without a row: {sorted(missing)}")
    return MappingProxyType(table)


ERRORS: Final = _errors(_ERROR_ROWS)
CLOSES: Final = _closes(_CLOSE_ROWS)
