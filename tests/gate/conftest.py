"""A gate with a small application behind it, and clients that speak bytes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route
from websockets.asyncio.server import ServerConnection

from server.gate import Gate, serve_gate
from server.metrics import Metrics
from server.settings import Settings


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """Every test of the gate runs on both loops."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def no_errors_logged(caplog: pytest.LogCaptureFixture) -> Any:
    """No client, however rude, makes the server log an error."""
    caplog.set_level(logging.DEBUG)
    yield
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not errors, [(record.name, record.getMessage(), record.exc_info) for record in errors]


class App:
    """The application behind the gate, with the moments that tests wait for."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go_on = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.requests = 0
        self.asgi = Starlette(
            routes=[
                Route("/echo", self._echo, methods=["POST"]),
                Route("/wait", self._wait),
                Route("/stream", self._stream),
                Route("/large", self._large),
                Route("/ignore", self._ignore, methods=["POST"]),
            ]
        )

    async def _echo(self, request: Request) -> JSONResponse | PlainTextResponse:
        self.requests += 1
        self.entered.set()
        try:
            body = await request.body()
        except ClientDisconnect:
            self.disconnected.set()
            return PlainTextResponse("gone")
        return JSONResponse({"length": len(body), "body": body[:64].decode()})

    async def _wait(self, _request: Request) -> PlainTextResponse:
        self.entered.set()
        await self.go_on.wait()
        return PlainTextResponse("waited")

    async def _ignore(self, _request: Request) -> PlainTextResponse:
        return PlainTextResponse("ignored")

    async def _stream(self, _request: Request) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            try:
                for number in range(3):
                    yield f"data: {number}\n\n".encode()
                self.entered.set()
                await self.go_on.wait()
                yield b"data: end\n\n"
            finally:
                self.disconnected.set()

        return StreamingResponse(parts(), media_type="text/event-stream")

    async def _large(self, _request: Request) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            self.entered.set()
            try:
                while True:
                    yield b"x" * 65536
                    await asyncio.sleep(0)
            finally:
                self.disconnected.set()

        return StreamingResponse(parts())


class Client:
    """One TCP connection that sends and reads exactly what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))
        await self.writer.drain()

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        """Read one response with a length, or in chunks."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        status = int(head[0].split()[1])
        if "content-length" in fields:
            return status, fields, await self.reader.readexactly(int(fields["content-length"]))
        body = b""
        while part := await self.chunk():
            body += part
        return status, fields, body

    async def chunk(self) -> bytes:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def closed(self) -> bytes:
        """Wait until the server has closed; returns what it still sent."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    def reset(self) -> None:
        """Leave without a goodbye."""
        self.writer.transport.abort()


def request(method: str, path: str, body: bytes | None = None, *fields: str) -> bytes:
    """The bytes of one request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *fields]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)


class Running:
    """A gate that is up."""

    def __init__(self, gate: Gate, app: App, metrics: Metrics) -> None:
        self.gate = gate
        self.app = app
        self.metrics = metrics
        self.ws_url = f"ws://127.0.0.1:{gate.address[1]}/ws/x"

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection(*self.gate.address, **options)
        try:
            yield Client(reader, writer)
        finally:
            writer.transport.abort()


async def echo(connection: ServerConnection) -> None:
    """The WebSocket side: an echo, which does not catch a closed connection."""
    while True:
        await connection.send(await connection.recv())


@asynccontextmanager
async def running(
    *, handler: Any = echo, ssl: Any = None, gate_options: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Running]:
    app, metrics = App(), Metrics()
    chosen = Settings(**{"close_timeout_ms": 1000, **settings})
    async with serve_gate(
        app=app.asgi,
        handler=handler,
        host="127.0.0.1",
        port=0,
        settings=chosen,
        metrics=metrics,
        ssl=ssl,
        **(gate_options or {}),
    ) as gate:
        yield Running(gate, app, metrics)
