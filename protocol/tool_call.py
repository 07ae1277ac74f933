"""Tool calls: what a model asked for, whether a person agreed, and what came of it (TL2)."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from msgspec import Struct


class ConfirmationState(StrEnum):
    """Whether a person has to agree, and did."""

    NOT_REQUIRED = "not_required"
    PENDING = "pending"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    AWAITING_INPUT = "awaiting_input"


class ExecutionState(StrEnum):
    """Where the execution of a call is."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def settled(self) -> bool:
        """Whether nothing can change any more."""
        return self not in {ExecutionState.WAITING, ExecutionState.RUNNING}


class Decision(StrEnum):
    """What a person said of a call that waits for confirmation."""

    ACCEPT = "accept"
    REJECT = "reject"


class ToolError(Struct, frozen=True):
    """Why a call failed."""

    code: str
    message: str


def arguments_sha256(arguments: str) -> str:
    """The hex SHA-256 over the UTF-8 bytes of the arguments: what is shown is what runs (TL6)."""
    return hashlib.sha256(arguments.encode()).hexdigest()


class ToolCall(Struct, frozen=True, kw_only=True):
    """One tool call of an assistant message; ``arguments`` is a JSON text, as the model sent it."""

    tool_call_id: str
    name: str
    arguments: str = "{}"
    confirmation_state: ConfirmationState = ConfirmationState.NOT_REQUIRED
    execution_state: ExecutionState = ExecutionState.WAITING
    result: str | None = None
    error: ToolError | None = None

    @property
    def arguments_sha256(self) -> str:
        return arguments_sha256(self.arguments)

    @property
    def settled(self) -> bool:
        return self.execution_state.settled
