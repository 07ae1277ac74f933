"""What every actor is: one task, one mailbox, one outbox, one holder.

An actor knows its connection as a :class:`~server.actors.attachment.Peer` and the store through its own
state; it
knows neither sockets nor the registry that runs it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import anyio
import structlog
from msgspec import UNSET

from protocol.codes import CloseCode, ErrorCode
from protocol.errors import Fault
from protocol.server_frames import Connected, Draining, Limits, ResumeKind, ServerFrame, error_frame
from server.actors.attachment import Attachment
from server.actors.holding import Holding, Newcomer
from server.actors.mailbox import Mailbox
from server.actors.outbox import Outbox
from server.actors.resume import Kept, plan_resume
from storage.errors import Fenced

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from anyio.abc import TaskGroup

    from protocol.server_frames import Snapshot
    from server.actors.attachment import Flusher, Peer
    from server.actors.holding import Held
    from server.actors.kinds import Kind
    from server.actors.outbox import Budget
    from server.actors.resume import Wish
    from server.agents import Agent
    from server.llm.catalog import Catalog
    from server.metrics import Metrics
    from server.settings import Settings
    from server.tools.registry import Toolbox
    from storage.store import Store

log = structlog.get_logger(__name__)


class Services(NamedTuple):
    """What all actors share."""

    settings: Settings
    store: Store
    catalog: Catalog
    metrics: Metrics
    flusher: Flusher
    budget: Budget
    toolbox: Toolbox
    agent_of: Callable[[str | None], Agent]
    """The agent of an ``actor_name``."""


class FromSocket(NamedTuple):
    """A frame of the holder; a project's has its address with it."""

    attachment: Attachment
    frame: Any


class Call(NamedTuple):
    """A command from REST; ``answer`` gets its result or its error."""

    command: Any
    answer: asyncio.Future[Any]


class Finish(NamedTuple):
    """End the actor: what runs becomes interrupted, then everybody is closed with ``code``."""

    code: CloseCode
    reason: str


class Doubt(NamedTuple):
    """A checkpoint of this run was refused: perhaps another process owns the resource now."""

    run_id: str


