"""Tool calls that wait for a person, and deciding them (TL4, TL5)."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import RequestId, Ulid
from protocol.tool_call import ConfirmationState, Decision, ExecutionState
from server.actors.commands import DecideFromRest, DecideResult
from server.rest.context import Call
from server.rest.declare import Ownership, Routes
from server.rest.schemas import NoBody, NoQuery, Page
from storage.records import ToolRecord

__all__ = ["ROUTES"]

ROUTES: Final = Routes()

_ERRORS: Final = (
    ErrorCode.STORAGE_UNAVAILABLE,
    ErrorCode.DRAINING,
    ErrorCode.OVERLOADED,
    ErrorCode.USE_PROJECT_SOCKET,
)


class OpenToolCall(Struct, rename="camel"):
    """A call that is not settled; ``arguments`` is a JSON text, hashed over its UTF-8 bytes."""

    session_id: str
    tool_call_id: str
    run_id: str | None
    message_id: str | None
    name: str
    arguments: str
    arguments_sha256: str
    confirmation_state: ConfirmationState
    execution_state: ExecutionState


class ConfirmToolCall(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A person's decision; ``sessionId`` is needed when a call of the same id exists in two sessions."""

    decision: Decision
    session_id: Ulid | None = None
    arguments: Annotated[str, Meta(description="With `accept`: a JSON object in place of all.")] | None = None
    reason: (
        Annotated[str, Meta(max_length=10_000, description="With `reject`: told to the model.")] | None
    ) = None
    request_id: RequestId | None = None


class ToolCallConfirmed(Struct, rename="camel"):
    """The decision as recorded; ``repeated`` when it had been made before."""

    session_id: str
    tool_call_id: str
    decision: Decision
    confirmation_state: ConfirmationState
    arguments_sha256: str
    repeated: bool


@ROUTES.declare(
    "GET",
    "/api/sessions/{sessionId}/tool-calls",
    ownership=Ownership.SESSION,
    response=Page[OpenToolCall],
    errors=(ErrorCode.STORAGE_UNAVAILABLE,),
)
async def list_tool_calls(call: Call[NoQuery, NoBody]) -> Page[OpenToolCall]:
    """The tool calls of a session that wait for a person, or were decided and have not run."""
    records = await call.context.store.runs.open_tools(call.session_id, call.owner)
    return Page([_shown(call.session_id, record) for record in records], None)


@ROUTES.declare(
    "POST",
    "/api/tool-calls/{toolCallId}/confirm",
    ownership=Ownership.CALLER,
    body=ConfirmToolCall,
    response=ToolCallConfirmed,
    errors=(
        *_ERRORS,
        ErrorCode.NOT_FOUND,
        ErrorCode.UNKNOWN_TOOL_CALL,
        ErrorCode.DECISION_CONFLICT,
        ErrorCode.REQUEST_ID_CONFLICT,
        ErrorCode.INVALID_MESSAGE,
    ),
)
async def confirm_tool_call(call: Call[NoQuery, ConfirmToolCall]) -> ToolCallConfirmed:
    """Decide a tool call that waits; the first decision wins, a repeat of it is answered the same."""
    wanted, tool_call_id = call.body, call.path["toolCallId"]
    _check(wanted)
    session_id = wanted.session_id or await _session_of(call, tool_call_id)
    result: DecideResult = await call.context.registry.call(
        session_id,
        call.owner,
        DecideFromRest(
            tool_call_id=tool_call_id,
            decision=wanted.decision,
            arguments=wanted.arguments,
            reason=wanted.reason,
            request_id=wanted.request_id,
        ),
    )
    return ToolCallConfirmed(
        session_id=session_id,
        tool_call_id=tool_call_id,
        decision=result.decision,
        confirmation_state=result.confirmation_state,
        arguments_sha256=result.arguments_sha256,
        repeated=result.repeated,
    )


async def _session_of(call: Call[Any, Any], tool_call_id: str) -> str:
    sessions = await call.context.store.runs.sessions_of_tool(tool_call_id, call.owner)
    if not sessions:
        raise Fault(ErrorCode.UNKNOWN_TOOL_CALL)
    if len(sessions) > 1:
        raise Fault(
            ErrorCode.INVALID_REQUEST,
            "`sessionId` is needed: calls of this id exist in several sessions",
            details={"field": "sessionId"},
        )
    return sessions[0]


def _check(wanted: ConfirmToolCall) -> None:
    if wanted.arguments is not None and wanted.decision is not Decision.ACCEPT:
        raise Fault(
            ErrorCode.INVALID_REQUEST, "`arguments` goes with `accept`", details={"field": "arguments"}
        )
    if wanted.reason is not None and wanted.decision is not Decision.REJECT:
        raise Fault(ErrorCode.INVALID_REQUEST, "`reason` goes with `reject`", details={"field": "reason"})


def _shown(session_id: str, record: ToolRecord) -> OpenToolCall:
    return OpenToolCall(
        session_id=session_id,
        tool_call_id=record.tool_call_id,
        run_id=record.run_id,
        message_id=record.assistant_message_id,
        name=record.name,
        arguments=record.arguments,
        arguments_sha256=record.arguments_sha256,
        confirmation_state=record.confirmation_state,
        execution_state=record.execution_state,
    )
