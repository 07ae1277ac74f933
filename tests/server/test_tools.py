"""Tools over real sockets, and what is stored of them: rows, decisions, crashes, expiry (TL1 to TL6, ST7)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from protocol.ids import new_ulid
from tests.harness.client import Client, text_of
from tests.harness.processes import ROOT
from tests.server.test_crash import rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.client import Frame
    from tests.harness.processes import ServerProcess

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def tool_server(own_server: ServerProcess, tmp_path: Path) -> ServerProcess:
    """A server with the test's MCP servers: `slow` has a tool that never ends, calls of `brief` expire."""
    command = json.dumps([sys.executable, "-m", "tests.tools.mcp_server"])
    config = tmp_path / "turnwire.toml"
    config.write_text(
        f"""
[mcp.slow]
command = {command}
env.PYTHONPATH = "{ROOT}"
tools = {{ slow = "immediate", fail = "immediate", structured = "immediate" }}

[mcp.brief]
command = {command}
env.PYTHONPATH = "{ROOT}"
expires_s = 1.0
"""
    )
    own_server.set(config=config)
    return own_server.start()


async def opened(server: ServerProcess, conversation_id: str, **query: str) -> Client:
    """A client of a server whose MCP servers are there."""
    async with await Client.open(server.ws_url) as probe, asyncio.timeout(40):
        await probe.say("are you there?")
        while True:
            frames = await probe.complete("script/tool-probe")
            told = [frame["execution_state"] for frame in calls_of(frames, "slow__structured")]
            if told[-1] == "succeeded":
                break
            await asyncio.sleep(0.2)
    return await Client.open(server.ws_url, conversation_id, client_id="c", **query)


def calls_of(frames: list[Frame], name: str) -> list[Frame]:
    return [frame for frame in frames if frame["type"] == "tool_call" and frame["name"] == name]


async def call_rows(database_url: str, conversation_id: str) -> dict[str, Any]:
    found = await rows(
        database_url, "select * from tool_invocation where session_id = $1 order by id", conversation_id
    )
    return {row["tool_call_id"]: row for row in found}


async def decide(client: Client, tool_call_id: str, decision: str, **fields: object) -> Frame:
    request_id = await client.send("confirm_tool", tool_call_id=tool_call_id, decision=decision, **fields)
    return (await client.until("tool_confirmation_processed", "error", request_id=request_id))[-1]


async def begin_slow(client: Client) -> str:
    """Request a completion one of whose calls never ends; returns when those that run at once are over."""
    await client.say("go")
    run = await client.send("request_completion", model="script/tool-slow")
    await client.until("tool_call", tool_call_id="call_time", execution_state="succeeded")
    return run


async def check_next_turn(client: Client) -> None:
    """The model takes the history: the scripted endpoint is as strict as OpenAI."""
    await client.say("and now?")
    done = (await client.complete("script/hello", on_pending="decline"))[-1]
    assert done["finish_reason"] == "stop"


async def test_TL3_the_message_is_committed_before_its_calls_run(
    tool_server: ServerProcess, database_url: str
) -> None:
    conversation_id = new_ulid()
    client = await opened(tool_server, conversation_id)
    run = await begin_slow(client)
    messages = await rows(
        database_url,
        "select * from session_message where session_id = $1 order by sequence",
        conversation_id,
    )
    assert [row["role"] for row in messages] == ["user", "assistant", "tool"]
    assert messages[2]["tool_call_id"] == "call_time"
    calls = await call_rows(database_url, conversation_id)
    assert calls["call_slow"]["execution_state"] == "running"
    assert calls["call_slow"]["started_at"] is not None
    assert calls["call_add"]["confirmation_state"] == "pending"
    assert calls["call_time"]["execution_state"] == "succeeded"
    assert {row["assistant_message_id"] for row in calls.values()} == {messages[1]["message_id"]}
    steps = await rows(database_url, "select * from agent_step where session_id = $1", conversation_id)
    assert [(row["step_index"], row["content"], row["finish_reason"]) for row in steps] == [
        (0, "A moment. ", "tool_calls")
    ]
    await client.send("stop_completion")
    assert (await client.until("completion_done", request_id=run))[-1]["finish_reason"] == "stopped"


