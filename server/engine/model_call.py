"""One call of the model: the request, its time limits, and telling what comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import anyio
from msgspec import Struct

from protocol.codes import ErrorCode
from protocol.server_frames import FinishReason
from server.engine.live_run import Failed, Finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.engine.live_run import LiveRun, Outcome
    from server.llm.base import Model, ModelEvent, ModelRequest


class TimeLimits(Struct, frozen=True):
    """How long a model call may take, seconds (ST6)."""

    first_token_s: float
    gap_s: float
    total_s: float


class Watchdog:
    """One timer for the three limits of a model call; cancels the scope when one is passed.

    Being alive is one assignment per network read: the timer looks at it when it fires, and sleeps on.
    """

    def __init__(self, scope: anyio.CancelScope, limits: TimeLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._scope = scope
        self._limits: Final = limits
        self._started = self._last = self._loop.time()
        self._first = True
        self._timer = self._loop.call_at(self._deadline(), self._look)
        self.expired: str | None = None
        """Which limit was passed, in words; ``None`` while none was."""

    def alive(self) -> None:
        """The model said something."""
        self._last = self._loop.time()
        if self._first:
            self._first = False
            self._timer.cancel()
            self._timer = self._loop.call_at(self._deadline(), self._look)

    def close(self) -> None:
        """Stop watching."""
        self._timer.cancel()

    def _deadline(self) -> float:
        limit = self._limits.first_token_s if self._first else self._limits.gap_s
        return min(self._last + limit, self._started + self._limits.total_s)

    def _look(self) -> None:
        now = self._loop.time()
        deadline = self._deadline()
        if now < deadline:
            self._timer = self._loop.call_at(deadline, self._look)
            return
        if now >= self._started + self._limits.total_s:
            self.expired = f"the answer took longer than {self._limits.total_s:g} s"
        elif self._first:
            self.expired = f"no first token within {self._limits.first_token_s:g} s"
        else:
            self.expired = f"no further token within {self._limits.gap_s:g} s"
        self._scope.cancel()


class ModelCall:
    """Streams one turn of a run into its frames.

    Args:
        characters: The longest answer, thinking and arguments included; a longer one ends as ``length``.
    """

    def __init__(self, run: LiveRun, limits: TimeLimits, characters: int) -> None:
        self._run = run
        self._limits = limits
        self._characters = characters
        self._loop = asyncio.get_running_loop()

    async def stream(self, model: Model, request: ModelRequest) -> Outcome | None:
        """Call the model and tell what it says.

        Returns:
            How the run ends with this turn; ``None`` when the model called tools.

        Raises:
            ModelFault: The provider failed.
        """
        scope = anyio.CancelScope()
        watchdog = Watchdog(scope, self._limits)
        with scope:
            try:
                async with model.stream(request) as batches:
                    async for batch in batches:
                        watchdog.alive()
                        if not self._take(batch):
                            return Finished(FinishReason.LENGTH)
            finally:
                watchdog.close()
        if watchdog.expired is not None:
            return Failed(ErrorCode.LLM_TIMEOUT, watchdog.expired)
        turn = self._run.turn
        if turn.calls:
            return None
        return Finished(FinishReason.LENGTH if turn.finish == "length" else FinishReason.STOP)

    def _take(self, batch: Sequence[ModelEvent]) -> bool:
        """Tell one network read's events; false when the answer is over its bound, or the run is."""
        run = self._run
        if not run.open:
            return False
        turn = run.turn
        for event in batch:
            frames = turn.feed(event)
            if frames:
                run.tell(frames)
                if run.ttft_ms is None:
                    run.ttft_ms = round((self._loop.time() - run.started) * 1000)
        return turn.characters <= self._characters