class Ending(Exception):
    """Raised by :meth:`Actor.handle` to end the actor."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Gone(Exception):
    """The actor ended before it came to a command; asking the registry again finds the next owner."""


class Actor(ABC):
    """Handles one message at a time.

    - The state of the resource changes only inside :meth:`handle` and in the ``emit`` of its completion: no
      locks.
    - :meth:`handle` never waits for a peer. It waits for the store, whose every call is bounded; slow work
      is a child
      task that reports by message.
    - When :meth:`run` returns, every child has ended, the holder is closed and all callers are answered.
    - Admission and detachment are synchronous, so that a connection comes and goes in one turn of the loop.
    """

    kind: ClassVar[Kind]

    def __init__(self, resource_id: str, owner: str, services: Services) -> None:
        settings = services.settings
        self.resource_id: Final = resource_id
        self.owner: Final = owner
        self.services: Final = services
        self.outbox: Final = Outbox(settings.outbox_bytes, services.budget)
        self.holding: Final = Holding(settings.probe_timeout_ms)
        self.mailbox: Final[Mailbox[Any]] = Mailbox(settings.mailbox_limit)
        self.users = 0
        """Connections and calls that use the actor now; counted by the registry."""
        self.idle_since = asyncio.get_running_loop().time()
        """Loop time of the last time when ``users`` fell to 0, seconds."""
        self._children: TaskGroup | None = None
        self._attachments = 0
        self._in_hand = False
        self.reconnect_after_ms: int | None = None
        """What newcomers are told once the server is about to go away."""
        self.ending = False
        """Whether the task is about to end: it handles nothing more, and lets nobody in."""
        self.gone: Final = anyio.Event()
        """Set when the task has ended; by the registry, which then has no entry of it."""

    # What a kind of resource has to say.

    @abstractmethod
    async def handle(self, message: Any) -> None:
        """Handle one message of the mailbox."""

    @abstractmethod
    def drain(self) -> None:
        """Begin nothing new: the server is about to go away (CN10)."""

    @abstractmethod
    def owns_run(self, run_id: str) -> bool:
        """Whether a run is running here."""

    @abstractmethod
    async def finish(self) -> None:
        """End what runs as interrupted, in the store and on the wire."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Build a snapshot from memory, in one step."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether something runs, ends, waits or is in doubt; then the actor is not unloaded."""

    @property
    @abstractmethod
    def untold(self) -> bool:
        """Whether there is history from before this epoch."""

    @property
    @abstractmethod
    def saved(self) -> bool:
        """Whether the resource is in the store; otherwise it is forgotten with its last connection."""

    @abstractmethod
    def release(self) -> None:
        """Let go of timers and upstream requests: the actor ends."""

    # The task.

    async def run(self) -> None:
        """Handle messages until the actor ends. A :class:`Fenced` ends it with 4012; any other error is a
        bug."""
        code, reason = CloseCode.INTERNAL, "internal error"
        try:
            async with anyio.create_task_group() as self._children:
                try:
                    code, reason = await self._serve()
                finally:
                    self.release()
                    self._children.cancel_scope.cancel()
        finally:
            self.ending = True
            self._children = None
            if self.holding.holder is not None:
                self.holding.holder.pump()  # what was told last goes out before the close
            self.holding.evict(code, reason)
            self.outbox.clear()
            for message in self.mailbox.drain():
                if isinstance(message, Call) and not message.answer.done():
                    message.answer.set_exception(Gone())

    async def _serve(self) -> tuple[CloseCode, str]:
        message: Any = None
        error: Exception = Fault(ErrorCode.INTERNAL)
        try:
            while True:
                message = await self.mailbox.get()
                self._in_hand = True
                if isinstance(message, Finish):
                    await self.finish()
                    return message.code, message.reason
                await self.handle(message)
                self._in_hand = False
        except Ending as ending:
            error = Gone()
            return ending.code, ending.reason
        except Fenced:
            error = Gone()
            self.services.metrics.fenced.inc()
            log.info("owner moved", kind=self.kind, resource=self.resource_id)
            return CloseCode.OWNER_MOVED, "the owner moved"
        finally:
            self.ending = True
            if isinstance(message, Call) and not message.answer.done():
                message.answer.set_exception(error)

    def emit(self, frame: ServerFrame) -> None:
        """Append a frame to the outbox; the holder's connection is flushed in this turn's end."""
        self.outbox.append(frame)
        holder = self.holding.holder
        if holder is not None:
            self.services.flusher.mark(holder)

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Start a child task."""
        assert self._children is not None
        self._children.start_soon(work, name=name)

    # For connections and callers; all but `admit` and `call` happen in one turn.

    async def admit(self, peer: Peer, wish: Wish) -> Attachment | Held:
        """Let a connection in, or say who holds the resource (CN1 to CN3)."""
        attach = partial(self._attach, peer, wish)
        return await self.holding.admit(Newcomer(peer, wish.client_id, wish.takeover, attach))

    def detach(self, attachment: Attachment) -> None:
        """A connection is over; late or repeated calls do nothing (CN2)."""
        self.holding.release(attachment)

    def submit(self, attachment: Attachment, frame: Any) -> None:
        """Take a frame of the holder; one of a former holder is dropped, one too many is refused at once."""
        if attachment.detached:
            return
        if not self.mailbox.offer(FromSocket(attachment, frame)):
            self.refuse(
                attachment,
                frame,
                Fault(ErrorCode.RATE_LIMITED, "too much to do for this resource", retry_after_ms=1000),
            )

    def refuse(self, attachment: Attachment, frame: Any, fault: Fault) -> None:
        """Tell the sender of a frame that it was not taken."""
        attachment.peer.tell(error_frame(fault, request_id=getattr(frame, "request_id", UNSET)))

    def acknowledge(self, attachment: Attachment, seq: int) -> None:
        """The client has everything up to ``seq``; nobody can have more than was handed over."""
        if not attachment.detached:
            self.outbox.acknowledge(min(seq, attachment.position))

    async def call(self, command: Any) -> Any:
        """Have a command carried out; the work goes on when the caller is cancelled.

        Raises:
            Fault: What the command refuses, or ``overloaded``.
            Gone: The actor ended first.
        """
        if self.ending:
            raise Gone
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_look_at)
        if not self.mailbox.offer(Call(command, answer)):
            raise Fault(ErrorCode.OVERLOADED, "too much to do for this resource", retry_after_ms=1000)
        return await asyncio.shield(answer)

    @property
    def idle(self) -> bool:
        """Whether nobody and nothing needs the actor in memory."""
        waiting = self._in_hand or self.mailbox or self.holding.holder or self.holding.contended
        return not (self.users or waiting or self.busy)

    def _attach(self, peer: Peer, wish: Wish) -> Attachment:
        outbox, settings = self.outbox, self.services.settings
        handed = self.holding.handed
        kept = Kept(outbox.epoch, outbox.first, outbox.latest, outbox.acked, handed, self.untold)
        plan = plan_resume(wish, kept)
        self._attachments += 1
        attachment = Attachment(
            self._attachments,
            peer,
            outbox,
            plan.position,
            client_id=wish.client_id,
            slow_bytes=settings.slow_reader_bytes,
            flusher=self.services.flusher,
        )
        peer.tell(
            Connected(
                resource=self.resource_id,
                epoch=outbox.epoch,
                seq=outbox.latest,
                from_seq=plan.position + 1,
                attachment=attachment.number,
                resume=plan.kind,
                replayed=outbox.latest - plan.position,
                heartbeat_ms=settings.heartbeat_ms,
                limits=_limits(settings),
            )
        )
        if plan.kind is ResumeKind.SNAPSHOT:
            self.services.metrics.snapshots.inc()
            peer.tell(self.snapshot())
        elif plan.kind is ResumeKind.REPLAYED:
            self.services.metrics.replays.inc()
        if self.reconnect_after_ms is not None:
            peer.tell(Draining(reconnect_after_ms=self.reconnect_after_ms))
        peer.attached(attachment)
        self.services.flusher.mark(attachment)
        return attachment


def _look_at(answer: asyncio.Future[Any]) -> None:
    """A caller that hung up takes no error; looking at it keeps the loop from logging that."""
    if not answer.cancelled():
        answer.exception()


def _limits(settings: Settings) -> Limits:
    return Limits(
        max_frame_bytes=settings.max_frame_bytes,
        rate_burst=settings.rate_burst,
        rate_per_s=settings.rate_per_s,
        queue_limit=settings.queue_limit,
        llm_first_token_timeout_ms=settings.llm_first_token_timeout_ms,
        llm_gap_timeout_ms=settings.llm_gap_timeout_ms,
        slow_reader_bytes=settings.slow_reader_bytes,
        outbox_bytes=settings.outbox_bytes,
    )
