"""One tool call, from being asked for to being settled: states, events and one total function. Pure.

Every state is a struct of its own, so that a settled one cannot be left. :func:`settle` has one outcome for
every event in every state: the call :class:`Moved`, it was :class:`Repeated`, it is :class:`Refused` (a
person is told why), or it is :class:`Ignored` (a late finish after a stop). A decision is kept with who, when
and the hash of what may run (TL5, TL6); the first one wins. Nothing but an :class:`Accept` of a person leads
from :class:`Pending` to :class:`Running` (TL8).

It knows neither tools nor rows in a database: the caller says when a call expires, and writes what comes out.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, TypeAlias, assert_never

import orjson
from msgspec import Struct

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.tool_call import (
    ConfirmationState,
    Decision,
    ExecutionState,
    ToolCall,
    ToolError,
    arguments_sha256,
)
from server.tools.arguments import InvalidArguments, read_object

__all__ = [
    "Accept",
    "Accepted",
    "Answer",
    "AwaitingInput",
    "Cancel",
    "Decided",
    "Event",
    "Expire",
    "Fail",
    "Finish",
    "Ignored",
    "Lose",
    "Moved",
    "Outcome",
    "Pending",
    "Ready",
    "Refused",
    "Reject",
    "Rejected",
    "Repeated",
    "Running",
    "Settled",
    "Start",
    "State",
    "arguments_sha256",
    "settle",
    "text_for_model",
    "to_call",
]


# -- what a call is, and what was decided ------------------------------------------------------------------


class Asked(Struct, frozen=True):
    """What the model asked for; ``arguments`` as it wrote them, and as they were shown (TL6)."""

    tool_call_id: str
    name: str
    arguments: str


class Decided(Struct, frozen=True):
    """The one decision on a call: who, what, when, and the hash of what may run.

    ``arguments`` are what runs if it was accepted: the confirmer's, or those shown.
    """

    decision: Decision
    by: str
    at: datetime
    arguments: str
    reason: str | None = None

    @property
    def arguments_sha256(self) -> str:
        return arguments_sha256(self.arguments)


# -- states ------------------------------------------------------------------------------------------------


class Ready(Struct, frozen=True):
    """Needs nobody's agreement and has not begun."""

    asked: Asked


class Pending(Struct, frozen=True):
    """Waits for a person's agreement; for ever, unless ``expires_at`` is set (TL4)."""

    asked: Asked
    expires_at: datetime | None = None


class AwaitingInput(Struct, frozen=True):
    """Waits for a person's answer; for ever, unless ``expires_at`` is set (TL7)."""

    asked: Asked
    expires_at: datetime | None = None


class Accepted(Struct, frozen=True):
    """A person agreed; it runs at the next ``request_completion``."""

    asked: Asked
    decided: Decided


class Rejected(Struct, frozen=True):
    """A person refused; it is settled: cancelled, and never runs."""

    asked: Asked
    decided: Decided


class Running(Struct, frozen=True):
    """Runs with ``arguments``; ``decided`` is None for a call that needed nobody's agreement."""

    asked: Asked
    arguments: str
    decided: Decided | None
    started_at: datetime


class Settled(Struct, frozen=True):
    """Nothing can change any more."""

    asked: Asked
    arguments: str
    confirmation_state: ConfirmationState
    execution_state: ExecutionState
    decided: Decided | None = None
    result: str | None = None
    error: ToolError | None = None


State: TypeAlias = Ready | Pending | AwaitingInput | Accepted | Rejected | Running | Settled


# -- events ------------------------------------------------------------------------------------------------


class Accept(Struct, frozen=True):
    """A person agrees; ``arguments`` replace the shown ones whole."""

    by: str
    at: datetime
    arguments: str | None = None


class Reject(Struct, frozen=True):
    """A person refuses, or declines by going on (``on_pending`` ``decline``)."""

    by: str
    at: datetime
    reason: str | None = None


class Answer(Struct, frozen=True):
    """A person answers; the caller has checked the content against the call's schema."""

    by: str
    at: datetime
    content: str


class Cancel(Struct, frozen=True):
    """A stop, or a plain message in place of an answer; ``why`` is what the model is told."""

    why: str = "cancelled: this call was not carried out"


class Expire(Struct, frozen=True):
    """The time of a call that its tool limits may be over."""

    at: datetime


class Start(Struct, frozen=True):
    """The call begins to run."""

    at: datetime


class Finish(Struct, frozen=True):
    """The tool came to its end."""

    result: str


class Fail(Struct, frozen=True):
    """The tool failed, or the call could not be begun."""

    code: ErrorCode
    message: str


