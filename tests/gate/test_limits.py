"""What the gate does not put up with: slow, large and too many."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys

import anyio
import pytest

from .conftest import UPGRADE, request, running


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /wait HT", request("POST", "/echo", None, "Content-Length: 5")[:-1]],
    ids=["nothing", "half a line", "half a head"],
)
async def test_a_first_request_that_is_never_sent_ends_the_connection(sent: bytes) -> None:
    async with running(http_request_timeout_s=1) as server, server.client() as client:
        await client.send(sent)
        last = await client.closed()
        assert (b"408" in last) is bool(sent)
        assert server.metrics.registry.get_sample_value("turnwire_requests_timed_out_total") == 1


async def test_a_head_sent_byte_by_byte_has_one_limit_in_all() -> None:
    async with running(http_request_timeout_s=1) as server, server.client() as client:

        async def drip() -> None:
            while True:
                client.writer.write(b"a")
                await anyio.sleep(0.05)

        started = anyio.current_time()
        async with anyio.create_task_group() as group:
            group.start_soon(drip)
            await client.closed()
            group.cancel_scope.cancel()
        assert anyio.current_time() - started < 3
        assert server.app.requests == 0


async def test_a_body_that_never_ends_ends_the_connection() -> None:
    async with running(http_request_timeout_s=1) as server, server.client() as client:
        await client.send(request("POST", "/echo", None, "Content-Length: 10"), b"half")
        assert (await client.response())[0] == 408
        await client.closed()
        await server.app.disconnected.wait()


async def test_a_half_sent_later_request_ends_the_connection() -> None:
    async with running(http_request_timeout_s=1, http_keep_alive_s=60) as server, server.client() as client:
        await client.send(request("POST", "/echo", b"first"))
        assert (await client.response())[0] == 200
        await client.send(b"POST /echo HTT")
        assert (await client.response())[0] == 408
        await client.closed()


async def test_a_large_body_at_a_fair_pace_has_the_time_it_needs() -> None:
    async with running(http_request_timeout_s=1) as server, server.client() as client:
        await client.send(request("POST", "/echo", None, "Content-Length: 60000"))
        for _ in range(60):
            await client.send(b"a" * 1000)
            await asyncio.sleep(0.03)
        assert (await client.response())[2].startswith(b'{"length":60000')


async def test_an_answer_may_take_longer_than_a_request() -> None:
    async with running(http_request_timeout_s=1, http_keep_alive_s=1) as server, server.client() as client:
        await client.send(request("GET", "/wait"))
        await server.app.entered.wait()
        await asyncio.sleep(1.3)
        server.app.go_on.set()
        assert (await client.response())[2] == b"waited"


async def test_an_idle_connection_is_closed() -> None:
    async with running(http_keep_alive_s=1) as server, server.client() as client:
        await client.send(request("POST", "/echo", b"x"))
        await client.response()
        assert await client.closed() == b""


async def test_the_rest_of_a_body_that_nobody_reads_is_thrown_away() -> None:
    async with running() as server, server.client() as client:
        await client.send(request("POST", "/ignore", None, "Content-Length: 300000"), b"a" * 100_000)
        assert (await client.response())[2] == b"ignored"
        await client.send(b"a" * 200_000, request("POST", "/echo", b"next"))
        assert (await client.response())[2] == b'{"length":4,"body":"next"}'


@pytest.mark.parametrize(
    "head",
    [
        request("GET", "/wait", None, "X: " + "a" * 40_000),
        request("GET", "/" + "a" * 40_000),
        request("GET", "/wait", None, *["X: y"] * 200),
        request("GET", "/wait", None, "X: " + "a" * 300_000)[:-4],
    ],
    ids=["a large field", "a long path", "many fields", "a field without an end"],
)
async def test_too_large_a_head_is_refused(head: bytes) -> None:
    async with running() as server, server.client() as client:
        await client.send(head)
        status, _, body = await client.response()
        assert (status, b'"code":"too_large"' in body) == (431, True)
        assert not server.app.entered.is_set()


async def test_bytes_behind_a_request_in_work_are_bounded() -> None:
    async with running() as server, server.client() as client:
        await client.send(request("GET", "/wait"))
        await server.app.entered.wait()
        await client.send(b"GET /" + b"a" * 300_000)
        assert await client.closed() == b""


async def test_a_client_that_does_not_read_its_answer_is_cut_off() -> None:
    async with running(heartbeat_timeout_ms=300) as server:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, server.gate.address)
        await asyncio.get_running_loop().sock_sendall(sock, request("GET", "/large"))
        await server.app.disconnected.wait()
        sock.close()


async def test_connections_beyond_the_limit_get_503_and_are_counted() -> None:
    async with running(max_connections=2) as server:
        async with server.client() as first, server.client() as second:
            await first.send(request("POST", "/echo", b"1"))
            await first.response()
            await second.send(request("GET", "/ws/x", None, *UPGRADE))
            await second.reader.readuntil(b"\r\n\r\n")
            async with server.client() as third:
                await third.send(request("POST", "/echo", b"3"))
                status, _, body = await third.response()
                assert (status, b'"code":"overloaded"' in body) == (503, True)
                await third.closed()
            assert server.gate.refused == 1
            second.reset()
            while server.gate.websockets:
                await asyncio.sleep(0)
        async with server.client() as fourth:
            await fourth.send(request("POST", "/echo", b"4"))
            assert (await fourth.response())[0] == 200


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_listener_survives_running_out_of_descriptors(loop: str) -> None:
    # In a process of its own: one without descriptors is no place for other fixtures' threads.
    done = subprocess.run(
        [sys.executable, "-m", "tests.gate.exhaust", loop],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "alive\n", done.stderr[-2000:]


async def test_there_are_never_more_connections_than_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else 10**9
    try:
        async with running(max_connections=wanted) as server:
            raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            assert raised >= soft
            assert server.gate.limit < raised
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_the_kernel_buffers_what_the_settings_say() -> None:
    async with running(send_buffer_bytes=32768) as server, server.client() as client:
        await client.send(request("POST", "/echo", b"x"))
        await client.response()
        (protocol,) = server.gate.http.connections
        sock = protocol.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (32768, 65536)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
