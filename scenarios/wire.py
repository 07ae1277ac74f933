"""A WebSocket connection that a scenario has in its hands: it can lie dead, read slowly or break off.

The library's protocol without its sockets (``websockets`` sans-IO) over an anyio stream: reading happens only
when this module reads, so that a client which does not read answers no ping either, as a real one whose
network or event loop is gone. Knows nothing of the meaning of frames.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Final

import anyio
from anyio.abc import ByteStream, SocketAttribute
from msgspec import Struct
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

_READ_BYTES: Final = 65_536
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Message(Struct, frozen=True, gc=False):
    """One message, put together from its fragments."""

    data: bytes
    text: bool


class Closed(Struct, frozen=True):
    """How the connection ended: code 1006 when no close frame came."""

    code: int
    reason: str = ""


class Refused(Exception):
    """The handshake was answered with something else than 101."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}: {body[:200]!r}")
        self.status = status


class Wire:
    """One connection. One task reads (:meth:`receive`), any task sends."""

    def __init__(self, stream: ByteStream, protocol: ClientProtocol) -> None:
        self._stream = stream
        self._protocol = protocol
        self._sending = anyio.Lock()
        self._fragments: list[bytes] = []
        self._text = True
        self._ready: list[Message] = []

    @classmethod
    async def open(
        cls, url: str, *, headers: Mapping[str, str], subprotocol: str | None, receive_buffer: int | None
    ) -> Wire:
        """Connect and shake hands.

        Raises:
            Refused: HTTP instead of a WebSocket.
            OSError: No connection, or it ended in the handshake.
        """
        uri = parse_uri(url)
        stream = await _connect(uri.host, uri.port, secure=uri.secure)
        if receive_buffer is not None:
            raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not Django
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        offered = None if subprotocol is None else [Subprotocol(subprotocol)]
        protocol = ClientProtocol(uri, subprotocols=offered, max_size=None)
        request = protocol.connect()
        for name, value in headers.items():
            if name in request.headers:
                del request.headers[name]
            request.headers[name] = value
        protocol.send_request(request)
        wire = cls(stream, protocol)
        try:
            await wire._shake_hands()
        except BaseException:
            await wire.destroy()
            raise
        return wire

    async def _shake_hands(self) -> None:
        await self._flush()
        while self._protocol.state is State.CONNECTING and self._protocol.handshake_exc is None:
            try:
                self._protocol.receive_data(await self._stream.receive(_READ_BYTES))
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                self._protocol.receive_eof()
                break
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                if event.status_code != 101:
                    raise Refused(event.status_code, bytes(event.body or b""))
            elif isinstance(event, Frame):
                self._take(event)
        if self._protocol.handshake_exc is not None:
            raise ConnectionError(f"no WebSocket handshake: {self._protocol.handshake_exc}")
        if self._protocol.state is State.CONNECTING:
            raise ConnectionError("the connection ended in the handshake")
        with contextlib.suppress(ConnectionError):
            await self._flush()  # a ping or a close may have come with the answer

    @property
    def subprotocol(self) -> str | None:
        """What the server chose."""
        return self._protocol.subprotocol

    async def receive(self, max_bytes: int | None = None) -> list[Message] | Closed:
        """Read once and return the messages that are whole now, or how the connection ended.

        Pings are answered here, nowhere else. Safe to cancel: nothing that arrived is lost.
        """
        if self._ready:
            ready, self._ready = self._ready, []
            return ready
        if self._protocol.close_rcvd is not None:
            return self._closed()
        try:
            data = await self._stream.receive(max_bytes or _READ_BYTES)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            with contextlib.suppress(InvalidState):
                self._protocol.receive_eof()
            return self._closed()
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take(event)
        with contextlib.suppress(ConnectionError):
            await self._flush()
        ready, self._ready = self._ready, []
        return ready

    def _take(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if frame.opcode is not Opcode.CONT:
            self._text = frame.opcode is Opcode.TEXT
        self._fragments.append(bytes(frame.data))
        if frame.fin:
            self._ready.append(Message(b"".join(self._fragments), self._text))
            self._fragments = []

    def _closed(self) -> Closed:
        received = self._protocol.close_rcvd
        return Closed(1006) if received is None else Closed(received.code, received.reason)

    async def send(self, data: bytes, *, text: bool, fragments: int = 1) -> None:
        """Send one message, cut into so many frames.

        Raises:
            ConnectionError: The connection is over.
        """
        size = max(1, -(-len(data) // fragments))
        pieces = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
        async with self._sending:
            try:
                for at, piece in enumerate(pieces):
                    last = at == len(pieces) - 1
                    if at:
                        self._protocol.send_continuation(piece, fin=last)
                    elif text:
                        self._protocol.send_text(piece, fin=last)
                    else:
                        self._protocol.send_binary(piece, fin=last)
            except InvalidState as error:
                raise ConnectionError(str(error)) from None
            await self._write()

    async def send_close(self, code: int) -> None:
        """Begin the closing handshake; its end is seen by :meth:`receive`."""
        async with self._sending:
            with contextlib.suppress(InvalidState):
                self._protocol.send_close(code)
            with contextlib.suppress(ConnectionError):
                await self._write()

    async def _flush(self) -> None:
        async with self._sending:
            await self._write()

    async def _write(self) -> None:
        for data in self._protocol.data_to_send():
            try:
                if data:
                    await self._stream.send(data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
                raise ConnectionError(f"the connection is gone: {error!r}") from None

    async def destroy(self, *, reset: bool = False) -> None:
        """End the socket without a close frame; with ``reset`` the peer gets a RST."""
        if reset:
            raw = self._stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not Django
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(self._stream)


async def _connect(host: str, port: int, *, secure: bool) -> ByteStream:
    try:
        if secure:
            return await anyio.connect_tcp(
                host,
                port,
                ssl_context=ssl.create_default_context(),
                tls_hostname=host,
                tls_standard_compatible=False,
            )
        return await anyio.connect_tcp(host, port)
    except InvalidHandshake as error:
        raise ConnectionError(str(error)) from None
