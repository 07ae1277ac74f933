"""kill -9 in mid-stream, and two servers on one database: what the fence and the checkpoints are for."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import asyncpg
import pytest

from protocol.ids import new_ulid
from tests.harness.client import Client, text_of
from tests.harness.processes import ServerProcess

if TYPE_CHECKING:
    from tests.harness.client import Frame
    from tests.harness.processes import StubProcess

KILLS = 20


async def rows(dsn: str, statement: str, *arguments: object) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch(statement, *arguments)
    finally:
        await connection.close()


async def read_with_times(client: Client) -> list[tuple[float, Frame]]:
    """Everything until the connection is lost, with the time of arrival."""
    seen: list[tuple[float, Frame]] = []
    try:
        while True:
            frame = await client.receive()
            seen.append((time.monotonic(), frame))
    except Exception:
        return seen


@pytest.mark.timeout(300)
async def test_ST7_kill_9_in_mid_stream_loses_nothing_acknowledged(
    own_server: ServerProcess, database_url: str
) -> None:
    chance = random.Random(20)
    conversation_id = new_ulid()
    acknowledged: list[str] = []
    streamed: list[tuple[float, Frame]] = []
    killed_at = 0.0
    for round_number in range(KILLS):
        own_server.start()
        client = await Client.open(own_server.ws_url, conversation_id, client_id="c")
        snapshot = client.snapshot
        if round_number:
            assert snapshot is not None
            assert snapshot["last_run"]["status"] == "interrupted"
            assert snapshot["running"] is None
            assert snapshot["queued"] == []
            check_partial(snapshot, streamed, killed_at)
        answer = await client.say(f"question {round_number}")
        acknowledged.append(answer["message_id"])
        run = await client.send("request_completion", model="script/slow")
        await client.send("request_completion", model="script/hello")  # waits, and does not survive
        await client.until("completion_init", request_id=run)
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(read_with_times(client))
            await asyncio.sleep(chance.uniform(0.0, 2.5))
            killed_at = time.monotonic()
            own_server.kill()
        streamed = reader.result()
    own_server.start()
    client = await Client.open(own_server.ws_url, conversation_id, client_id="c")
    assert client.snapshot is not None
    check_partial(client.snapshot, streamed, killed_at)
    await client.close()
    stored = await rows(
        database_url,
        "select message_id, sequence from session_message where session_id = $1",
        conversation_id,
    )
    assert set(acknowledged) <= {row["message_id"] for row in stored}
    assert sorted(row["sequence"] for row in stored) == list(range(len(stored)))
    statuses = await rows(database_url, "select status from diagnosis_run")
    assert [row["status"] for row in statuses] == ["interrupted"] * KILLS


def check_partial(snapshot: Frame, streamed: list[tuple[float, Frame]], killed_at: float) -> None:
    """The interrupted answer is a prefix of what was streamed, and has all that is older than a second."""
    whole = text_of([frame for _, frame in streamed])
    old = text_of([frame for at, frame in streamed if at < killed_at - 1.0])
    last = snapshot["messages"][-1]
    kept = last["content"] if last["role"] == "assistant" else ""
    if kept:
        assert last["metadata"]["finish_reason"] == "interrupted"
    assert len(kept) >= len(old)
    # What the server had written down may be ahead of what reached the client before the kill.
    assert kept.startswith(whole[: len(kept)]) or whole.startswith(kept)


async def test_ST7_two_servers_on_one_database_and_the_fence_holds(
    own_server: ServerProcess, database_url: str, stub: StubProcess
) -> None:
    second = ServerProcess(database_url, stub.url)
    own_server.start()
    second.start()
    try:
        conversation_id = new_ulid()
        a = await Client.open(own_server.ws_url, conversation_id)
        await a.say("hello")
        await a.complete("script/hello")
        await a.send("request_completion", model="script/slower")
        await a.until("llm_text_sentence")
        b = await Client.open(second.ws_url, conversation_id)
        assert b.snapshot is not None
        assert b.snapshot["last_run"]["status"] == "interrupted"
        code, frames = await a.closed()
        assert code == 4012
        assert not [frame for frame in frames if frame["type"] in {"completion_done", "stop_completion"}]
        done = (await b.complete("script/hello"))[-1]
        assert done["finish_reason"] == "stop"
        again = await Client.open(own_server.ws_url, conversation_id)
        assert again.snapshot is not None
        assert [message["sequence"] for message in again.snapshot["messages"]] == list(
            range(again.snapshot["session"]["message_count"])
        )
        sent = await b.send("append_message", role="user", content="late")
        code, frames = await b.closed()
        assert code == 4012
        assert not [f for f in frames if f["type"] == "message_appended" and f["request_id"] == sent]
        await again.close()
        running = await rows(database_url, "select 1 from diagnosis_run where status = 'running'")
        assert not running
    finally:
        second.close()


async def test_RU3_what_a_dead_server_left_running_is_settled_by_the_living_one(
    own_server: ServerProcess, database_url: str, stub: StubProcess
) -> None:
    own_server.start()
    client = await Client.open(own_server.ws_url)
    await client.say("hello")
    await client.send("request_completion", model="script/slower")
    await client.until("llm_text_sentence")
    own_server.kill()
    other = ServerProcess(database_url, stub.url).start()
    try:
        async with asyncio.timeout(20):
            while await rows(database_url, "select 1 from diagnosis_run where status = 'running'"):
                await asyncio.sleep(0.1)
    finally:
        other.close()
    assert [row["status"] for row in await rows(database_url, "select status from diagnosis_run")] == [
        "interrupted"
    ]
