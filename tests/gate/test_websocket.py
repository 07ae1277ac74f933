"""WebSocket through the gate: the handshake, the options, TLS, and closing."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from server.gate import SUBPROTOCOL

from .conftest import UPGRADE, request, running


async def test_messages_go_both_ways_uncompressed() -> None:
    async with running() as server, connect(server.ws_url, subprotocols=[SUBPROTOCOL]) as socket:
        await socket.send("hello")
        assert await socket.recv() == "hello"
        assert socket.subprotocol == SUBPROTOCOL
        assert socket.response is not None
        assert "Sec-WebSocket-Extensions" not in socket.response.headers
        assert [connection.subprotocol for connection in server.gate.connections] == [SUBPROTOCOL]


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(None, None), (["turnwire.v1"], "turnwire.v1"), (["x", "turnwire.v1"], "turnwire.v1")],
)
async def test_the_subprotocol_is_ours_or_none(offered: list[Subprotocol] | None, chosen: str | None) -> None:
    async with running() as server, connect(server.ws_url, subprotocols=offered) as socket:
        assert socket.subprotocol == chosen


async def test_only_foreign_subprotocols_are_refused() -> None:
    async with running() as server:
        with pytest.raises(InvalidStatus) as refusal:
            await connect(server.ws_url, subprotocols=[Subprotocol("mqtt")])
        assert refusal.value.response.status_code == 400


async def test_a_handshake_can_be_refused_over_http() -> None:
    def forbid(connection: ServerConnection, _request: Request) -> Response:
        return connection.respond(HTTPStatus.FORBIDDEN, "no\n")

    async with running(gate_options={"process_request": forbid}) as server:
        with pytest.raises(InvalidStatus) as refusal:
            await connect(server.ws_url)
        assert refusal.value.response.status_code == 403


async def test_ER2_a_message_over_the_limit_closes_with_1009() -> None:
    async with running(max_frame_bytes=2048) as server, connect(server.ws_url) as socket:
        await socket.send("a" * 2048)
        assert len(await socket.recv()) == 2048
        await socket.send("a" * 2049)
        with pytest.raises(ConnectionClosedError):
            await socket.recv()
        assert socket.close_code == 1009


async def test_CN9_a_client_that_does_not_answer_pings_is_dropped() -> None:
    ended = asyncio.Event()

    async def handler(connection: ServerConnection) -> None:
        try:
            await connection.recv()
        finally:
            ended.set()

    async with (
        running(handler=handler, heartbeat_ms=50, heartbeat_timeout_ms=50) as server,
        server.client() as client,
    ):
        await client.send(request("GET", "/ws/x", None, *UPGRADE))
        await ended.wait()


async def test_the_callers_connection_class_sees_only_the_websocket() -> None:
    calls: list[str] = []

    class Watched(ServerConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            calls.append("made")
            super().connection_made(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            calls.append("lost")
            super().connection_lost(exc)

    async with running(gate_options={"connection_class": Watched}) as server:
        async with server.client() as client:
            await client.send(request("POST", "/echo", b"http"))
            await client.response()
        assert calls == []
        async with connect(server.ws_url) as socket:
            await socket.send("x")
            assert await socket.recv() == "x"
            (connection,) = server.gate.connections
            assert isinstance(connection, Watched)
        await connection.wait_closed()
        assert calls == ["made", "lost"]
        assert server.gate.websockets == set()


async def test_a_handler_that_fails_closes_1011_and_only_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(connection: ServerConnection) -> None:
        if await connection.recv() == "fail":
            raise RuntimeError("a bug")
        await connection.send("fine")

    async with (
        running(handler=handler) as server,
        connect(server.ws_url) as good,
        connect(server.ws_url) as bad,
    ):
        await bad.send("fail")
        with pytest.raises(ConnectionClosed):
            await bad.recv()
        assert bad.close_code == 1011
        await good.send("go")
        assert await good.recv() == "fine"
    caplog.clear()  # that one is an error


async def test_stopping_refuses_newcomers_and_keeps_the_others() -> None:
    async with running() as server, server.client() as kept, connect(server.ws_url) as socket:
        await kept.send(request("POST", "/echo", b"x"))
        await kept.response()
        server.gate.stop_accepting()
        server.gate.stop_accepting()
        assert not server.gate.accepting
        await socket.send("still")
        assert await socket.recv() == "still"
        with pytest.raises(OSError):
            await asyncio.open_connection(*server.gate.address)
        await kept.send(request("GET", "/ws/x", None, *UPGRADE))
        assert (await kept.response())[0] == 503


async def test_closing_ends_idle_ones_and_lets_busy_ones_finish() -> None:
    async with (
        AsyncExitStack() as clients,
        anyio.create_task_group() as group,
        running(close_timeout_ms=5000) as server,
    ):
        idle = await clients.enter_async_context(server.client())
        fresh = await clients.enter_async_context(server.client())
        busy = await clients.enter_async_context(server.client())
        socket = await clients.enter_async_context(connect(server.ws_url))
        await idle.send(request("POST", "/echo", b"x"))
        await idle.response()
        server.app.entered.clear()
        await busy.send(request("GET", "/wait"))
        await server.app.entered.wait()

        async def observe() -> None:
            assert await idle.closed() == b""
            assert await fresh.closed() == b""
            assert socket.state.name == "OPEN"  # HTTP comes first
            server.app.go_on.set()
            status, fields, body = await busy.response()
            assert (status, fields["connection"], body) == (200, "close", b"waited")
            with pytest.raises(ConnectionClosed):
                await socket.recv()
            assert socket.close_code == 1012

        group.start_soon(observe)


async def test_closing_cuts_off_what_does_not_finish() -> None:
    released = asyncio.Event()

    async def stubborn(connection: ServerConnection) -> None:
        await connection.wait_closed()
        await released.wait()

    async with AsyncExitStack() as outer:
        async with running(handler=stubborn, close_timeout_ms=100) as server:
            busy = await outer.enter_async_context(server.client())
            await busy.send(request("GET", "/wait"))
            await server.app.entered.wait()
            await outer.enter_async_context(connect(server.ws_url))
        assert await busy.closed() == b""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    options = (
        "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    command = ["openssl", "req", "-x509", *options.split(), "-keyout", path, "-out", path.with_suffix(".crt")]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


async def test_everything_over_tls(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    trust: Any = ssl.create_default_context(cafile=str(certificate.with_suffix(".crt")))
    async with running(ssl=context) as server:
        async with server.client(ssl=trust) as client:
            await client.send(request("POST", "/echo", b"a" * 100_000))
            assert (await client.response())[0] == 200
            await client.send(request("GET", "/ws/x", None, *UPGRADE))
            await client.reader.readuntil(b"\r\n\r\n")
            await client.send(b"\x81\x82\0\0\0\0hi")
            assert await client.reader.readexactly(4) == b"\x81\x02hi"
        async with connect(server.ws_url.replace("ws:", "wss:"), ssl=trust) as socket:
            await socket.send("hello")
            assert await socket.recv() == "hello"
