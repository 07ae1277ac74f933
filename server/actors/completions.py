"""A conversation's completions: one that runs, some that wait, and how each ends (ST1, ST3, ST5, ST6).

A state machine over one slot. The slot is vacant, or holds a run whose gate is open, or one whose gate is
closed and whose
end is not yet committed; the end is tried again until the store takes it, and only then told (ER5).
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog
from msgspec.structs import replace

from protocol.client_frames import OnBusy, StopScope
from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import new_run_id
from protocol.run import AgentFlow, RunStatus
from protocol.server_frames import (
    CompletionDone,
    CompletionInit,
    CompletionQueued,
    CompletionStopped,
    FinishReason,
    ServerFrame,
    error_frame,
)
from server.engine.completion import Completion, TimeLimits
from server.engine.live_run import Interrupted, LiveRun, Stopped
from server.engine.prompt import build_prompt
from server.engine.recorder import build_end, closing_frames, stop_key
from storage.errors import DuplicateRequest, StorageUnavailable
from storage.records import NewRun, RequestKey, RunEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from server.actors.ledger import Ledger
    from server.engine.recorder import Cost
    from server.llm.catalog import Catalog
    from server.metrics import Metrics
    from server.settings import Settings
    from storage.store import Store

log = structlog.get_logger(__name__)

_FORGOTTEN: Final = (RunStatus.FAILED, RunStatus.INTERRUPTED)
"""What failed is not remembered (ST4)."""


class Wanted(NamedTuple):
    """A completion that a client asked for."""

    request_id: str
    key: RequestKey
    model: str | None
    reasoning: bool


class Over(NamedTuple):
    """Posted by the completion's task: it has closed its run's gate."""

    run: LiveRun


class TryAgain(NamedTuple):
    """Posted by a timer: what the store did not take may be tried again."""


class Host(NamedTuple):
    """What completions need of their actor."""

    store: Store
    catalog: Catalog
    settings: Settings
    metrics: Metrics
    emit: Callable[[ServerFrame], None]
    """Appends a frame to the outbox, in the same turn."""
    post: Callable[[Any], None]
    """Puts a message of one's own into the actor's mailbox."""
    spawn: Callable[[Callable[[], Coroutine[Any, Any, None]], str], None]
    """Starts a child task of the actor, under a name."""


class Completions:
    """The completions of one conversation.

    - Attributes change only in the actor's task.
    - ``running`` is the run in the slot, its gate open or closed; ``None`` when the slot is vacant.
    - ``queued`` has at most ``queue_limit`` entries; one more is ``queue_full``.
    """

    def __init__(self, host: Host, ledger: Ledger) -> None:
        self._host = host
        self._ledger = ledger
        self._retries = 0
        self._retry_timer: asyncio.TimerHandle | None = None
        self.running: LiveRun | None = None
        self.queued: deque[Wanted] = deque()
        self._key: RequestKey | None = None
        self.draining = False
        """Whether new completions are refused; set by the actor when the server is about to go away."""

    @property
    def idle(self) -> bool:
        """Whether nothing runs, ends or waits."""
        return self.running is None and not self.queued

    async def request(self, wanted: Wanted, on_busy: OnBusy) -> ServerFrame | None:
        """Start a completion, or queue it, or refuse.

        Returns:
            The answer to a repeat (ST4), unsequenced; otherwise nothing, for the sequence answers.

        Raises:
            Fault: ``completion_busy``, ``queue_full``, ``request_id_conflict``, ``draining``,
            ``storage_unavailable``.
            DuplicateRequest: The store remembers the request.
        """
        repeated = self._known(wanted)
        if repeated is not None:
            return repeated
        if self.draining:
            raise Fault(ErrorCode.DRAINING, "the server is about to restart")
        if self.running is None:
            await self._start(wanted)
            return None
        await self._refuse_known(wanted)
        match on_busy:
            case OnBusy.REJECT:
                raise Fault(ErrorCode.COMPLETION_BUSY, "a completion is running")
            case OnBusy.ENQUEUE:
                if len(self.queued) >= self._host.settings.queue_limit:
                    raise Fault(ErrorCode.QUEUE_FULL, f"{len(self.queued)} completions are waiting already")
                self.queued.append(wanted)
                self._host.emit(CompletionQueued(request_id=wanted.request_id, position=len(self.queued)))
            case OnBusy.INTERRUPT:
                self.queued.appendleft(wanted)
                self.running.close(Stopped(wanted.request_id, None))
                await self._end()
        return None

    async def stop(self, stop_key: RequestKey, target: str | None, scope: StopScope) -> None:
        """Stop the running completion, or a queued one, or all (ST3).

        Raises:
            Fault: ``nothing_to_stop``.
            DuplicateRequest: The store remembers the stop.
        """
        run = self.running
        if run is None or target != run.request_id:
            # Without a name for what it means, a repeat of a stop that was lost on the way could hit the
            # next.
            await self._refuse_remembered(stop_key)
        chosen = [wanted for wanted in self.queued if scope is StopScope.ALL or wanted.request_id == target]
        if run is not None and (target is None or target == run.request_id or scope is StopScope.ALL):
            ended = run.close(Stopped(stop_key.request_id, stop_key))
        else:
            ended = False
        if not ended and not chosen:
            raise Fault(ErrorCode.NOTHING_TO_STOP, "no such completion is running or queued")
        if not ended:
            await self._ledger.remember(replace(stop_key, outcome={"request_id": chosen[0].request_id}))
        for wanted in chosen:
            self.queued.remove(wanted)
            self._tell_stopped(wanted, stop_key.request_id)
        if ended:
            await self._end()

    async def over(self, run: LiveRun) -> None:
        """The completion's task has closed its gate."""
        if run is self.running:
            await self._end()

    async def try_again(self) -> None:
        """The store may be back."""
        self._retry_timer = None
        if self.running is not None and not self.running.open:
            await self._end()
            return
        try:
            await self._ledger.refresh()
        except StorageUnavailable:
            self.retry_later()

    async def interrupt(self) -> None:
        """End what runs and what waits as interrupted: the server goes away (CN10)."""
        while self.queued:
            self._tell_queued_end(self.queued.popleft(), FinishReason.INTERRUPTED)
        if self.running is not None:
            self.running.close(Interrupted())
            await self._end()

    def retry_later(self) -> None:
        """Try again after a while: half a second at first, then up to two."""
        if self._retry_timer is None:
            delay = min(2.0, 0.25 * 2 ** min(self._retries, 3))
            self._retries += 1
            loop = asyncio.get_running_loop()
            self._retry_timer = loop.call_later(delay, self._host.post, TryAgain())

    def close(self) -> None:
        """The actor ends: no timer fires and no upstream request goes on after this."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        if self.running is not None:
            self.running.close(Interrupted())

    def _known(self, wanted: Wanted) -> ServerFrame | None:
        """The present state of a request that runs or waits, for a repeat of it."""
        if self.running is not None and self.running.request_id == wanted.request_id:
            _same_body(self._key, wanted.key)
            return CompletionInit(
                request_id=wanted.request_id,
                repeated=True,
                run_id=self.running.run_id,
                model=self.running.model,
                continues_run_id=None,
            )
        for position, queued in enumerate(self.queued, 1):
            if queued.request_id == wanted.request_id:
                _same_body(queued.key, wanted.key)
                return CompletionQueued(request_id=wanted.request_id, repeated=True, position=position)
        return None

    async def _refuse_known(self, wanted: Wanted) -> None:
        """Raise for a request that the store remembers, and that did not fail."""
        record = await self._host.store.sessions.find_request(wanted.key.resource_id, wanted.request_id)
        if record is not None and record.run_status not in _FORGOTTEN:
            raise DuplicateRequest(record)

    async def _refuse_remembered(self, key: RequestKey) -> None:
        """Raise for a stop that was carried out before; while the store is away, a stop counts as new."""
        try:
            record = await self._host.store.sessions.find_request(key.resource_id, key.request_id)
        except StorageUnavailable:
            return
        if record is not None:
            raise DuplicateRequest(record)

    async def _start(self, wanted: Wanted) -> None:
        host, ledger = self._host, self._ledger
        loop = asyncio.get_running_loop()
        run = LiveRun(
            wanted.request_id,
            new_run_id(),
            _model_name(host.catalog, wanted.model),
            reasoning=wanted.reasoning,
            started=loop.time(),
            emit=host.emit,
        )
        new_run = NewRun(
            run_id=run.run_id,
            session_id=ledger.session_id,
            request_id=wanted.request_id,
            query=ledger.last_question(),
            agent_flow=AgentFlow.CHAT,
            model=run.model,
            created_at=run.started_at,
        )
        await ledger.start(wanted.key, new_run)
        self.running, self._key = run, wanted.key
        host.emit(
            CompletionInit(
                request_id=run.request_id, run_id=run.run_id, model=run.model, continues_run_id=None
            )
        )
        completion = Completion(
            run,
            wanted.model,
            build_prompt(list(ledger.messages), host.settings.system_prompt),
            catalog=host.catalog,
            limits=_time_limits(host.settings),
            checkpoint=self._checkpoint,
            over=self._post_over,
        )
        host.spawn(completion.run, f"completion {run.run_id}")

    def _post_over(self, run: LiveRun) -> None:
        self._host.post(Over(run))

    def _checkpoint(self, run: LiveRun) -> None:
        turn = run.turn
        self._host.store.runs.checkpoint(
            run.run_id, self._ledger.fence, turn.message_id, turn.text, turn.thinking
        )

    async def _end(self) -> None:
        """Commit the end of the run in the slot and tell it; then start what waits."""
        run = self.running
        if run is None or run.outcome is None:
            return
        cost: Cost = partial(self._host.catalog.cost, run.model)
        try:
            end = await self._ledger.finish(
                lambda sequence: build_end(run, sequence, cost), lambda end: stop_key(run, end)
            )
        except StorageUnavailable:
            self.retry_later()
            return
        self._retries = 0
        self.running = self._key = None
        for frame in closing_frames(run, end):
            self._host.emit(frame)
        self._count(run, end)
        await self._start_next()

    async def _start_next(self) -> None:
        while self.queued and self.running is None:
            wanted = self.queued.popleft()
            try:
                await self._start(wanted)
            except StorageUnavailable as fault:
                if self._ledger.stale:
                    self.retry_later()
                self._host.emit(error_frame(fault, request_id=wanted.request_id))
                self._tell_queued_end(wanted, FinishReason.ERROR)
            except DuplicateRequest:
                log.warning("a queued request was carried out elsewhere", session_id=self._ledger.session_id)
                self._tell_queued_end(wanted, FinishReason.STOPPED)

    def _count(self, run: LiveRun, end: RunEnd) -> None:
        metrics = self._host.metrics
        metrics.runs.labels(end.status.value).inc()
        metrics.run_seconds.observe(max(0.0, (end.ended_at - run.started_at).total_seconds()))
        if run.ttft_ms is not None:
            metrics.first_token_seconds.observe(run.ttft_ms / 1000)

    def _tell_stopped(self, wanted: Wanted, stop_request_id: str) -> None:
        self._host.emit(
            CompletionStopped(
                request_id=wanted.request_id, run_id=None, partial_text="", stop_request_id=stop_request_id
            )
        )
        self._tell_queued_end(wanted, FinishReason.STOPPED)

    def _tell_queued_end(self, wanted: Wanted, reason: FinishReason) -> None:
        self._host.emit(
            CompletionDone(
                request_id=wanted.request_id,
                run_id=None,
                finish_reason=reason,
            )
        )


def _model_name(catalog: Catalog, wanted: str | None) -> str:
    """The name to report; that of an unknown model too, whose run is about to fail (ST6)."""
    try:
        return catalog.resolve(wanted)[1]
    except Fault:
        return wanted or catalog.default_model


def _same_body(known: RequestKey | None, key: RequestKey) -> None:
    if known is None or known.body_sha256 != key.body_sha256 or known.kind != key.kind:
        raise Fault(ErrorCode.REQUEST_ID_CONFLICT, "this request_id was used for another request")


def _time_limits(settings: Settings) -> TimeLimits:
    return TimeLimits(
        first_token_s=settings.llm_first_token_timeout_ms / 1000,
        gap_s=settings.llm_gap_timeout_ms / 1000,
        total_s=settings.llm_total_timeout_ms / 1000,
        checkpoint_s=settings.checkpoint_ms / 4000,
    )
