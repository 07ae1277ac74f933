"""A conversation's completions: one that runs, some that wait, and how each ends (ST1, ST3, ST5, ST6, TL5).

A state machine over one slot. The slot is vacant, or holds a run whose gate is open, or one whose gate is
closed and
whose end is not yet committed; the end is tried again until the store takes it, and only then told (ER5).
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog
from msgspec.structs import replace

from protocol.client_frames import OnBusy, OnPending, StopScope
from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import new_run_id, new_ulid, utc_now
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
from server.actors.planning import plan_completion
from server.actors.progress import Asked, ProgressDesk
from server.actors.requests import check_same
from server.engine.completion import Completion
from server.engine.live_run import Failed, Interrupted, LiveRun, Stopped
from server.engine.prompt import build_prompt
from server.engine.recorder import build_end, closing_frames, stop_keys
from storage.errors import DuplicateRequest, Refused, StorageUnavailable
from storage.records import NewRun, RequestKey, RunEnd, TurnWrite

if TYPE_CHECKING:
    from server.actors.calls import Call, Calls
    from server.actors.host import Host
    from server.actors.ledger import Ledger
    from server.agents import Agent
    from server.engine.recorder import Cost
    from server.llm.base import ChatMessage

log = structlog.get_logger(__name__)

_FORGOTTEN: Final = (RunStatus.FAILED, RunStatus.INTERRUPTED)
"""What failed is not remembered (ST4)."""
_CANCELLED: Final = "cancelled: the run was ended before this call was carried out"


class Wanted(NamedTuple):
    """A completion that a client asked for."""

    key: RequestKey
    model: str | None
    reasoning: bool
    on_pending: OnPending

    @property
    def request_id(self) -> str:
        """The client's request."""
        return self.key.request_id


class Over(NamedTuple):
    """Posted by the completion's task: it has closed its run's gate."""

    run: LiveRun


class TryAgain(NamedTuple):
    """Posted by a timer: what the store did not take may be tried again."""