async def test_TL5_TL6_decisions_are_stored_with_who_when_and_the_hash(
    tool_server: ServerProcess, database_url: str
) -> None:
    conversation_id = new_ulid()
    client = await opened(tool_server, conversation_id)
    await client.say("add")
    first = (await client.complete("script/tool-add"))[-1]
    assert first["finish_reason"] == "tool_calls"
    edited = '{"a": 30,  "b": 4}'
    accepted = await decide(client, "call_one", "accept")
    changed = await decide(client, "call_two", "accept", arguments=edited)
    assert changed["arguments_sha256"] == hashlib.sha256(edited.encode()).hexdigest()
    await decide(client, "call_three", "reject", reason="too much")
    before = await call_rows(database_url, conversation_id)
    assert {row["decided_by"] for row in before.values()} == {"local"}
    assert all(row["decided_at"] >= row["created_at"] for row in before.values())
    assert [row["decision"] for row in before.values()] == ["accept", "accept", "reject"]
    assert [row["execution_state"] for row in before.values()] == ["waiting", "waiting", "cancelled"]
    assert before["call_three"]["decision_reason"] == "too much"
    tool_server.kill()
    tool_server.start()
    client = await opened(tool_server, conversation_id, resume="snapshot")
    assert client.snapshot is not None
    waiting = {call["tool_call_id"]: call for call in client.snapshot["waiting"]}
    assert {id_: call["confirmation_state"] for id_, call in waiting.items()} == {
        "call_one": "accepted",
        "call_two": "accepted",
    }
    assert waiting["call_one"]["arguments_sha256"] == accepted["arguments_sha256"]
    frames = await client.complete("script/tool-add")
    init = next(frame for frame in frames if frame["type"] == "completion_init")
    assert init["continues_run_id"] == first["run_id"]
    assert frames[-1]["finish_reason"] == "stop"
    after = await call_rows(database_url, conversation_id)
    assert [row["result"] for row in after.values()][:2] == ["3", "34"]
    for row, shown in zip(after.values(), before.values(), strict=True):
        assert row["arguments_sha256"] == hashlib.sha256(row["arguments"].encode()).hexdigest()
        assert row["arguments_sha256"] == shown["arguments_sha256"]
        assert (row["decided_at"], row["decided_by"]) == (shown["decided_at"], shown["decided_by"])
        assert row["run_id"] == first["run_id"]
    assert after["call_two"]["arguments"] == edited
    assert after["call_three"]["started_at"] is None
    kept = await rows(
        database_url,
        "select tool_call_count, step_count from diagnosis_run where run_id = $1",
        first["run_id"],
    )
    assert tuple(kept[0]) == (3, 1)


async def test_ST3_a_stop_while_a_tool_runs_cancels_what_is_open(
    tool_server: ServerProcess, database_url: str
) -> None:
    conversation_id = new_ulid()
    client = await opened(tool_server, conversation_id)
    run = await begin_slow(client)
    await client.send("stop_completion")
    frames = await client.until("completion_done", request_id=run)
    assert [frame["type"] for frame in frames[-2:]] == ["stop_completion", "completion_done"]
    assert not [frame for frame in frames if frame["type"] == "assistant_message_complete"]
    settled = {frame["tool_call_id"]: frame for frame in frames if frame["type"] == "tool_call"}
    assert {id_: call["execution_state"] for id_, call in settled.items()} == {
        "call_slow": "cancelled",
        "call_add": "cancelled",
    }
    assert all(frame["request_id"] == run for frame in settled.values())
    assert frames[-2]["partial_text"] == "A moment. "
    calls = await call_rows(database_url, conversation_id)
    assert {row["execution_state"] for row in calls.values()} == {"cancelled", "succeeded"}
    refused = await decide(client, "call_add", "accept")
    assert refused["code"] == "unknown_tool_call"
    await check_next_turn(client)


