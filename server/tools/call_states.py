"""The states of one tool call, and what can be seen of each. Pure.

Every state is a struct of its own, so that a settled one cannot be left;
:func:`~server.tools.confirmation.settle` is what leads from one to the next.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias, assert_never

import orjson
from msgspec import Struct

from protocol.tool_call import (
    ConfirmationState,
    Decision,
    ExecutionState,
    ToolCall,
    ToolError,
    arguments_sha256,
)

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