class Completions:
    """The completions of one conversation.

    - Attributes change only in the actor's task.
    - ``running`` is the run in the slot, its gate open or closed; ``None`` when the slot is vacant.
    - ``queued`` has at most ``queue_limit`` entries, and one more for a moment when one interrupts.
    """

    def __init__(self, host: Host, ledger: Ledger, calls: Calls) -> None:
        self._host = host
        self._ledger = ledger
        self._calls = calls
        self._retries = 0
        self._retry_timer: asyncio.TimerHandle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._agent: Agent | None = None
        self._key: RequestKey | None = None
        self._cancelled: list[Call] | None = None
        """The calls that the end in the slot settles, from its first attempt on."""
        self._desk = ProgressDesk(host, ledger, calls, self._present_agent, self._prompt)
        self.running: LiveRun | None = None
        self.queued: deque[Wanted] = deque()
        self.draining = False
        """Whether new completions are refused; set by the actor when the server is about to go away."""
        self._mind_expiry()

    @property
    def idle(self) -> bool:
        """Whether nothing runs, ends or waits."""
        return self.running is None and not self.queued

    def known(self, key: RequestKey) -> ServerFrame | None:
        """The present state of a request that runs or waits, for a repeat of it.

        Raises:
            Fault: ``request_id_conflict``: the id is used by a completion that runs or waits.
        """
        run = self.running
        if run is not None and self._key is not None and run.request_id == key.request_id:
            check_same(self._key, key)
            return CompletionInit(
                request_id=run.request_id,
                repeated=True,
                run_id=run.run_id,
                model=run.model,
                continues_run_id=run.continues_run_id,
            )
        for position, wanted in enumerate(self.queued, 1):
            if wanted.request_id == key.request_id:
                check_same(wanted.key, key)
                return CompletionQueued(request_id=key.request_id, repeated=True, position=position)
        return None

    async def request(self, wanted: Wanted, on_busy: OnBusy) -> None:
        """Start a completion, or queue it, or refuse.

        Raises:
            Fault: ``completion_busy``, ``queue_full``, ``draining``, ``tools_pending``,
            ``storage_unavailable``.
            DuplicateRequest: The store remembers the request.
        """
        if self.draining:
            raise Fault(ErrorCode.DRAINING, "the server is about to restart")
        run = self.running
        if run is None:
            await self._start(wanted)
            return
        await self.refuse_remembered(wanted.key)
        if on_busy is OnBusy.REJECT:
            raise Fault(ErrorCode.COMPLETION_BUSY, "a completion is running")
        if len(self.queued) >= self._host.services.settings.queue_limit:
            raise Fault(ErrorCode.QUEUE_FULL, f"{len(self.queued)} completions are waiting already")
        if on_busy is OnBusy.INTERRUPT and run.close(Stopped(wanted.request_id, None)):
            self.queued.appendleft(wanted)
            await self.settle()
        else:
            self.queued.append(wanted)
        if wanted in self.queued:
            position = self.queued.index(wanted) + 1
            self._host.emit(CompletionQueued(request_id=wanted.request_id, position=position))

    async def stop(self, key: RequestKey, target: str | None, scope: StopScope) -> None:
        """Stop the running completion, or a queued one, or all (ST3).

        Raises:
            Fault: ``nothing_to_stop``, ``request_id_conflict``.
            DuplicateRequest: The store remembers the stop.
        """
        run = self.running
        if run is not None and isinstance(run.outcome, Stopped) and run.outcome.key is not None:
            pending = run.outcome.key
            if pending.request_id == key.request_id:
                check_same(pending, key)
                return  # it is being done, and answered by its end
        await self.refuse_remembered(key)
        chosen = [wanted for wanted in self.queued if scope is StopScope.ALL or wanted.request_id == target]
        if run is not None and (target is None or target == run.request_id or scope is StopScope.ALL):
            queued = tuple(replace(wanted.key, of_run=False) for wanted in chosen)
            if run.close(Stopped(key.request_id, key, queued)):
                for wanted in chosen:
                    self.queued.remove(wanted)
                await self.settle()
                return
        if not chosen:
            raise Fault(ErrorCode.NOTHING_TO_STOP, "no such completion is running or queued")
        await self._stop_queued(chosen, key)

    async def over(self, run: LiveRun) -> None:
        """The completion's task has closed its gate."""
        if run is self.running:
            await self.settle()

    async def progress(self, asked: Asked) -> None:
        """The completion's task asks for something to be committed."""
        self._desk.take(asked)
        await self.settle()

    async def settle(self) -> None:
        """Do what is due, as far as the store takes it; the rest is tried again later."""
        try:
            await self.catch_up()
            await self._start_next()
        except StorageUnavailable:
            self.retry_later()
        else:
            self._retries = 0

    async def catch_up(self) -> None:
        """Find out what is committed, then commit what is due: before anything else is written or answered.

        Raises:
            Fenced, StorageUnavailable.
        """
        if self._ledger.stale:
            await self._ledger.refresh()
            self._calls.adopt()
        await self._desk.work()
        if self.running is not None and not self.running.open:
            await self._end(self.running)
        await self._calls.expire(utc_now())
        self._mind_expiry()

    async def try_again(self) -> None:
        """The store may be back, or the time of a call may be over."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        await self.settle()

    async def interrupt(self) -> None:
        """End what runs and what waits as interrupted: the server goes away (CN10)."""
        self.drain()
        if self.running is not None:
            self.running.close(Interrupted())
        await self.settle()

    def drain(self) -> None:
        """Begin nothing new; what waits is over."""
        self.draining = True
        while self.queued:
            self._tell_queued_end(self.queued.popleft().request_id, FinishReason.INTERRUPTED)

    def abandon(self) -> None:
        """The session was deleted: what runs and what waits is over, with nothing left to write it to."""
        self.drain()
        run = self.running
        if run is not None:
            run.close(Interrupted())
            self.running = self._key = None
            self._host.services.metrics.running.dec()
            self._host.emit(
                CompletionDone(
                    request_id=run.request_id, run_id=run.run_id, finish_reason=FinishReason.INTERRUPTED
                )
            )

    def retry_later(self) -> None:
        """Try again after a while: a quarter of a second at first, then up to two."""
        if self._retry_timer is None:
            delay = min(2.0, 0.25 * 2 ** min(self._retries, 3))
            self._retries += 1
            loop = asyncio.get_running_loop()
            self._retry_timer = loop.call_later(delay, self._host.post, TryAgain())

    def close(self) -> None:
        """The actor ends: no timer fires and no upstream request goes on after this."""
        for timer in (self._retry_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()
        if self.running is not None:
            self.running.close(Interrupted())

    def _mind_expiry(self) -> None:
        """Look again when the next of the calls that wait expires."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        expiry = self._calls.expiry()
        if expiry is not None:
            delay = max(0.0, (expiry - utc_now()).total_seconds())
            loop = asyncio.get_running_loop()
            self._expiry_timer = loop.call_later(delay, self._host.post, TryAgain())

    def stopped_while_queued(self, request_ids: list[str], stop_request_id: str) -> None:
        """A stop whose outcome was unknown was committed after all: carry it out."""
        for wanted in [wanted for wanted in self.queued if wanted.request_id in request_ids]:
            self.queued.remove(wanted)
            self._tell_queued_stop(wanted.request_id, stop_request_id)

    async def refuse_remembered(self, key: RequestKey) -> None:
        """Raise DuplicateRequest for a request that the store remembers and that did not fail.

        While the store is away a request counts as new: a stop must not wait for it.
        """
        try:
            record = await self._host.services.store.sessions.find_request(key.resource_id, key.request_id)
        except StorageUnavailable:
            return
        if record is not None and record.run_status not in _FORGOTTEN:
            raise DuplicateRequest(record)

    async def _stop_queued(self, chosen: list[Wanted], key: RequestKey) -> None:
        """Remember the stop and what it ended, so that neither is done again; then tell it."""
        stop = replace(key, outcome={"queued": [wanted.request_id for wanted in chosen]})
        ended = (replace(wanted.key, outcome={"stop_request_id": key.request_id}) for wanted in chosen)
        write = TurnWrite(requests=(stop, *ended))
        await self._ledger.commit(lambda _sequence: write)
        for wanted in chosen:
            self.queued.remove(wanted)
            self._tell_queued_stop(wanted.request_id, key.request_id)

    async def _start(self, wanted: Wanted) -> None:
        await self._settle_calls(wanted)
        await self._calls.know_ids()
        services, ledger = self._host.services, self._ledger
        agent = self._agent = services.agent_of(ledger.actor_name)
        plan = plan_completion(
            self._host,
            agent,
            self._calls,
            model=wanted.model,
            prompt=self._prompt(),
            on_pending=wanted.on_pending,
        )
        run = LiveRun(
            wanted.request_id,
            new_run_id(),
            _model_name(self._host, plan.model),
            reasoning=wanted.reasoning,
            started=asyncio.get_running_loop().time(),
            emit=self._host.emit,
            continues_run_id=self._continued(),
            taken_ids=self._calls.ids,
        )
        new_run = NewRun(
            run_id=run.run_id,
            session_id=ledger.session_id,
            request_id=wanted.request_id,
            query=ledger.last_question(),
            agent_flow=AgentFlow.CHAT,
            model=run.model,
            created_at=run.started_at,
            continues_run_id=run.continues_run_id,
        )
        await ledger.start(wanted.key, new_run)
        self.running, self._key = run, wanted.key
        services.metrics.running.inc()
        self._host.emit(
            CompletionInit(
                request_id=run.request_id,
                run_id=run.run_id,
                model=run.model,
                continues_run_id=run.continues_run_id,
            )
        )
        completion = Completion(
            run,
            plan,
            catalog=services.catalog,
            toolbox=services.toolbox,
            ask=self._desk.ask,
            checkpoint=self._checkpoint,
            over=lambda run: self._host.post(Over(run)),
        )
        self._host.spawn(completion.run, f"completion {run.run_id}")

    def _continued(self) -> str | None:
        """The run that the next one goes on with: it waited for a person, or its calls were accepted."""
        last = self._ledger.last_run
        if last is not None and last.status is RunStatus.AWAITING_INPUT:
            return last.run_id
        return next((call.run_id for call in self._calls.accepted), None)

    async def _settle_calls(self, wanted: Wanted) -> None:
        """What to do with calls that nobody has decided (TL5).

        Raises:
            Fault: ``tools_pending``.
            DuplicateRequest: A repeat settles nothing.
        """
        waiting = self._calls.waiting
        if not waiting:
            return
        await self.refuse_remembered(wanted.key)
        match wanted.on_pending:
            case OnPending.REJECT:
                raise Fault(
                    ErrorCode.TOOLS_PENDING,
                    f"{len(waiting)} tool calls wait for a person",
                    details={"tool_call_ids": [call.id for call in waiting]},
                )
            case OnPending.DECLINE:
                await self._calls.decline(self._ledger.owner, "declined: the user went on without deciding")
            case OnPending.RUN_DECIDED:
                pass

    def _present_agent(self) -> Agent:
        assert self._agent is not None
        return self._agent

    def _prompt(self) -> tuple[ChatMessage, ...]:
        agent = self._present_agent()
        limit = self._host.services.settings.context_messages
        return build_prompt(list(self._ledger.messages)[-limit:], agent.system_prompt)

    def _checkpoint(self, run: LiveRun) -> None:
        turn = run.turn
        self._host.services.store.runs.checkpoint(
            run.run_id, self._ledger.fence, turn.message_id, turn.text, turn.thinking
        )

    async def _end(self, run: LiveRun) -> None:
        """Commit the end of the run in the slot and tell it."""
        self._desk.find_turn(run)
        if self._cancelled is None:
            self._cancelled = self._settled_by_end(run)
        cancelled = self._cancelled
        settled = self._calls.write(cancelled, 0)
        cost: Cost = partial(self._host.services.catalog.cost, run.model)
        try:
            end = await self._ledger.finish(
                lambda sequence: build_end(run, sequence, cost, settled.tools, settled.messages),
                lambda end: stop_keys(run, end),
            )
        except Refused:
            if run.unstorable:
                raise
            log.exception("the store refused a run's end", run_id=run.run_id)
            run.unstorable = True
            run.outcome = Failed(ErrorCode.INTERNAL, "internal error", None, {"correlation_id": new_ulid()})
            await self._end(run)
            return
        self.running = self._key = self._cancelled = None
        self._calls.moved(cancelled, TurnWrite(messages=end.messages), run.request_id)
        for frame in closing_frames(run, end):
            self._host.emit(frame)
        if isinstance(run.outcome, Stopped):
            for key in run.outcome.queued:
                self._tell_queued_stop(key.request_id, run.outcome.stop_request_id)
        self._count(run, end)

    def _settled_by_end(self, run: LiveRun) -> list[Call]:
        """The calls that are settled with a run's end, as they are then; others go on waiting for a
        person."""
        match run.outcome:
            case Stopped():
                return self._calls.cancelled(run.run_id, _CANCELLED, accepted=True)
            case Failed():
                return self._calls.cancelled(run.run_id, _CANCELLED, accepted=False)
            case Interrupted():
                return self._calls.lost()
            case _:
                return []

    async def _start_next(self) -> None:
        while self.queued and self.running is None and not self.draining:
            wanted = self.queued[0]
            try:
                await self._start(wanted)
            except Fault as fault:
                if isinstance(fault, StorageUnavailable):
                    raise  # it stays at the head
                self._host.emit(error_frame(fault, request_id=wanted.request_id))
                self._tell_queued_end(wanted.request_id, FinishReason.ERROR)
            except DuplicateRequest:
                log.warning("a queued request had been carried out", session_id=self._ledger.session_id)
                self._tell_queued_end(wanted.request_id, FinishReason.INTERRUPTED)
            self.queued.popleft()

    def _count(self, run: LiveRun, end: RunEnd) -> None:
        metrics = self._host.services.metrics
        metrics.running.dec()
        metrics.runs.labels(end.status.value).inc()
        metrics.run_seconds.observe(max(0.0, (end.ended_at - run.started_at).total_seconds()))
        if run.ttft_ms is not None:
            metrics.first_token_seconds.observe(run.ttft_ms / 1000)

    def _tell_queued_stop(self, request_id: str, stop_request_id: str) -> None:
        self._host.emit(
            CompletionStopped(request_id=request_id, run_id=None, stop_request_id=stop_request_id)
        )
        self._tell_queued_end(request_id, FinishReason.STOPPED)

    def _tell_queued_end(self, request_id: str, reason: FinishReason) -> None:
        self._host.emit(CompletionDone(request_id=request_id, run_id=None, finish_reason=reason))


def _model_name(host: Host, wanted: str | None) -> str:
    """The name to report; that of an unknown model too, whose run is about to fail (ST6)."""
    catalog = host.services.catalog
    try:
        return catalog.resolve(wanted)[1]
    except Fault:
        return wanted or catalog.default_model
