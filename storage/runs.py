"""Runs, their steps and tool calls."""

from __future__ import annotations

from collections.abc import Callable

from storage.database import Database
from storage.group_commit import GroupCommit
from storage.records import (
    LastRun,
    NewRun,
    RequestKey,
    RunEnd,
    RunRow,
    RunSummary,
    SessionSeed,
    StepRow,
    ToolRow,
    TurnWrite,
)


class Runs:
    """Statements on ``diagnosis_run``, ``agent_step`` and ``tool_invocation``."""

    on_fenced: Callable[[str], None]
    """Called with a run id whose checkpoint met another fence or an ended run. Must not raise."""

    def __init__(self, db: Database, commits: GroupCommit, *, node_id: str, checkpoint_s: float = 1.0) -> None: ...

    async def start(
        self, session_id: str, fence: int, seed: SessionSeed | None, request: RequestKey, run: NewRun
    ) -> None:
        """Record a run as running, with its request id; a remembered one that failed is replaced.

        Raises:
            Fenced, DuplicateRequest, Refused (a run is running already), StorageUnavailable.
        """

    def checkpoint(self, run_id: str, fence: int, message_id: str, text: str, thinking: str) -> None:
        """Keep the streamed text so far; written once a second at most. Never waits, never raises."""

    def forget_checkpoint(self, run_id: str) -> None:
        """Drop what is kept of a run (its text was committed by a turn, or it ended)."""

    async def commit_turn(self, session_id: str, fence: int, turn: TurnWrite) -> None:
        """Write a turn of a run that goes on, or what happens outside a run (decisions, answers).

        Raises:
            Fenced, DuplicateRequest, Refused, StorageUnavailable.
        """

    async def finish(self, session_id: str, fence: int, end: RunEnd, stop: RequestKey | None = None) -> None:
        """End a running run with all that it leaves, in one transaction.

        Raises:
            Fenced: The run is not running any more, or not this owner's.
            StorageUnavailable: Try again after ``reclaim`` when the outcome is unknown.
        """

    async def get(self, run_id: str, owner: str) -> RunRow:
        """One run; Fault ``not_found`` when it is not the owner's."""
        raise NotImplementedError

    async def list(
        self, session_id: str, owner: str, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[RunSummary], str | None]:
        """A session's runs, newest first, and the next page's cursor; Fault ``not_found``."""
        raise NotImplementedError

    async def latest(self, session_id: str, owner: str) -> RunRow | None:
        """The latest by ``created_at desc, id desc``; Fault ``not_found`` for an unknown session."""
        raise NotImplementedError

    async def last(self, session_id: str) -> LastRun | None:
        """The latest run's outcome."""
        raise NotImplementedError

    async def steps(self, run_id: str) -> list[StepRow]:
        """The model turns of a run, in order."""
        raise NotImplementedError

    async def tools(self, run_id: str) -> list[ToolRow]:
        """The tool calls of a run, in order."""
        raise NotImplementedError

    async def set_feedback(self, run_id: str, owner: str, feedback: str) -> RunRow:
        """Bind feedback to a run; Fault ``not_found``."""
        raise NotImplementedError

    async def set_evaluation(self, run_id: str, name: str, result: dict[str, object]) -> None:
        """Put one evaluation under ``name`` into the run's ``self_evaluation`` (AO3)."""
