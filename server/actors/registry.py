"""The registry: at most one actor for each resource of this process, loaded when needed, unloaded when not.

It runs the actors, each wrapped on its own so that one that fails never ends its neighbours, and never
restarts one with
old state: the next newcomer loads from the store.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import anyio
import structlog

from protocol.codes import CloseCode, ErrorCode
from protocol.errors import Fault
from protocol.server_frames import Draining
from server.actors.base import Actor, Doubt, Finish, Gone
from server.actors.commands import CreateProject, CreateSession, ForConversation
from server.actors.conversation_actor import ConversationActor
from server.actors.kinds import Kind
from server.actors.project import ProjectActor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import TaskGroup

    from server.actors.base import Services
    from storage.records import ProjectSeed, SessionSeed

log = structlog.get_logger(__name__)

_SWEEP_S: Final = 1.0


class _Key(NamedTuple):
    """What names a resource: a project and a conversation may have the same id (CN4)."""

    kind: Kind
    id: str


def _key_of(actor: Actor) -> _Key:
    return _Key(actor.kind, actor.resource_id)


_LOADS: Final = {Kind.CONVERSATION: ConversationActor.load, Kind.PROJECT: ProjectActor.load}


class _Loading:
    """Somebody loads the resource; the others wait, then look again."""

    def __init__(self) -> None:
        self.done = anyio.Event()


class _Stopping:
    """The actor is on its way out; newcomers wait until it has written all, then load."""

    def __init__(self) -> None:
        self.done = anyio.Event()


_Entry: TypeAlias = "Actor | _Loading | _Stopping"


class Registry:
    """Finds or loads the actor of a resource.

    - ``_entries`` changes in one turn of the loop each time; a resource is loading, live or stopping, never
      two.
    - An actor that somebody uses (:meth:`use`) is not unloaded; unloading marks the entry before any await,
      so that it
      cannot lose a race with a client that comes back.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._entries: dict[_Key, _Entry] = {}
        self._group: TaskGroup | None = None
        self._draining = False
        self._exceeded = anyio.Event()
        services.budget.exceeded = self._note_exceeded
        services.store.runs.on_fenced = self._on_fenced

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Registry]:
        """Own the actors' tasks; at the end all actors are finished and gone."""
        async with anyio.create_task_group() as self._group:
            self._group.start_soon(self._sweep, name="registry sweep")
            try:
                yield self
            finally:
                with anyio.CancelScope(shield=True):
                    await self.finish_all(jitter_s=0.0)
                self._group.cancel_scope.cancel()

    @asynccontextmanager
    async def use(
        self, resource_id: str, owner: str, *, kind: Kind = Kind.CONVERSATION, create: bool = True
    ) -> AsyncIterator[Actor]:
        """The actor of a resource, kept in memory while the context is open.

        Args:
            resource_id: A well-formed id.
            owner: The principal's name; another's resource is answered like one that is not there.
            create: Whether an unknown id is a new, empty resource of the caller's.

        Raises:
            Fault: ``not_found``, ``use_project_socket``, ``storage_unavailable``, ``draining``.
        """
        actor = await self._find(_Key(kind, resource_id), owner, create=create)
        try:
            yield actor
        finally:
            actor.users -= 1
            if not actor.users:
                actor.idle_since = asyncio.get_running_loop().time()
                if not actor.saved and actor.idle:
                    self._stop(actor)

    async def call(
        self,
        resource_id: str,
        owner: str,
        command: Any,
        *,
        kind: Kind = Kind.CONVERSATION,
        create: bool = False,
    ) -> Any:
        """Have a resource's actor carry out a command; finds the next actor when one ends before it came to
        it.

        Raises:
            Fault: As :meth:`use`, what the command refuses, or ``overloaded``.
        """
        for _attempt in range(3):
            try:
                async with self.use(resource_id, owner, kind=kind, create=create) as actor:
                    return await actor.call(command)
            except Gone:
                continue
            except Fault as fault:
                if fault.code is not ErrorCode.USE_PROJECT_SOCKET:
                    raise
            row = await self._services.store.sessions.get(resource_id, owner)
            assert row.project_id is not None
            resource_id, kind, command = row.project_id, Kind.PROJECT, ForConversation(resource_id, command)
        raise Fault(ErrorCode.OVERLOADED, "the owner of this resource moves about", retry_after_ms=500)

    async def create(self, seed: SessionSeed) -> None:
        """Make a session's row; through its actor, or its project's, when a socket holds that.

        Raises:
            Fault: ``session_exists``, ``not_found``, ``storage_unavailable``.
        """
        key = _Key(Kind.CONVERSATION, seed.session_id)
        if seed.project_id is not None:
            key = _Key(Kind.PROJECT, seed.project_id)
        entry = self._entries.get(key)
        if isinstance(entry, Actor) and entry.owner == seed.owner:
            await self.call(key.id, seed.owner, CreateSession(seed), kind=key.kind, create=True)
        else:
            await self._services.store.sessions.create(seed)

    async def create_project(self, seed: ProjectSeed) -> None:
        """Make a project's row; through its actor when a socket has minted that id and holds it.

        Raises:
            Fault: ``project_exists``, ``storage_unavailable``.
        """
        key = _Key(Kind.PROJECT, seed.project_id)
        entry = self._entries.get(key)
        if isinstance(entry, Actor) and entry.owner == seed.owner:
            await self.call(key.id, seed.owner, CreateProject(seed), kind=key.kind, create=True)
        else:
            await self._services.store.projects.create(seed)

    @property
    def live(self) -> list[Actor]:
        """All live actors."""
        return [entry for entry in self._entries.values() if not isinstance(entry, _Loading | _Stopping)]

    @property
    def draining(self) -> bool:
        """Whether the server is about to go away."""
        return self._draining

    def drain(self, reconnect_after_ms: int) -> None:
        """Begin nothing new, and tell everybody to come back after this time or up to twice as long
        (CN10)."""
        self._draining = True
        for actor in self.live:
            actor.drain()
            actor.reconnect_after_ms = reconnect_after_ms + random.randrange(reconnect_after_ms)
            if actor.holding.holder is not None:
                actor.holding.holder.peer.tell(Draining(reconnect_after_ms=actor.reconnect_after_ms))

    async def wait_quiet(self, grace_s: float) -> bool:
        """Wait until nothing runs, at most for the grace; whether that came about."""
        with anyio.move_on_after(grace_s):
            while any(actor.busy for actor in self.live):  # noqa: ASYNC110 - many runs, no one event
                await anyio.sleep(0.02)
            return True
        return False

    async def finish_all(self, *, jitter_s: float) -> None:
        """End all actors, spread over ``jitter_s``; what still runs becomes interrupted. Returns when all
        have ended."""
        self._draining = True
        actors = self.live
        pause = jitter_s / len(actors) if actors else 0.0
        for actor in actors:
            self._stop(actor)
            if pause:
                await anyio.sleep(pause)
        while self._entries:
            entry = next(iter(self._entries.values()))
            if isinstance(entry, _Loading | _Stopping):
                await entry.done.wait()
            else:
                self._stop(entry)

    async def _find(self, key: _Key, owner: str, *, create: bool) -> Actor:
        while True:
            entry = self._entries.get(key)
            if isinstance(entry, _Loading | _Stopping):
                await entry.done.wait()
                continue
            if entry is not None and entry.ending:
                await entry.gone.wait()
                continue
            if entry is None:
                entry = await self._load(key, owner, create=create)
            elif entry.owner != owner or (not create and not entry.saved):
                raise Fault(ErrorCode.NOT_FOUND)
            entry.users += 1
            return entry

    async def _load(self, key: _Key, owner: str, *, create: bool) -> Actor:
        if self._draining:
            raise Fault(ErrorCode.DRAINING)
        loading = self._entries[key] = _Loading()
        try:
            actor = await _LOADS[key.kind](key.id, owner, self._services, create=create)
            if self._draining:
                raise Fault(ErrorCode.DRAINING)
            self._entries[key] = actor
        finally:
            if self._entries[key] is loading:
                del self._entries[key]
            loading.done.set()
        assert self._group is not None
        self._services.metrics.resources.labels(actor.kind).inc()
        self._group.start_soon(self._run, actor, name=f"{actor.kind} {key.id}")
        return actor

    async def _run(self, actor: Actor) -> None:
        """Run one actor to its end; its failure is its own."""
        try:
            await actor.run()
        except Exception:
            log.exception("actor failed", kind=actor.kind, resource=actor.resource_id)
        finally:
            key = _key_of(actor)
            entry = self._entries.get(key)
            if isinstance(entry, _Stopping):
                entry.done.set()
            if entry is actor or isinstance(entry, _Stopping):
                del self._entries[key]
            actor.gone.set()
            self._services.metrics.resources.labels(actor.kind).dec()

    def _stop(self, actor: Actor) -> None:
        """Mark the entry as stopping, in this turn, and have the actor end."""
        key = _key_of(actor)
        if self._entries.get(key) is not actor:
            return
        self._entries[key] = _Stopping()
        actor.mailbox.put(Finish(CloseCode.RESTARTING, "the server restarts"))

    async def _sweep(self) -> None:
        """Unload what was idle for long enough, and make room when all outboxes together hold too much."""
        while True:
            with anyio.move_on_after(_SWEEP_S):
                await self._exceeded.wait()
            if self._exceeded.is_set():
                self._exceeded = anyio.Event()
                self._make_room()
            before = asyncio.get_running_loop().time() - self._services.settings.outbox_retention_s
            for actor in self.live:
                if actor.idle_since < before and actor.idle:
                    self._stop(actor)
            self._services.metrics.outbox_bytes.set(self._services.budget.used_bytes)

    def _make_room(self) -> None:
        """Oldest idle first; then what a connection has been handed already."""
        budget = self._services.budget
        for actor in sorted(self.live, key=lambda actor: actor.idle_since):
            if budget.used_bytes <= budget.limit_bytes:
                break
            if actor.idle:
                actor.outbox.clear()
                self._stop(actor)
        for actor in sorted(self.live, key=lambda actor: -actor.outbox.size_bytes):
            if budget.used_bytes <= budget.limit_bytes * 9 // 10:
                break
            holder = actor.holding.holder
            if holder is None or holder.position == actor.outbox.latest:
                actor.outbox.clear()
        budget.relieved()

    def _note_exceeded(self) -> None:
        self._exceeded.set()

    def _on_fenced(self, run_id: str) -> None:
        for actor in self.live:
            if actor.owns_run(run_id):
                actor.mailbox.put(Doubt(run_id))
