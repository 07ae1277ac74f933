"""Random lives of conversations with tools: nothing runs that nobody accepted, nothing runs twice, and every
history is one that a model takes (TL3 to TL8, ST3, ST7)."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import pytest

from protocol.client_frames import OnPending, RequestCompletion
from protocol.ids import utc_now
from protocol.tool_call import Decision
from server.actors import completions
from server.actors.calls import Call, Calls
from server.llm.base import ChatMessage, ToolCallRequest
from server.tools.confirmation import Accepted, Decided, Pending, Settled, arguments_of, decided_of
from tests.harness.openai_rules import RuleBroken, check_messages
from tests.harness.processes import ROOT
from tests.harness.tool_life import Counts, Life, live, open_world
from tests.harness.tool_sockets import Approvals, SocketLife

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.session import SessionMessage
    from tests.harness.processes import ServerProcess, StubProcess

LIVES = int(os.environ.get("TURNWIRE_TOOL_LIVES", "100"))
"""Simulated lives; 1000 for a release."""
SOCKET_LIVES = int(os.environ.get("TURNWIRE_TOOL_SOCKET_LIVES", "20"))
"""Lives over real sockets; 100 for a release."""
SOUGHT = 60
"""So many lives at most, until a deliberate mistake shows."""


async def simulate(database_url: str, lives: int, *, until: str | None = None) -> Counts:
    """Lives of the seeds 0, 1, 2 …; with ``until`` only so many as it takes to see that counter go up."""
    async with open_world(database_url) as world:
        for seed in range(lives):
            try:
                life = await live(world, seed)
            except Exception as error:
                error.add_note(f"seed {seed}")
                raise
            if until is None:
                assert world.counts.clean, f"seed {seed}: {world.counts}"
                await check_stored(database_url, life, seed)
            elif getattr(world.counts, until):
                break
        return world.counts


async def check_stored(database_url: str, life: Life, seed: int) -> None:
    """All is settled and answered, in a gapless history; what ran is what was decided, by hash (TL6)."""
    connection = await asyncpg.connect(database_url)
    try:
        calls = await connection.fetch("select * from tool_invocation where session_id = $1", life.id)
        messages = await connection.fetch(
            "select * from session_message where session_id = $1 order by sequence", life.id
        )
        running = await connection.fetchval(
            "select count(*) from diagnosis_run where session_id = $1 and status = 'running'", life.id
        )
    finally:
        await connection.close()
    where = f"seed {seed}, {life.id}"
    assert running == 0, where
    assert [row["sequence"] for row in messages] == list(range(len(messages))), where
    answered = [row["tool_call_id"] for row in messages if row["role"] == "tool"]
    assert sorted(answered) == sorted(row["tool_call_id"] for row in calls), where
    rows = {row["tool_call_id"]: row for row in calls}
    assert {row["execution_state"] for row in calls} <= {"succeeded", "failed", "cancelled"}, where
    assert life.hashes.keys() <= rows.keys(), where
    for tool_call_id, sha in life.hashes.items():
        row = rows[tool_call_id]
        assert row["arguments_sha256"] == sha, where
        assert row["started_at"] is not None, where
        if row["tool_name"] == "change":
            assert (row["decision"], row["confirmation_state"]) == ("accept", "accepted"), where
            assert row["decided_by"] == "local", where
            assert row["decided_at"] is not None, where
    for row in calls:
        ran_well = row["execution_state"] == "succeeded" and row["tool_name"] != "ask_user"
        assert not ran_well or row["tool_call_id"] in life.hashes, where


@pytest.mark.timeout(60 + 2 * LIVES)
async def test_TL5_TL6_TL8_random_lives_run_nothing_unapproved_and_nothing_twice(database_url: str) -> None:
    counts = await simulate(database_url, LIVES)
    assert counts.clean
    assert counts.executions > LIVES
    assert counts.requests > 2 * LIVES


async def test_ST3_a_stop_while_the_commit_of_a_turn_is_in_doubt_ends_as_stopped(database_url: str) -> None:
    async with open_world(database_url) as world, anyio.create_task_group() as group:
        world.life = life = Life(world, group)
        await life.start()
        life.say()
        await life.quiet()
        world.replies = [[("change", '{"n": 1}'), ("touch", "{")]]
        world.doubts = 1
        life.send(RequestCompletion(request_id="run", on_pending=OnPending.REJECT))
        async with asyncio.timeout(10):
            while world.doubts:
                await asyncio.sleep(0.001)
            life.stop()
            while "run" not in life.answers:
                await asyncio.sleep(0.001)
        assert life.answers["run"]["finish_reason"] == "stopped"
        connection = await asyncpg.connect(database_url)
        states = await connection.fetch("select execution_state from tool_invocation order by id")
        statuses = await connection.fetch("select status from diagnosis_run")
        await connection.close()
        assert [row[0] for row in states] == ["cancelled", "failed"]
        assert [row[0] for row in statuses] == ["stopped"]
        assert life.told == {"change": "cancelled", "touch": "failed"}
        await life.close()


@pytest.mark.timeout(120)
async def test_TL8_a_pending_call_taken_for_an_accepted_one_is_counted(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(self: Calls) -> list[Call]:
        accepted = []
        for call in self.open.values():
            state = call.state
            if isinstance(state, Pending):
                decided = Decided(Decision.ACCEPT, "nobody", utc_now(), arguments_of(state))
                accepted.append(call._replace(state=Accepted(state.asked, decided)))
            elif isinstance(state, Accepted):
                accepted.append(call)
        return accepted

    monkeypatch.setattr(Calls, "accepted", property(careless))
    counts = await simulate(database_url, SOUGHT, until="unapproved")
    assert counts.unapproved


@pytest.mark.timeout(120)
async def test_TL5_a_settled_call_that_stays_accepted_is_counted(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Calls.moved

    def forgetful(self: Calls, calls: Sequence[Call], *arguments: Any, **fields: Any) -> None:
        whole(self, calls, *arguments, **fields)
        for call in calls:
            decided = decided_of(call.state)
            if (
                isinstance(call.state, Settled)
                and decided is not None
                and decided.decision is Decision.ACCEPT
            ):
                self.open[call.id] = call._replace(state=Accepted(call.state.asked, decided))

    monkeypatch.setattr(Calls, "moved", forgetful)
    counts = await simulate(database_url, SOUGHT, until="doubled")
    assert counts.doubled


@pytest.mark.timeout(120)
async def test_ST8_a_history_in_the_order_of_the_store_is_counted(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def naive(
        messages: Sequence[SessionMessage], system_prompt: str | None = None
    ) -> tuple[ChatMessage, ...]:
        return tuple(
            ChatMessage(
                message.role.value,
                message.content,
                message.tool_call_id,
                tuple(ToolCallRequest(c.tool_call_id, c.name, c.arguments) for c in message.tool_calls),
            )
            for message in messages
        )

    monkeypatch.setattr(completions, "build_prompt", naive)
    counts = await simulate(database_url, SOUGHT, until="refused")
    assert counts.refused


def recording(own_server: ServerProcess, folder: Path) -> Path:
    """Have a server offer the recorder's tools; gives the file of the record."""
    record, config = folder / "record", folder / "turnwire.toml"
    command = json.dumps([sys.executable, "-m", "tests.harness.recorder_server", str(record)])
    config.write_text(f'[mcp.rec]\ncommand = {command}\nenv.PYTHONPATH = "{ROOT}"\ntools.now = "immediate"\n')
    own_server.set(config=config, rate_burst=1000, rate_per_s=1000)
    return record


