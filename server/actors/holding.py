"""Who holds a resource: at most one connection (CN1 to CN3).

The holding decides without waiting, except for one thing: a newcomer that has no right to replace the holder
makes the
server ask the holder for a sign of life, once for all who wait. It does not know what is held.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import anyio

from protocol.codes import CloseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.actors.attachment import Attachment, Peer


class Newcomer(NamedTuple):
    """A connection that asks to be let in."""

    peer: Peer
    client_id: str | None
    takeover: bool
    attach: Callable[[], Attachment]
    """Makes the attachment; called in the turn of the admission, when the resource is free."""


class Held(NamedTuple):
    """The refusal: somebody who is alive holds the resource."""

    since_ms: int


class Holding:
    """The holder of one resource, and those who wait for it.

    - ``holder`` is changed by :meth:`admit`, :meth:`release` and :meth:`evict` alone, each in one turn of
      the loop.
    - A release names the attachment that it releases: a late one of a former holder does nothing (CN2).
    """

    __slots__ = ("_probe_timeout_ms", "_waiting", "handed", "holder")

    def __init__(self, probe_timeout_ms: int) -> None:
        self.holder: Attachment | None = None
        self.handed: int | None = None
        """``seq`` of the last frame handed to the previous holder; ``None`` when there was none."""
        self._probe_timeout_ms = probe_timeout_ms
        self._waiting: deque[tuple[Newcomer, asyncio.Future[Attachment | Held]]] = deque()

    async def admit(self, newcomer: Newcomer) -> Attachment | Held:
        """Let a connection in, at once if it may, otherwise after the holder was asked (CN3)."""
        holder = self.holder
        if holder is None or holder.peer.gone:
            return self._install(newcomer)
        if newcomer.takeover or (newcomer.client_id is not None and newcomer.client_id == holder.client_id):
            holder.peer.close_soon(CloseCode.SUPERSEDED, "superseded by a newer connection")
            return self._install(newcomer)
        answer: asyncio.Future[Attachment | Held] = asyncio.get_running_loop().create_future()
        entry = (newcomer, answer)
        self._waiting.append(entry)
        try:
            if len(self._waiting) > 1:
                return await answer
            async with anyio.create_task_group() as group:
                group.start_soon(self._probe, holder, name="probe of a holder")
                await asyncio.wait([answer])
                group.cancel_scope.cancel()
            return await answer
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    def release(self, attachment: Attachment) -> bool:
        """The named attachment is over; true if it was the holder's. Those who wait are served at once."""
        if self.holder is not attachment:
            attachment.detached = True
            return False
        self._let_go()
        self._serve_waiting()
        return True

    def evict(self, code: CloseCode, reason: str) -> None:
        """Close the holder, if there is one, and whoever waits: the resource goes away."""
        holder = self.holder
        if holder is not None:
            self._let_go()
            holder.peer.close_soon(code, reason)
        while self._waiting:
            newcomer, answer = self._waiting.popleft()
            newcomer.peer.close_soon(code, reason)
            _settle(answer, Held(0))

    def held_for_ms(self) -> int:
        """How long the holder has been here, milliseconds; 0 without one."""
        if self.holder is None:
            return 0
        return int((asyncio.get_running_loop().time() - self.holder.since) * 1000)

    @property
    def contended(self) -> bool:
        """Whether somebody waits to be let in."""
        return bool(self._waiting)

    def _install(self, newcomer: Newcomer) -> Attachment:
        self._let_go()
        self.holder = newcomer.attach()
        self._refuse_waiting()
        return self.holder

    def _let_go(self) -> None:
        if self.holder is not None:
            self.holder.detached = True
            self.handed = self.holder.position
            self.holder = None

    async def _probe(self, holder: Attachment) -> None:
        """Ask the holder, then let the first who waits in, or refuse all; whatever happens, nobody waits
        on."""
        alive = True
        try:
            alive = await holder.peer.answers(self._probe_timeout_ms)
        finally:
            if self.holder is not holder or (alive and not holder.peer.gone):
                self._refuse_waiting()
            else:
                holder.peer.close_soon(CloseCode.INTERNAL, "no answer to a ping")
                self.release(holder)

    def _serve_waiting(self) -> None:
        while self._waiting:
            newcomer, answer = self._waiting.popleft()
            if newcomer.peer.gone or answer.done():
                _settle(answer, Held(0))
                continue
            _settle(answer, self._install(newcomer))
            return

    def _refuse_waiting(self) -> None:
        while self._waiting:
            _newcomer, answer = self._waiting.popleft()
            _settle(answer, Held(self.held_for_ms()))


def _settle(answer: asyncio.Future[Attachment | Held], value: Attachment | Held) -> None:
    if not answer.done():
        answer.set_result(value)
