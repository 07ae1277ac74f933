"""SIGTERM (CN10)."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from protocol.ids import new_ulid
from tests.harness.client import Client, text_of
from tests.harness.processes import ServerProcess
from tests.server.test_crash import rows

if TYPE_CHECKING:
    from tests.harness.processes import StubProcess


async def test_CN10_a_short_completion_finishes_and_all_are_closed_with_1012(
    own_server: ServerProcess, database_url: str
) -> None:
    own_server.start()
    conversation_id = new_ulid()
    client = await Client.open(own_server.ws_url, conversation_id)
    idle = await Client.open(own_server.ws_url)
    await client.say("hello")
    run = await client.send("request_completion", model="script/slow", request_id="run")
    await client.until("llm_text_chunk")
    own_server.signal(signal.SIGTERM)
    draining = (await client.until("draining"))[-1]
    assert draining["reconnect_after_ms"] > 0
    refused = await client.send("request_completion", model="script/hello", on_busy="enqueue")
    error = (await client.until("error", request_id=refused))[-1]
    assert error["code"] == "draining"
    code, frames = await client.closed()
    assert code == 1012
    assert (await idle.closed())[0] == 1012
    assert own_server.wait() == 0
    done = next(
        frame for frame in frames if frame["type"] == "completion_done" and frame["request_id"] == run
    )
    assert done["finish_reason"] == "interrupted"
    stored = await rows(
        database_url, "select content, metadata from session_message where role = 'assistant'"
    )
    assert len(stored) == 1
    assert stored[0]["content"] == text_of(client.frames)
    assert [r["status"] for r in await rows(database_url, "select status from diagnosis_run")] == [
        "interrupted"
    ]


async def test_CN10_a_second_signal_ends_the_grace(database_url: str, stub: StubProcess) -> None:
    server = ServerProcess(database_url, stub.url, drain_grace_ms=60_000).start()
    try:
        client = await Client.open(server.ws_url)
        await client.say("hello")
        await client.send("request_completion", model="script/slower")
        await client.until("llm_text_chunk")
        server.signal(signal.SIGTERM)
        await client.until("draining")
        server.signal(signal.SIGTERM)
        done = (await client.until("completion_done"))[-1]
        assert done["finish_reason"] == "interrupted"
        assert server.wait() == 0
    finally:
        server.close()


async def test_CN10_what_ends_within_the_grace_ends_as_if_nothing_had_been(own_server: ServerProcess) -> None:
    own_server.start()
    client = await Client.open(own_server.ws_url)
    await client.say("hello")
    run = await client.send("request_completion", model="script/brief")
    await client.until("llm_text_chunk")
    own_server.signal(signal.SIGTERM)
    done = (await client.until("completion_done", request_id=run))[-1]
    assert done["finish_reason"] == "stop"
    assert (await client.closed())[0] == 1012
    assert own_server.wait() == 0
