"""A TCP proxy between a browser and the server that breaks connections as a bad network does."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Pipe:
    """One connection of the browser and the one to the server."""

    def __init__(self, writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        self.writers = writers
        self.is_websocket = False
        self.answered = asyncio.Event()
        """Set once the server said something after the handshake."""

    def reset(self) -> None:
        """End both sides with a TCP reset."""
        for writer in self.writers:
            raw = writer.get_extra_info("socket")
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()


class Proxy:
    """Listens on a free loopback port; ``target`` may change while it runs."""

    def __init__(self, target_url: str) -> None:
        self.target_url = target_url
        self.pipes: set[Pipe] = set()
        self.refusing = False
        self._server: asyncio.Server
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.reset_all()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def reset_all(self) -> None:
        for pipe in list(self.pipes):
            pipe.reset()

    async def live_websocket(self) -> Pipe:
        """Wait for a WebSocket over which the server has spoken."""
        async with self._changed:
            await self._changed.wait_for(lambda: any(pipe.is_websocket for pipe in self.pipes))
            pipe = next(pipe for pipe in self.pipes if pipe.is_websocket)
        await pipe.answered.wait()
        return pipe

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        target = urlsplit(self.target_url)
        try:
            upstream = await asyncio.open_connection(target.hostname, target.port)
        except OSError:
            writer.transport.abort()
            return
        pipe = Pipe((writer, upstream[1]))
        self.pipes.add(pipe)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._up(pipe, reader, upstream[1]))
                both.create_task(self._down(pipe, upstream[0], writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            pipe.reset()
            pipe.answered.set()
            self.pipes.discard(pipe)

    async def _up(self, pipe: Pipe, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if data.startswith(b"GET /ws/"):
                async with self._changed:
                    pipe.is_websocket = True
                    self._changed.notify_all()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def _down(self, pipe: Pipe, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
            if pipe.is_websocket and b"101 Switching" not in data[:40]:
                pipe.answered.set()
        raise ConnectionResetError
