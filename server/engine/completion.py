"""A completion's task: calls the model, feeds the turn, keeps the time limits and says how it ended.

Chunks take the short way: fed, told and in the outbox in the same turn of the loop. What changes state goes
to the
actor by ``post``. The task never writes to the store and never sends what confirms or ends something (ER5).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import anyio
import structlog
from msgspec import Struct

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import new_ulid
from protocol.server_frames import FinishReason
from server.engine.live_run import Failed, Finished
from server.llm.base import ModelRequest, TextDelta, UsageReport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.engine.live_run import LiveRun, Outcome
    from server.llm.base import ChatMessage, ModelEvent
    from server.llm.catalog import Catalog

log = structlog.get_logger(__name__)

_ANSWER_CHARACTERS: Final = 8_388_608
"""The longest answer, thinking and arguments included; a longer one ends as ``length``."""


class TimeLimits(Struct, frozen=True):
    """How long a model call may take, seconds (ST6)."""

    first_token_s: float
    gap_s: float
    total_s: float
    checkpoint_s: float


class Watchdog:
    """One timer for the three limits of a model call; cancels the scope when one is passed.

    Being alive is one assignment per network read: the timer looks at it when it fires, and sleeps on.
    """

    def __init__(self, scope: anyio.CancelScope, limits: TimeLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._scope = scope
        self._limits = limits
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


class Completion:
    """Runs one completion to its end.

    Args:
        run: The run; its gate may be closed by the actor at any moment, which also cancels this task.
        messages: The prompt.
        checkpoint: Told the run when its text should be written down; called at most once per
        ``checkpoint_s``.
        over: Told the run once, when this task has closed its gate.
    """

    def __init__(
        self,
        run: LiveRun,
        model: str | None,
        messages: tuple[ChatMessage, ...],
        *,
        catalog: Catalog,
        limits: TimeLimits,
        checkpoint: Callable[[LiveRun], None],
        over: Callable[[LiveRun], None],
    ) -> None:
        self._run = run
        self._model = model
        self._messages = messages
        self._catalog = catalog
        self._limits = limits
        self._checkpoint = checkpoint
        self._over = over
        self._loop = asyncio.get_running_loop()
        self._checkpoint_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Stream the answer; whatever happens, the run's gate is closed and its actor told."""
        run = self._run
        try:
            with anyio.CancelScope() as scope:
                run.scope = scope
                if not run.open:
                    return
                outcome = await self._attempt()
                run.scope = None
                if run.close(outcome):
                    self._over(run)
        finally:
            if self._checkpoint_timer is not None:
                self._checkpoint_timer.cancel()

    async def _attempt(self) -> Outcome:
        try:
            return await self._stream()
        except Fault as fault:
            return Failed(fault.code, fault.message, fault.retry_after_ms, fault.details)
        except Exception:
            correlation_id = new_ulid()
            log.exception("completion failed", run_id=self._run.run_id, correlation_id=correlation_id)
            return Failed(ErrorCode.INTERNAL, "internal error", None, {"correlation_id": correlation_id})

    async def _stream(self) -> Outcome:
        run = self._run
        model, name = self._catalog.resolve(self._model)
        run.model = name
        request = ModelRequest(model=name, messages=self._messages, reasoning=run.reasoning)
        scope = anyio.CancelScope()
        watchdog = Watchdog(scope, self._limits)
        with scope:
            try:
                async with model.stream(request) as batches:
                    async for batch in batches:
                        if not self._take(batch, watchdog):
                            return Finished(FinishReason.LENGTH)
            finally:
                watchdog.close()
        if watchdog.expired is not None:
            return Failed(ErrorCode.LLM_TIMEOUT, watchdog.expired)
        if run.turn.calls:
            names = sorted({call.name for call in run.turn.calls.values()})
            return Failed(
                ErrorCode.LLM_BAD_RESPONSE,
                "the model called a tool that was not offered",
                None,
                {"tools": names},
            )
        return Finished(FinishReason.LENGTH if run.turn.finish == "length" else FinishReason.STOP)

    def _take(self, batch: Sequence[ModelEvent], watchdog: Watchdog) -> bool:
        """Tell one network read's events; false when the answer is over its bound."""
        run = self._run
        turn = run.turn
        watchdog.alive()
        for event in batch:
            run.tell(turn.feed(event))
            if run.ttft_ms is None and not isinstance(event, UsageReport):
                run.ttft_ms = round((self._loop.time() - run.started) * 1000)
            if isinstance(event, TextDelta):
                run.answered = True
        if self._checkpoint_timer is None:
            self._checkpoint_timer = self._loop.call_later(self._limits.checkpoint_s, self._write_down)
        return turn.characters <= _ANSWER_CHARACTERS

    def _write_down(self) -> None:
        self._checkpoint_timer = None
        if self._run.open:
            self._checkpoint(self._run)