async def test_ST7_a_crash_while_a_tool_runs_leaves_it_failed_and_what_waits_waiting(
    tool_server: ServerProcess, database_url: str
) -> None:
    conversation_id = new_ulid()
    client = await opened(tool_server, conversation_id)
    await begin_slow(client)
    tool_server.kill()
    tool_server.start()
    client = await opened(tool_server, conversation_id, resume="snapshot")
    snapshot = client.snapshot
    assert snapshot is not None
    assert snapshot["running"] is None
    assert snapshot["last_run"]["status"] == "interrupted"
    assert [call["tool_call_id"] for call in snapshot["waiting"]] == ["call_add"]
    shown = {call["tool_call_id"]: call for call in snapshot["messages"][1]["tool_calls"]}
    assert shown["call_slow"]["execution_state"] == "failed"
    assert shown["call_slow"]["error"]["code"] == "outcome_unknown"
    assert (await decide(client, "call_add", "accept"))["confirmation_state"] == "accepted"
    frames = await client.complete("script/tool-slow")
    states = [frame["execution_state"] for frame in calls_of(frames, "slow__add")]
    assert states == ["waiting", "running", "succeeded"]
    init = next(frame for frame in frames if frame["type"] == "completion_init")
    assert init["continues_run_id"] == snapshot["last_run"]["run_id"]
    assert not calls_of(frames, "slow__slow"), "it never runs again"
    assert frames[-1]["finish_reason"] == "stop"
    calls = await call_rows(database_url, conversation_id)
    assert calls["call_slow"]["error_code"] == "outcome_unknown"
    await check_next_turn(client)


async def test_CN10_what_waits_for_a_person_outlives_a_drain_and_what_runs_is_told_as_lost(
    tool_server: ServerProcess, database_url: str
) -> None:
    conversation_id = new_ulid()
    client = await opened(tool_server, conversation_id)
    run = await begin_slow(client)
    async with asyncio.TaskGroup() as group:
        ending = group.create_task(asyncio.to_thread(tool_server.terminate))
        code, frames = await client.closed()
    assert (ending.result(), code) == (0, 1012)
    lost = calls_of(frames, "slow__slow")[-1]
    assert (lost["execution_state"], lost["error"]["code"]) == ("failed", "outcome_unknown")
    done = next(frame for frame in frames if frame["type"] == "completion_done")
    assert (done["request_id"], done["finish_reason"]) == (run, "interrupted")
    assert not calls_of(frames, "slow__add")
    tool_server.start()
    client = await opened(tool_server, conversation_id, resume="snapshot")
    assert client.snapshot is not None
    assert [call["tool_call_id"] for call in client.snapshot["waiting"]] == ["call_add"]
    await check_next_turn(client)


async def test_TL4_a_call_expires_only_where_its_tool_says_so(
    tool_server: ServerProcess, database_url: str
) -> None:
    conversation_id = new_ulid()
    client = await opened(tool_server, conversation_id)
    await client.say("add")
    assert (await client.complete("script/tool-brief"))[-1]["finish_reason"] == "tool_calls"
    expired = (await client.until("tool_call", timeout_s=10))[-1]
    assert (expired["execution_state"], expired["error"]["code"]) == ("failed", "tool_timeout")
    assert (await decide(client, "call_brief", "accept"))["code"] == "unknown_tool_call"
    frames = await client.complete("script/tool-brief")
    assert "nobody decided in time" in text_of(frames)
    await client.say("add")
    again = await client.complete("script/tool-brief")
    (waiting,) = calls_of(again, "brief__add")
    assert waiting["tool_call_id"] != "call_brief"
    tool_server.kill()
    await asyncio.sleep(1)
    tool_server.start()
    client = await opened(tool_server, conversation_id, resume="snapshot")
    frames = client.frames
    while not calls_of(frames, "brief__add"):
        await client.receive()
    assert calls_of(frames, "brief__add")[-1]["error"]["code"] == "tool_timeout"
    calls = await call_rows(database_url, conversation_id)
    assert {row["execution_state"] for row in calls.values()} == {"failed"}
    await check_next_turn(client)


async def test_TL1_ids_are_unique_beyond_what_is_in_memory(
    own_server: ServerProcess, database_url: str
) -> None:
    own_server.set(context_messages=3, snapshot_messages=3)
    own_server.start()
    conversation_id = new_ulid()
    for _ in range(2):
        client = await Client.open(own_server.ws_url, conversation_id, client_id="c")
        for _ in range(3):
            await client.say("what time is it?")
            frames = await client.complete("script/tool-same-id")
            assert frames[-1]["finish_reason"] == "stop"
            assert calls_of(frames, "current_time")[-1]["execution_state"] == "succeeded"
        own_server.kill()
        own_server.start()
    calls = await call_rows(database_url, conversation_id)
    assert len(calls) == 6
    assert next(iter(calls)) == "call_0"
    results = await rows(
        database_url,
        "select tool_call_id from session_message where session_id = $1 and role = 'tool' order by sequence",
        conversation_id,
    )
    assert [row[0] for row in results] == list(calls)
