"""Runs: one execution of an agent, and its steps (RU1 to RU3)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, assert_never

from msgspec import Struct

from protocol.message import TokenUsage


class RunStatus(StrEnum):
    """Where a run is; every status but ``running`` is terminal."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    AWAITING_INPUT = "awaiting_input"

    @property
    def terminal(self) -> bool:
        return self is not RunStatus.RUNNING


class AgentFlow(StrEnum):
    """What kind of execution a run is."""

    CHAT = "CHAT"
    AI_OPS = "AI_OPS"


class FinishReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    STOPPED = "stopped"
    ERROR = "error"
    INTERRUPTED = "interrupted"


def status_of(finish: FinishReason) -> RunStatus:
    """The status that a run ends with, by how its completion finished."""
    match finish:
        case FinishReason.STOP | FinishReason.LENGTH:
            return RunStatus.SUCCEEDED
        case FinishReason.TOOL_CALLS:
            return RunStatus.AWAITING_INPUT
        case FinishReason.STOPPED:
            return RunStatus.STOPPED
        case FinishReason.ERROR:
            return RunStatus.FAILED
        case FinishReason.INTERRUPTED:
            return RunStatus.INTERRUPTED
        case _:
            assert_never(finish)


class RunError(Struct, frozen=True):
    """Why a run failed."""

    code: str
    message: str


class Run(Struct, frozen=True, kw_only=True):
    """One execution's auditable state."""

    run_id: str
    session_id: str
    query: str
    request_id: str | None = None
    status: RunStatus = RunStatus.RUNNING
    agent_flow: AgentFlow = AgentFlow.CHAT
    model: str | None = None
    answer: str | None = None
    finish_reason: FinishReason | None = None
    error: RunError | None = None
    continues_run_id: str | None = None
    message_id: str | None = None
    self_evaluation: dict[str, Any] | None = None
    feedback: str | None = None
    usage: TokenUsage = TokenUsage()
    step_count: int = 0
    tool_call_count: int = 0
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None


class AgentStep(Struct, frozen=True, kw_only=True):
    """One model turn of a run."""

    run_id: str
    session_id: str
    step_index: int
    model: str | None = None
    content: str = ""
    thinking: str = ""
    finish_reason: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    ttft_ms: int | None = None
    started_at: datetime
    ended_at: datetime | None = None
