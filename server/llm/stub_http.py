"""Just enough of a serving HTTP/1.1 for the stub endpoint: one request at a time, replies whole or chunked.

Waiting means reading: a client that closes is noticed wherever the stub waits.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

_MAX_HEAD: Final = 65_536
_MAX_BODY: Final = 64 * 1024 * 1024
_REASONS: Final = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many Requests"}


class HangUp(Exception):
    """The client is gone, or spoke out of turn."""


class HttpRequest(Struct, frozen=True):
    """A request; the path is without its query."""

    method: str
    path: str
    body: bytes


class HttpConnection:
    """The serving side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.chunked = False
        """A chunked reply has begun and not ended."""

    async def next_request(self) -> HttpRequest | None:
        """Read a request; ``None`` when the client has closed."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            request_line, *lines = head.decode("latin-1").split("\r\n")
            method, target, _ = request_line.split(" ")
            headers = {}
            for line in lines:
                name, colon, value = line.partition(":")
                if colon:
                    headers[name.strip().lower()] = value.strip()
            length = int(headers.get("content-length", "0"))
            if not 0 <= length <= _MAX_BODY or "transfer-encoding" in headers:
                return None
            body = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            return None
        return HttpRequest(method, target.partition("?")[0], body)

    async def reply(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole JSON reply."""
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{more}\r\n"
        )
        self._writer.write(head.encode("latin-1") + body)
        await self._writer.drain()

    def begin_chunked(self) -> None:
        """Begin a reply of server-sent events."""
        self.chunked = True
        self._writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    async def write_chunk(self, data: bytes) -> None:
        """Send a piece of the reply; nothing when it is empty.

        Raises:
            HangUp: The client is gone.
        """
        if self._reader.at_eof() or self._writer.is_closing():
            raise HangUp
        if data:
            self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await self._writer.drain()

    async def end_chunked(self) -> None:
        """End the reply; the connection may be used again."""
        if not self.chunked:
            self.begin_chunked()
        self.chunked = False
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def wait_until(self, due: float | None) -> None:
        """Wait until a time of the loop's clock, ``None`` for ever.

        Raises:
            HangUp: The client closed meanwhile.
        """
        loop = asyncio.get_running_loop()
        if due is not None and due <= loop.time():
            return
        try:
            async with asyncio.timeout_at(due):
                await self._reader.read(1)
        except TimeoutError:
            return
        raise HangUp

    def reset(self) -> None:
        """Reset the connection (RST) instead of closing it."""
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
