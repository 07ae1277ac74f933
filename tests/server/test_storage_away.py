"""The store away for a while (ER5): appends are refused at once, a running completion goes on and ends when
it is back."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

import pytest

from protocol.ids import new_ulid
from tests.harness.client import Client, text_of
from tests.harness.postgres import HurtPostgres, hurt_postgres
from tests.harness.processes import ServerProcess
from tests.server.test_crash import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.processes import StubProcess


@pytest.fixture
def postgres_away() -> Iterator[HurtPostgres]:
    with hurt_postgres() as postgres:
        yield postgres


@pytest.fixture
def hurt_server(postgres_away: HurtPostgres, stub: StubProcess) -> Iterator[ServerProcess]:
    process = ServerProcess(postgres_away.dsn, stub.url).start()
    yield process
    process.close()


async def check_history(postgres: HurtPostgres, conversation_id: str, client: Client) -> None:
    """What is stored is exactly what was told, in order."""
    told = {
        frame["sequence"]: (frame["message_id"], frame["content"])
        for frame in client.frames
        if frame["type"] in {"message_appended", "assistant_message_complete"} and "seq" in frame
    }
    stored = await rows(
        postgres.dsn,
        "select sequence, message_id, content from session_message where session_id = $1 order by sequence",
        conversation_id,
    )
    assert {row[0]: (row[1], row[2]) for row in stored} == told
    assert sorted(told) == list(range(len(told)))


async def until_appended(client: Client, text: str) -> None:
    """Append under one request id until the store is back, as a client would."""
    request_id = new_ulid()
    async with asyncio.timeout(30):
        while True:
            await client.send("append_message", role="user", content=text, request_id=request_id)
            answer = (await client.until("message_appended", "error", request_id=request_id))[-1]
            if answer["type"] == "message_appended":
                return
            assert answer["code"] == "storage_unavailable"
            assert answer["retryable"]
            await asyncio.sleep(0.3)


async def test_ER5_a_frozen_database_is_waited_for_1500_ms_and_then_refused_at_once(
    hurt_server: ServerProcess, postgres_away: HurtPostgres
) -> None:
    conversation_id = new_ulid()
    client = await Client.open(hurt_server.ws_url, conversation_id)
    await client.say("hello")
    run = await client.send("request_completion", model="script/slow")
    await client.until("llm_text_chunk")
    postgres_away.signal(signal.SIGSTOP)
    try:
        for number in range(4):
            started = time.monotonic()
            await client.send("append_message", role="user", content="x", request_id=f"frozen-{number}")
            answer = (await client.until("error", request_id=f"frozen-{number}"))[-1]
            assert answer["code"] == "storage_unavailable"
            assert time.monotonic() - started < 2.5  # the limit is 1.5 s; the machine may be busy
        await client.until("llm_text_chunk")
        assert (await client.quiet())[-1]["type"] == "llm_text_sentence"  # the end waits for the store
    finally:
        postgres_away.signal(signal.SIGCONT)
    frames = await client.until("completion_done", request_id=run)
    assert frames[-1]["finish_reason"] == "stop"
    await until_appended(client, "after")
    answer = [f for f in client.frames if f["type"] == "assistant_message_complete"]
    assert len(answer) == 1
    assert answer[0]["content"] == text_of(client.frames)
    await check_history(postgres_away, conversation_id, client)
    assert await rows(postgres_away.dsn, "select status from diagnosis_run") == [("succeeded",)]


async def test_ER5_a_killed_database_comes_back_and_nothing_is_doubled(
    hurt_server: ServerProcess, postgres_away: HurtPostgres
) -> None:
    conversation_id = new_ulid()
    client = await Client.open(hurt_server.ws_url, conversation_id)
    await client.say("hello")
    run = await client.send("request_completion", model="script/slow")
    await client.until("llm_text_chunk")
    for number in range(3):
        postgres_away.signal(signal.SIGKILL)
        await until_appended(client, f"after {number}")
    if not any(f["type"] == "completion_done" for f in client.frames):
        await client.until("completion_done", request_id=run)
    done = [f for f in client.frames if f["type"] == "completion_done"]
    assert [f["finish_reason"] for f in done] == ["stop"]
    await check_history(postgres_away, conversation_id, client)


async def test_ER5_a_stop_while_the_store_is_away_stops_at_once_and_is_confirmed_later(
    hurt_server: ServerProcess, postgres_away: HurtPostgres
) -> None:
    conversation_id = new_ulid()
    client = await Client.open(hurt_server.ws_url, conversation_id)
    await client.say("hello")
    run = await client.send("request_completion", model="script/slower")
    await client.until("llm_text_chunk")
    postgres_away.signal(signal.SIGSTOP)
    try:
        await client.send("stop_completion", target_request_id=run)
        await client.until("llm_text_sentence")
        assert {frame["type"] for frame in await client.quiet()} <= {"llm_text_chunk", "llm_text_sentence"}
    finally:
        postgres_away.signal(signal.SIGCONT)
    frames = await client.until("completion_done", request_id=run)
    assert [frame["type"] for frame in frames] == ["stop_completion", "completion_done"]
    assert frames[0]["partial_text"] == text_of(client.frames)
    assert await rows(postgres_away.dsn, "select status, answer from diagnosis_run") == [
        ("stopped", frames[0]["partial_text"])
    ]