class Lose(Struct, frozen=True):
    """The process went down while the tool ran: what it did is not known, and it never runs again (ST7)."""


Event: TypeAlias = Accept | Reject | Answer | Cancel | Expire | Start | Finish | Fail | Lose


# -- outcomes ----------------------------------------------------------------------------------------------


class Moved(Struct, frozen=True):
    """The call is in a new state."""

    state: State


class Repeated(Struct, frozen=True):
    """The same decision again; to be answered as the first time."""

    state: State
    decided: Decided


class Refused(Struct, frozen=True):
    """A person may not do this now; nothing changed."""

    state: State
    code: ErrorCode
    message: str
    details: dict[str, Any] = {}

    def fault(self) -> Fault:
        """What the person is told."""
        return Fault(self.code, self.message, details=self.details)


class Ignored(Struct, frozen=True):
    """Too late, too early, or not for this call; nothing changed and nobody need be told."""

    state: State


Outcome: TypeAlias = Moved | Repeated | Refused | Ignored


# -- the decision ------------------------------------------------------------------------------------------


def settle(state: State, event: Event) -> Outcome:
    """Decide what an event makes of a call; total."""
    match event:
        case Accept() | Reject():
            return _decide(state, event)
        case Answer():
            return _answer(state, event)
        case Cancel(why=why):
            return _cancel(state, why)
        case Expire(at=at):
            return _expire(state, at)
        case Start(at=at):
            return _start(state, at)
        case Finish(result=result):
            if isinstance(state, Running):
                return Moved(_end(state, ExecutionState.SUCCEEDED, result=result))
            return Ignored(state)
        case Fail(code=code, message=message):
            if isinstance(state, Ready | Accepted | Running):
                return Moved(_end(state, ExecutionState.FAILED, error=ToolError(code.value, message)))
            return Ignored(state)
        case Lose():
            if isinstance(state, Running):
                return Moved(_end(state, ExecutionState.FAILED, error=_LOST))
            return Ignored(state)
        case _:
            assert_never(event)


_LOST: Final = ToolError(
    ErrorCode.OUTCOME_UNKNOWN.value,
    "the server went down while the tool ran; whether it took effect is not known, and it is not run again",
)
_EXPIRED: Final = ToolError(ErrorCode.TOOL_TIMEOUT.value, "nobody decided in time; it was not carried out")


def _decide(state: State, event: Accept | Reject) -> Outcome:
    if isinstance(state, Pending):
        return _first_decision(state, event)
    decided = decided_of(state)
    if decided is None:
        return Refused(
            state, ErrorCode.UNKNOWN_TOOL_CALL, "no tool call of this id waits for a decision", _of(state)
        )
    if _is_repeat(state, decided, event):
        return Repeated(state, decided)
    return Refused(
        state,
        ErrorCode.DECISION_CONFLICT,
        f"the tool call was decided before: {decided.decision.value} by {decided.by}",
        {
            "tool_call_id": state.asked.tool_call_id,
            "decision": decided.decision.value,
            "decided_by": decided.by,
            "decided_at": decided.at.isoformat().replace("+00:00", "Z"),
            "arguments_sha256": decided.arguments_sha256,
            "reason": decided.reason,
        },
    )


def _first_decision(state: Pending, event: Accept | Reject) -> Outcome:
    asked = state.asked
    match event:
        case Accept(by=by, at=at, arguments=edited):
            if edited is not None:
                try:
                    read_object(edited)
                except InvalidArguments as error:
                    return Refused(
                        state, ErrorCode.INVALID_MESSAGE, f"arguments: {error}", {"field": "arguments"}
                    )
            arguments = asked.arguments if edited is None else edited
            return Moved(Accepted(asked, Decided(Decision.ACCEPT, by, at, arguments)))
        case Reject(by=by, at=at, reason=reason):
            return Moved(Rejected(asked, Decided(Decision.REJECT, by, at, asked.arguments, reason)))
        case _:
            assert_never(event)


def _is_repeat(state: State, decided: Decided, event: Accept | Reject) -> bool:
    match event:
        case Accept(arguments=edited):
            arguments = state.asked.arguments if edited is None else edited
            return decided.decision is Decision.ACCEPT and decided.arguments == arguments
        case Reject(reason=reason):
            return decided.decision is Decision.REJECT and decided.reason == reason
        case _:
            assert_never(event)


def _answer(state: State, event: Answer) -> Outcome:
    match state:
        case AwaitingInput():
            return Moved(_end(state, ExecutionState.SUCCEEDED, result=event.content))
        case Pending():
            return Refused(
                state,
                ErrorCode.INVALID_MESSAGE,
                "this tool call waits for a decision (confirm_tool), not for an answer",
                _of(state),
            )
        case _:
            return Refused(
                state, ErrorCode.UNKNOWN_TOOL_CALL, "no tool call of this id waits for an answer", _of(state)
            )