@pytest.mark.timeout(120 + 20 * SOCKET_LIVES)
async def test_TL5_ST7_random_lives_over_sockets_with_restarts(
    own_server: ServerProcess, stub: StubProcess, tmp_path: Path
) -> None:
    record = recording(own_server, tmp_path)
    await asyncio.to_thread(own_server.start)
    approvals = Approvals()
    requests = 0
    for seed in range(SOCKET_LIVES):
        life = SocketLife(own_server, approvals, random.Random(seed))
        await life.run(25)
        assert approvals.broken(record) == [], f"seed {seed}, {life.id}"
        assert life.refused == [], f"seed {seed}, {life.id}: {life.refused}"
        sent = (await asyncio.to_thread(stub_requests, stub.url))[-100:]
        ours = [one["messages"] for one in sent if "rec-" in one["model"]]
        for messages in ours:
            check_messages([as_sent(message) for message in messages])
        requests += len(ours)
    assert requests > 2 * SOCKET_LIVES
    assert len(record.read_text().splitlines()) > SOCKET_LIVES


def as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """A message of the stub's record as OpenAI has it."""
    calls = [
        {"id": call["id"], "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in message.get("tool_calls") or ()
    ]
    return {**message, "tool_calls": calls}


def stub_requests(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/stub/requests", timeout=30) as answer:
        requests: list[dict[str, Any]] = json.load(answer)["requests"]
    return requests


CALL = {"id": "1", "type": "function", "function": {"name": "x", "arguments": "{}"}}
USER = {"role": "user", "content": "hi"}
CALLS = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": ""}


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER, CALLS],
        [USER, RESULT],
        [USER, CALLS, USER, RESULT],
        [USER, CALLS, RESULT, RESULT],
        [USER, CALLS, RESULT, CALLS, RESULT],
        [USER, {**CALLS, "tool_calls": [CALL, CALL]}, RESULT, RESULT],
        [USER, {"role": "assistant", "content": ""}],
        [{"role": "user", "content": ""}],
        [USER, {**CALLS, "tool_calls": [{**CALL, "function": {"name": "a b", "arguments": "{}"}}]}, RESULT],
    ],
)
def test_the_checker_of_histories_refuses_what_endpoints_refuse(messages: list[dict[str, Any]]) -> None:
    check_messages([USER, CALLS, RESULT, USER])
    with pytest.raises(RuleBroken):
        check_messages(messages)
