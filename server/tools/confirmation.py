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

from msgspec import Struct

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.tool_call import Decision, ExecutionState, ToolError, arguments_sha256
from server.tools.arguments import InvalidArguments, read_object
from server.tools.call_states import (
    Accepted,
    Asked,
    AwaitingInput,
    Decided,
    Pending,
    Ready,
    Rejected,
    Running,
    Settled,
    State,
    arguments_of,
    confirmation_of,
    decided_of,
    execution_of,
    text_for_model,
    to_call,
    waits_for_person,
)

__all__ = [
    "Accept",
    "Accepted",
    "Answer",
    "Asked",
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
    "arguments_of",
    "arguments_sha256",
    "confirmation_of",
    "decided_of",
    "execution_of",
    "settle",
    "text_for_model",
    "to_call",
    "waits_for_person",
]


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
