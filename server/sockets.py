"""The socket: a ``websockets`` connection that writes ready bytes and is a peer of its actor.

It knows the wire, not what is said on it. Data frames bypass the library's ``send``: they are complete,
unmasked and
uncompressed, and are handed to the transport as they lie in the outbox; the library keeps all the rest of
the protocol
(handshakes, pings, fragments, closing).
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import anyio
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from protocol.codec import encode
from protocol.codes import CloseCode
from server.actors.outbox import wire_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.server_frames import ServerFrame
    from server.actors.attachment import Attachment

_UNREAD_BYTES: Final = 4_194_304
"""What may wait for one that does not read while it goes on sending; the library answers pings without
limit."""
_LOOK_S: Final = 0.5
_PROGRESS_S: Final = 3.0
"""How long ago a slow reader may have taken something to count as alive: windows open in lumps."""
_CONTROL_BYTES: Final = 524_288
"""Unsequenced frames (answers, snapshots) that may wait for a client that does not read; beyond, it is too
slow."""


class Socket(ServerConnection):
    """One WebSocket connection.

    - Attributes change in the turns of the event loop's callbacks and of the connection's own task.
    - ``attachment`` is set while it holds a resource.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.attachment: Attachment | None = None
        self.lost: Callable[[], None] | None = None
        """Called once, in the turn in which the transport is lost."""
        self.scope: anyio.CancelScope | None = None
        """Ends the reader, so that the connection's task goes on to close."""
        self.closing: tuple[CloseCode, str] | None = None
        """How the server wants it closed; the first wish wins."""
        self._control: deque[bytes] = deque()
        self._control_bytes = 0
        self._received = 0
        self._written = 0
        self._progress_at = self.loop.time()
        """Loop time of the last look that found bytes taken by the other side."""
        self._unacknowledged = 0
        self._looked_written = 0
        self._watch: asyncio.TimerHandle | None = None

    # What the actor needs (server.actors.attachment.Peer).

    @property
    def gone(self) -> bool:
        """Whether it is closed or closing."""
        return self.closing is not None or self.protocol.state is not State.OPEN

    @property
    def writable(self) -> bool:
        """Whether the transport takes bytes now."""
        return not self.paused and self.closing is None and self.protocol.state is State.OPEN

    def write(self, data: bytes) -> None:
        """Hand ready wire bytes to the transport."""
        self._written += len(data)
        self.transport.write(data)

    def tell(self, frame: ServerFrame) -> None:
        """Send an unsequenced frame; while the transport is full it waits, before all sequenced ones."""
        if self.gone:
            return
        data = wire_bytes(encode(frame))
        if not self.paused and not self._control:
            self.write(data)
            return
        self._control.append(data)
        self._control_bytes += len(data)
        if self._control_bytes > _CONTROL_BYTES and len(self._control) > 1:
            self.close_soon(CloseCode.SLOW_CONSUMER, "answers are not read")

    def close_soon(self, code: CloseCode, reason: str) -> None:
        """Begin to close; the connection's task does the rest."""
        if self.closing is None:
            self.closing = (code, reason)
            if self.scope is not None:
                self.scope.cancel()

    def attached(self, attachment: Attachment) -> None:
        """It was let in."""
        self.attachment = attachment

    async def answers(self, timeout_ms: int) -> bool:
        """Ask for a sign of life: a pong, any bytes at all, or that what was sent is being read (CN3).

        A slow reader gets to the ping late. As long as the ping has not reached it and bytes before the ping
        do, it
        counts as alive; once its kernel has the ping, only an answer counts.
        """
        received, written, unsent = self._received, self._written, self._unsent_bytes()
        self._look()
        with anyio.move_on_after(timeout_ms / 1000):
            try:
                await (await self.ping())
            except ConnectionClosed:
                return False
            return True
        if self._received != received:
            return True
        self._look()
        arrived = self._unsent_bytes() <= self._written - written
        return not arrived and unsent > 0 and self.loop.time() - self._progress_at < _PROGRESS_S

    async def finish(self) -> None:
        """Close as wished, or normally; returns when the connection is over, which takes at most the close
        time-out.

        The library's own limit begins only when the close frame has left, which one that does not read never
        lets
        happen.
        """
        code, reason = self.closing or (CloseCode.NORMAL, "")
        self._flush_control()
        cut_off = self.loop.call_later(self.close_timeout or 0, self.transport.abort)
        try:
            await self.close(code, reason)
        finally:
            cut_off.cancel()

    # The library's callbacks.

    def resume_writing(self) -> None:
        """The transport takes bytes again: first the answers that wait, then the outbox."""
        super().resume_writing()
        self._stop_watching()
        self._flush_control()
        if self.attachment is not None and not self.paused:
            self.attachment.pump()

    def pause_writing(self) -> None:
        """The transport is full: from now on the client must read, or it is cut off."""
        super().pause_writing()
        self._progress_at = self.loop.time()
        self._unacknowledged, self._looked_written = self._unsent_bytes(), self._written
        self._watch = self.loop.call_later(_LOOK_S, self._watch_reader)

    def data_received(self, data: bytes) -> None:
        """Bytes came: a sign of life. One that sends on and reads nothing is cut off before its pongs pile
        up."""
        self._received += len(data)
        super().data_received(data)
        if self.paused and self.transport.get_write_buffer_size() > _UNREAD_BYTES:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone; the resource is free in this very turn (CN2)."""
        super().connection_lost(exc)
        self._stop_watching()
        if self.lost is not None:
            self.lost()

    def _watch_reader(self) -> None:
        """While the transport is full: cut off a client that has read nothing for the heartbeat's time (CN9).

        The library's own ping cannot tell, for it waits until the transport takes it.
        """
        self._look()
        if self.loop.time() - self._progress_at > (self.ping_timeout or _PROGRESS_S):
            self.transport.abort()
        else:
            self._watch = self.loop.call_later(_LOOK_S, self._watch_reader)

    def _look(self) -> None:
        """Note whether the client's side has taken bytes since the last look."""
        unsent = self._unsent_bytes()
        if unsent - (self._written - self._looked_written) < self._unacknowledged:
            self._progress_at = self.loop.time()
        self._unacknowledged, self._looked_written = unsent, self._written

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _flush_control(self) -> None:
        while self._control and not self.paused and self.protocol.state is State.OPEN:
            data = self._control.popleft()
            self._control_bytes -= len(data)
            self.write(data)

    def _unsent_bytes(self) -> int:
        """What the transport and the kernel still have to send and have acknowledged."""
        unsent = self.transport.get_write_buffer_size()
        sock = self.transport.get_extra_info("socket")
        try:
            queued = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
        except (OSError, ValueError, AttributeError):
            return unsent
        return unsent + int(struct.unpack("i", queued)[0])