def _cancel(state: State, why: str) -> Outcome:
    if isinstance(state, Rejected | Settled):
        return Ignored(state)
    return Moved(_end(state, ExecutionState.CANCELLED, result=why))


def _expire(state: State, at: datetime) -> Outcome:
    if isinstance(state, Pending | AwaitingInput) and state.expires_at is not None and at >= state.expires_at:
        return Moved(_end(state, ExecutionState.FAILED, error=_EXPIRED))
    return Ignored(state)


def _start(state: State, at: datetime) -> Outcome:
    match state:
        case Ready(asked=asked):
            return Moved(Running(asked, asked.arguments, None, at))
        case Accepted(asked=asked, decided=decided):
            return Moved(Running(asked, decided.arguments, decided, at))
        case _:
            return Ignored(state)


def _end(
    state: State, execution: ExecutionState, *, result: str | None = None, error: ToolError | None = None
) -> Settled:
    return Settled(
        state.asked,
        arguments_of(state),
        confirmation_of(state),
        execution,
        decided_of(state),
        result,
        error,
    )


def _of(state: State) -> dict[str, Any]:
    return {"tool_call_id": state.asked.tool_call_id}


# -- looking at a state ------------------------------------------------------------------------------------


def decided_of(state: State) -> Decided | None:
    """The decision that was made, if one was; total."""
    match state:
        case Ready() | Pending() | AwaitingInput():
            return None
        case Accepted() | Rejected() | Running() | Settled():
            return state.decided
        case _:
            assert_never(state)


def arguments_of(state: State) -> str:
    """What would run, runs or ran: the shown arguments, or the confirmer's; total (TL6)."""
    match state:
        case Ready() | Pending() | AwaitingInput():
            return state.asked.arguments
        case Accepted() | Rejected():
            return state.decided.arguments
        case Running() | Settled():
            return state.arguments
        case _:
            assert_never(state)


def confirmation_of(state: State) -> ConfirmationState:
    """Whether a person has to agree, and did; total."""
    match state:
        case Ready():
            return ConfirmationState.NOT_REQUIRED
        case Pending():
            return ConfirmationState.PENDING
        case AwaitingInput():
            return ConfirmationState.AWAITING_INPUT
        case Accepted():
            return ConfirmationState.ACCEPTED
        case Rejected():
            return ConfirmationState.REJECTED
        case Running(decided=decided):
            return ConfirmationState.NOT_REQUIRED if decided is None else ConfirmationState.ACCEPTED
        case Settled():
            return state.confirmation_state
        case _:
            assert_never(state)


def execution_of(state: State) -> ExecutionState:
    """Where the execution is; a rejected call ends as cancelled; total."""
    match state:
        case Ready() | Pending() | AwaitingInput() | Accepted():
            return ExecutionState.WAITING
        case Rejected():
            return ExecutionState.CANCELLED
        case Running():
            return ExecutionState.RUNNING
        case Settled():
            return state.execution_state
        case _:
            assert_never(state)


def waits_for_person(state: State) -> bool:
    """Whether the completion has to end with ``tool_calls`` for it (TL4)."""
    return isinstance(state, Pending | AwaitingInput)


def text_for_model(state: Rejected | Settled) -> str:
    """The content of the call's tool message."""
    if isinstance(state, Rejected):
        return _error_text("rejected: the user did not allow this call", reason=state.decided.reason)
    if state.error is not None:
        return _error_text(f"{state.error.code}: {state.error.message}")
    if state.execution_state is ExecutionState.CANCELLED:
        return _error_text(state.result or "cancelled")
    return state.result or ""


def _error_text(error: str, *, reason: str | None = None) -> str:
    told = {"error": error} if not reason else {"error": error, "reason": reason}
    return orjson.dumps(told).decode()


def to_call(state: State) -> ToolCall:
    """The call as messages, rows and frames have it; its ``arguments_sha256`` is of what runs."""
    settled = state if isinstance(state, Settled) else None
    result = None
    if isinstance(state, Rejected):
        result = text_for_model(state)
    elif settled is not None and settled.error is None:
        result = settled.result
    return ToolCall(
        tool_call_id=state.asked.tool_call_id,
        name=state.asked.name,
        arguments=arguments_of(state),
        confirmation_state=confirmation_of(state),
        execution_state=execution_of(state),
        result=result,
        error=None if settled is None else settled.error,
    )
