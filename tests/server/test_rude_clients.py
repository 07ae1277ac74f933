"""Clients that do not read, do not answer, or leave at the worst moment (CN3, CN5, CN8, CN9, CN10)."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

from protocol.ids import new_ulid
from tests.harness.client import Client, Refused, text_of
from tests.harness.processes import ServerProcess
from tests.server.test_crash import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.processes import StubProcess


class RawClient:
    """A WebSocket client that only writes: it never reads, answers no ping and no close."""

    def __init__(self, server: ServerProcess, path: str) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self.socket.connect((host, int(port)))
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def send(self, **frame: object) -> None:
        payload = json.dumps(frame).encode()
        assert len(payload) < 126
        self.socket.sendall(bytes([0x81, 0x80 | len(payload), 0, 0, 0, 0]) + payload)

    def gone(self, timeout_s: float) -> bool:
        """Whether the server ended the connection; what it sent until then is read and thrown away."""
        self.socket.settimeout(timeout_s)
        try:
            while self.socket.recv(1 << 20):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True


@pytest.fixture
def brisk_server(database_url: str, stub: StubProcess) -> Iterator[ServerProcess]:
    """Short heartbeats and closes."""
    process = ServerProcess(
        database_url,
        stub.url,
        heartbeat_ms=2000,
        heartbeat_timeout_ms=2000,
        close_timeout_ms=500,
        drain_grace_ms=500,
        max_connections_per_principal=2,
    ).start()
    yield process
    process.close()


async def until(condition: object, timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():  # type: ignore[operator]
            await asyncio.sleep(0.05)


async def test_CN9_one_that_stops_reading_in_mid_replay_is_dropped_without_any_new_frame(
    brisk_server: ServerProcess,
) -> None:
    conversation_id = new_ulid()
    client = await Client.open(brisk_server.ws_url, conversation_id)
    await client.say("hello")
    await client.complete("script/large")
    await client.close()
    stalled = RawClient(brisk_server, f"/ws/conversations/{conversation_id}?resume=snapshot")
    await asyncio.sleep(0)

    async def free() -> bool:
        try:
            await (await Client.open(brisk_server.ws_url, conversation_id)).close()
        except Refused:
            return False
        return True

    await until(free, 15.0)
    stalled.socket.close()


async def test_CN8_a_slow_reader_is_closed_with_4008_and_resumes_exactly(server: ServerProcess) -> None:
    conversation_id = new_ulid()
    client = await Client.open(server.ws_url, conversation_id, client_id="slow")
    await client.say("hello")
    client.socket.transport.pause_reading()
    await client.send("request_completion", model="script/big", request_id="big")
    await asyncio.sleep(2)
    client.socket.transport.resume_reading()
    code, _ = await client.closed()
    assert code == 4008
    frames = list(client.frames)
    again = await Client.open(server.ws_url, conversation_id, client_id="slow", **client.position)
    if again.snapshot is not None:  # more than the outbox keeps was missed
        return
    frames += await again.until("completion_done", request_id="big")
    complete = next(frame for frame in frames if frame["type"] == "assistant_message_complete")
    assert complete["content"] == text_of(frames)


async def test_CN10_one_that_answers_nothing_does_not_delay_the_end(brisk_server: ServerProcess) -> None:
    client = await Client.open(brisk_server.ws_url)
    await client.say("hello")
    await client.send("request_completion", model="script/slower")
    await client.until("llm_text_chunk")
    rude = RawClient(brisk_server, f"/ws/conversations/{new_ulid()}")
    rude.send(type="append_message", request_id="1", role="user", content="hi")
    rude.send(type="request_completion", request_id="2", model="script/big")
    await asyncio.sleep(0.3)
    started = time.monotonic()
    assert brisk_server.terminate() == 0
    assert time.monotonic() - started < 5.0  # grace 0.5 s, closing 1 s; the machine may be busy
    rude.socket.close()


async def test_CN5_one_that_leaves_at_once_still_gets_its_answer_stored(
    server: ServerProcess,
) -> None:
    for _ in range(10):
        conversation_id = new_ulid()
        client = await Client.open(server.ws_url, conversation_id)
        await client.send("append_message", role="user", content="hello")
        await client.send("request_completion", model="script/hello", request_id="run")
        client.drop()
        again = await Client.open(server.ws_url, conversation_id)
        if again.connected["resume"] == "fresh":  # the drop overtook the frames
            await again.close()
            continue
        frames = again.frames
        if again.snapshot is None or again.snapshot["last_run"] is None:
            frames = await again.until("completion_done")
            assert frames[-1]["finish_reason"] == "stop"
        else:
            assert again.snapshot["last_run"]["status"] == "succeeded"
        await again.close()


async def test_CN6_one_who_waited_for_a_ghost_gets_only_what_the_ghost_was_not_handed(
    server: ServerProcess,
) -> None:
    conversation_id = new_ulid()
    path = f"/ws/conversations/{conversation_id}"
    ghost = RawClient(server, path)
    ghost.send(type="append_message", request_id="1", role="user", content="hi")
    first = await Client.open(server.ws_url, conversation_id)
    assert first.connected["resume"] in {"replayed", "fresh"}
    assert first.connected["from_seq"] == first.connected["seq"] + 1
    assert first.connected["replayed"] == 0
    ghost.socket.close()


async def test_CN9_floods_of_one_that_does_not_read_cost_bounded_memory(brisk_server: ServerProcess) -> None:
    rude = RawClient(brisk_server, f"/ws/conversations/{new_ulid()}")
    rude.socket.settimeout(2)
    ping = bytes([0x89, 0x80 | 125, 0, 0, 0, 0]) + b"x" * 125
    sent = 0
    try:
        for _ in range(4000):
            rude.socket.sendall(ping * 100)
            sent += 100
    except (TimeoutError, ConnectionError):
        pass
    assert sent
    done = subprocess.run(["ps", "-o", "rss=", "-p", str(brisk_server.pid)], capture_output=True, check=True)
    assert int(done.stdout) < 300_000  # KiB; the flood is 50 MB and its answers would be as much again
    rude.socket.close()


async def test_ST4_a_stopped_queued_one_is_not_done_when_it_is_repeated(
    server: ServerProcess,
) -> None:
    client = await Client.open(server.ws_url)
    await client.say("hello")
    await client.send("request_completion", model="script/slower", request_id="first")
    await client.until("completion_init", request_id="first")
    await client.send("request_completion", model="script/hello", request_id="second")
    await client.until("completion_queued", request_id="second")
    await client.send("append_message", role="user", content="x", request_id="second")
    assert (await client.until("error"))[-1]["code"] == "request_id_conflict"
    await client.send("stop_completion", scope="all", request_id="stop")
    await client.until("completion_done", request_id="second")
    await client.send("request_completion", model="script/hello", request_id="second")
    again = (await client.until("completion_done", "completion_init", "completion_queued"))[-1]
    assert (again["type"], again["finish_reason"], again["repeated"]) == ("completion_done", "stopped", True)


async def test_ST4_a_stop_under_a_used_id_is_a_conflict(server: ServerProcess) -> None:
    client = await Client.open(server.ws_url)
    await client.say("hello", request_id="used")
    await client.send("request_completion", model="script/slower", request_id="run")
    await client.until("llm_text_chunk")
    await client.send("stop_completion", target_request_id="run", request_id="used")
    assert (await client.until("error", request_id="used"))[-1]["code"] == "request_id_conflict"
    await client.send("stop_completion", target_request_id="run", request_id="run")
    assert (await client.until("error", request_id="run"))[-1]["code"] == "request_id_conflict"
    await client.send("stop_completion", target_request_id="run", request_id="fresh")
    assert (await client.until("completion_done"))[-1]["finish_reason"] == "stopped"


async def test_SE1_a_session_is_created_over_rest_while_a_socket_holds_its_id(
    own_server: ServerProcess, database_url: str
) -> None:
    own_server.start()
    conversation_id = new_ulid()
    client = await Client.open(own_server.ws_url, conversation_id)
    body = json.dumps({"sessionId": conversation_id, "metadata": {"title": "t"}}).encode()
    request = urllib.request.Request(
        f"{own_server.url}/api/sessions", body, {"Content-Type": "application/json"}
    )
    with await asyncio.to_thread(urllib.request.urlopen, request, timeout=10) as answer:
        assert answer.status == 200
    assert (await client.say("hello"))["type"] == "message_appended"
    stored = await rows(database_url, "select metadata->>'title', next_sequence from chat_session")
    assert [tuple(row) for row in stored] == [("t", 1)]


async def test_ST1_a_deletion_tells_the_end_of_what_runs_and_waits(server: ServerProcess) -> None:
    conversation_id = new_ulid()
    client = await Client.open(server.ws_url, conversation_id)
    await client.say("hello")
    await client.send("request_completion", model="script/slower", request_id="runs")
    await client.until("llm_text_chunk")
    await client.send("request_completion", model="script/hello", request_id="waits")
    await client.until("completion_queued")
    request = urllib.request.Request(f"{server.url}/api/sessions/{conversation_id}", method="DELETE")
    with await asyncio.to_thread(urllib.request.urlopen, request, timeout=10) as answer:
        assert answer.status == 200
    code, frames = await client.closed()
    assert code == 4404
    ends = {f["request_id"]: f["finish_reason"] for f in frames if f["type"] == "completion_done"}
    assert ends == {"runs": "interrupted", "waits": "interrupted"}


def test_CN4_a_repeated_header_is_a_bad_request(server: ServerProcess) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(
            f"GET /ws/conversations/{new_ulid()} HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: http://{host}:{port}\r\n"
            f"Origin: http://elsewhere\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        assert sock.recv(4096).startswith(b"HTTP/1.1 400")
