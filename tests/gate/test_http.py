"""HTTP through the gate: what uvicorn does well, and that it still does."""

from __future__ import annotations

import asyncio

from websockets.asyncio.client import connect

from .conftest import UPGRADE, request, running


async def test_a_body_is_received_and_the_connection_kept() -> None:
    async with running() as server, server.client() as client:
        for size in (0, 5, 100_000):
            await client.send(request("POST", "/echo", b"a" * size))
            status, _, body = await client.response()
            assert (status, body.startswith(b'{"length":%d,' % size)) == (200, True)


async def test_a_chunked_body_in_single_bytes_is_one_body() -> None:
    async with running() as server, server.client() as client:
        head = request("POST", "/echo", None, "Transfer-Encoding: chunked")
        for byte in head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n":
            await client.send(bytes([byte]))
        assert (await client.response())[2] == b'{"length":5,"body":"abcde"}'


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with running() as server, server.client() as client:
        await client.send(*(request("POST", "/echo", b"%d" % number) for number in range(20)))
        for number in range(20):
            assert b'"body":"%d"' % number in (await client.response())[2]


async def test_a_stream_is_sent_as_it_is_made() -> None:
    async with running() as server, server.client() as client:
        await client.send(request("GET", "/stream"))
        assert b"text/event-stream" in await client.reader.readuntil(b"\r\n\r\n")
        assert [await client.chunk() for _ in range(3)] == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]
        server.app.go_on.set()
        assert (await client.chunk(), await client.chunk()) == (b"data: end\n\n", b"")


async def test_a_client_that_leaves_ends_its_stream() -> None:
    async with running() as server, server.client() as client:
        await client.send(request("GET", "/stream"))
        await server.app.entered.wait()
        client.reset()
        await server.app.disconnected.wait()


async def test_expect_continue_is_answered_before_the_body() -> None:
    async with running() as server, server.client() as client:
        await client.send(request("POST", "/echo", None, "Expect: 100-continue", "Content-Length: 2"))
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        await client.send(b"ok")
        assert (await client.response())[0] == 200


async def test_an_upgrade_on_a_connection_that_was_used_for_http() -> None:
    async with running() as server, server.client() as client:
        await client.send(request("POST", "/echo", b"first"))
        assert (await client.response())[0] == 200
        await client.send(request("GET", "/ws/x", None, *UPGRADE))
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        await client.send(b"\x81\x82\0\0\0\0hi")
        assert await client.reader.readexactly(4) == b"\x81\x02hi"
        assert server.gate.http.connections == set()


async def test_frames_in_the_same_packet_as_the_upgrade_are_not_lost() -> None:
    async with running() as server, server.client() as client:
        await client.send(request("GET", "/ws/x", None, *UPGRADE), b"\x81\x82\0\0\0\0hi")
        await client.reader.readuntil(b"\r\n\r\n")
        assert await client.reader.readexactly(4) == b"\x81\x02hi"


async def test_an_upgrade_behind_an_unfinished_answer_is_no_upgrade() -> None:
    async with running() as server, server.client() as client:
        await client.send(request("GET", "/wait"), request("GET", "/ws/x", None, *UPGRADE))
        await server.app.entered.wait()
        server.app.go_on.set()
        assert (await client.response())[2] == b"waited"
        assert (await client.response())[0] == 404
        assert await client.closed() == b""


async def test_another_upgrade_is_answered_as_plain_http() -> None:
    async with running() as server, server.client() as client:
        await client.send(request("POST", "/echo", b"", "Connection: Upgrade", "Upgrade: h2c"))
        assert (await client.response())[0] == 200
        assert await client.closed() == b""


async def test_what_is_not_http_gets_an_answer() -> None:
    async with running() as server, server.client() as client:
        await client.send(b"\x16\x03\x01 what?\r\n\r\n")
        status, fields, body = await client.response()
        assert (status, fields["content-type"]) == (400, "application/json")
        assert b'"code":"invalid_request"' in body
        assert await client.closed() == b""


async def test_abrupt_clients_are_no_errors() -> None:
    """The fixture ``no_errors_logged`` looks at what was logged."""
    async with running() as server:
        for data in (
            b"",
            b"GET",
            request("GET", "/wait"),
            request("POST", "/echo", None, "Content-Length: 9"),
        ):
            async with server.client() as client:
                await client.send(data)
                client.reset()
        async with server.client() as client:
            await client.send(request("POST", "/echo", None, "Content-Length: 9"), b"half")
            await server.app.entered.wait()
            client.reset()
            await server.app.disconnected.wait()
        connection = await connect(server.ws_url)
        connection.transport.abort()
        await connection.wait_closed()
        async with server.client() as client:
            await client.send(request("GET", "/ws/x", None, *UPGRADE))
            client.reset()
        server.app.go_on.set()
    assert asyncio.all_tasks() == {asyncio.current_task()}
