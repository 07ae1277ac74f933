"""REST and sockets of one real server process."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from protocol.ids import new_ulid
from tests.harness.processes import ServerProcess

from .conftest import bearer


@pytest.fixture
def server(database_url: str, tokens_file: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(database_url, tokens_file=tokens_file, allowed_origins="https://app.example")
    process.start()
    yield process
    process.close()


async def _frame(connection: ClientConnection, kind: str) -> dict[str, object]:
    while True:
        frame: dict[str, object] = json.loads(await connection.recv())
        if frame["type"] == kind:
            return frame


async def test_RU5_a_message_appended_over_rest_is_seen_by_the_holder(server: ServerProcess) -> None:
    alice = bearer("token-a")
    session_id = new_ulid()
    async with (
        httpx.AsyncClient(base_url=server.url, headers=alice, trust_env=False) as client,
        connect(f"{server.ws_url}/ws/conversations/{session_id}", additional_headers=alice) as connection,
    ):
        await _frame(connection, "connected")
        path = f"/api/sessions/{session_id}"
        assert (await client.get(path)).status_code == 404  # nothing was written yet
        await connection.send(
            '{"type":"append_message","request_id":"1","role":"user","content":"from the socket"}'
        )
        await _frame(connection, "message_appended")
        body = {"role": "user", "content": "from REST"}
        answer = await client.post(f"{path}/messages", json=body)
        message = answer.json()["data"]["message"]
        frame = await _frame(connection, "message_appended")
        assert (frame["message_id"], frame["sequence"], frame["origin"]) == (message["messageId"], 1, "rest")
        items = (await client.get(f"{path}/messages")).json()["data"]["items"]
        assert [item["content"] for item in items] == ["from the socket", "from REST"]
        assert (await client.delete(path)).status_code == 200
        with pytest.raises(ConnectionClosed):
            await _frame(connection, "never")
        assert connection.close_code == 4404
        assert (await client.get(path)).status_code == 404


async def test_who_may_open_a_socket(server: ServerProcess) -> None:
    url = f"{server.ws_url}/ws/conversations/{new_ulid()}"
    alice = bearer("token-a")
    for origin in ("https://evil.example", "null"):
        with pytest.raises(InvalidStatus) as refusal:
            await connect(url, additional_headers={**alice, "Origin": origin})
        assert refusal.value.response.status_code == 403
    for origin in (server.url, "https://app.example"):
        async with connect(url, additional_headers={**alice, "Origin": origin}) as connection:
            await _frame(connection, "connected")
    for headers in ({}, bearer("wrong")):
        async with connect(url, additional_headers=headers) as connection:
            with pytest.raises(ConnectionClosed):
                await _frame(connection, "connected")
            assert connection.close_code == 4401


async def test_rude_clients_leave_no_error_in_the_log(server: ServerProcess) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    handshake = (
        f"GET /ws/conversations/{new_ulid()} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: Upgrade\r\n"
        "Authorization: Bearer token-a\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ).encode()
    append = (
        f"POST /api/sessions HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer token-a\r\n"
        "Content-Length: 100\r\n\r\n{"
    ).encode()
    for data in (b"", b"GET / HT", b"\x16\x03\x01\x02", handshake[:-2], handshake, append):
        with socket.create_connection((host, int(port))) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, no goodbye
            client.sendall(data)
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        assert (await client.get("/readyz")).status_code == 200
    assert server.terminate() == 0
    levels = [
        json.loads(line).get("level") for line in server.read_log().splitlines() if line.startswith("{")
    ]
    assert "error" not in levels
    assert "Traceback" not in server.read_log()
