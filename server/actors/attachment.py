"""An attachment: one admitted connection of a resource, as a position in its outbox.

An attachment knows the outbox and its peer's few verbs, not sockets. Frames are handed over by
:meth:`Attachment.pump`,
which the :class:`Flusher` calls once per turn of the event loop for all attachments that have frames
waiting, and
the peer calls when its transport can take bytes again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from protocol.codes import CloseCode

if TYPE_CHECKING:
    from protocol.server_frames import ServerFrame
    from server.actors.outbox import Outbox
    from server.metrics import Metrics

log = structlog.get_logger(__name__)

_WRITE_BYTES: Final = 131072
"""How much is handed to a transport in one write, and so how far beyond its own limit its buffer can grow."""

_PATIENCE_S: Final = 0.25
"""How long a reader may be too far behind before it is closed."""


class Peer(Protocol):
    """What an actor needs of a connection."""

    @property
    def gone(self) -> bool:
        """Whether the connection is closed or closing; it can then be replaced without asking."""
        ...

    @property
    def writable(self) -> bool:
        """Whether the transport takes bytes now: open, and its buffer below its limit."""
        ...

    def write(self, data: bytes) -> None:
        """Hand ready wire bytes to the transport; only while :attr:`writable`."""
        ...

    def tell(self, frame: ServerFrame) -> None:
        """Send an unsequenced frame to this connection alone."""
        ...

    def close_soon(self, code: CloseCode, reason: str) -> None:
        """Begin to close; returns at once. The first code given wins."""
        ...

    def attached(self, attachment: Attachment) -> None:
        """It was let in: its transport's readiness is from now on this attachment's."""
        ...

    async def answers(self, timeout_ms: int) -> bool:
        """Whether the other side gives a sign of life in time: a pong, any bytes, or reading what was
        sent."""
        ...


class Attachment:
    """One admitted connection.

    - ``position`` is moved by :meth:`pump` alone, and says what was handed to the transport.
    - ``detached`` is set once, by the holding; from then on nothing is sent and late frames of it are
      dropped.
    """

    __slots__ = (
        "_behind_since",
        "_flusher",
        "_outbox",
        "_replay_end",
        "_slow_bytes",
        "client_id",
        "detached",
        "dirty",
        "number",
        "peer",
        "position",
        "since",
    )

    def __init__(
        self,
        number: int,
        peer: Peer,
        outbox: Outbox,
        position: int,
        *,
        client_id: str | None,
        slow_bytes: int,
        flusher: Flusher,
    ) -> None:
        self.number: Final = number
        """Which incarnation of the resource's holder this is; counts from 1."""
        self.peer: Final = peer
        self.client_id: Final = client_id
        self.position = position
        """``seq`` of the last frame handed to the transport."""
        self.since: Final = asyncio.get_running_loop().time()
        """Loop time of the admission, seconds."""
        self.detached = False
        self.dirty = False
        """Whether the flusher has it on its list."""
        self._flusher = flusher
        self._behind_since: float | None = None
        self._outbox = outbox
        self._replay_end = outbox.latest
        self._slow_bytes = slow_bytes

    def pump(self) -> None:
        """Hand over what waits, as long as the transport takes it; one that stays too far behind is closed
        (CN8)."""
        if self.detached:
            return
        outbox, peer, before = self._outbox, self.peer, self.position
        while self.position < outbox.latest:
            if not peer.writable:
                # A long replay is not being slow: only what came since the admission counts.
                if outbox.bytes_after(max(self.position, self._replay_end)) > self._slow_bytes:
                    self._is_behind()
                break
            self._behind_since = None
            if not outbox.holds(self.position):
                peer.close_soon(CloseCode.SLOW_CONSUMER, "what comes next is no longer kept")
                break
            data, position = outbox.take(self.position, _WRITE_BYTES)
            self.position = position
            peer.write(data)
        self._flusher.handed += self.position - before

    def _is_behind(self) -> None:
        """Too far behind: close, unless it came about just now, as by one long frame to a reader that keeps
        up."""
        loop = asyncio.get_running_loop()
        if self._behind_since is None:
            self._behind_since = loop.time()
            loop.call_later(_PATIENCE_S, self.pump)
        elif loop.time() - self._behind_since >= _PATIENCE_S:
            self.peer.close_soon(CloseCode.SLOW_CONSUMER, "too far behind")


class Flusher:
    """Pumps all attachments that have frames waiting, once per turn of the event loop."""

    def __init__(self, metrics: Metrics) -> None:
        self.handed = 0
        """Frames handed over and not yet counted in the metrics; attachments add to it."""
        self._loop = asyncio.get_running_loop()
        self._metrics = metrics
        self._waiting: list[Attachment] = []

    def mark(self, attachment: Attachment) -> None:
        """Put an attachment on the list of this turn."""
        if attachment.dirty:
            return
        attachment.dirty = True
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(attachment)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for attachment in waiting:
            attachment.dirty = False
            try:
                attachment.pump()
            except Exception:
                log.exception("pump failed", attachment=attachment.number)
                attachment.peer.close_soon(CloseCode.INTERNAL, "internal error")
        self._metrics.frames_sent.inc(self.handed)
        self.handed = 0
