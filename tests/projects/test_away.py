"""The store away while a project is used (CV4, ER5): the canvas says so, and a repeat is done once."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from protocol.ids import new_ulid
from tests.harness.postgres import HurtPostgres, hurt_postgres
from tests.harness.processes import ServerProcess
from tests.harness.project import ProjectClient, assembled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.client import Frame
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


async def until_done(client: ProjectClient, kind: str, **fields: Any) -> Frame:
    """Send under one request id until the store is back, as a client would."""
    request_id = new_ulid()
    async with asyncio.timeout(30):
        while True:
            answer = await client.canvas(kind, request_id=request_id, **fields)
            if answer["type"] != "error":
                return answer
            assert answer["code"] == "storage_unavailable"
            assert answer["retryable"]
            await asyncio.sleep(0.3)


async def test_CV4_a_frozen_store_is_told_in_the_canvas_and_the_answer_streams_on(
    hurt_server: ServerProcess, postgres_away: HurtPostgres
) -> None:
    conversation_id = new_ulid()
    client = await ProjectClient.open(hurt_server.ws_url)
    made = await client.create(1)
    await client.say_in(conversation_id, "hello")
    run = await client.tell(conversation_id, "request_completion", model="script/slow")
    await client.until("llm_text_chunk", request_id=run)
    postgres_away.signal(signal.SIGSTOP)
    try:
        started = time.monotonic()
        refused = await client.canvas("node_create", node={}, request_id="away")
        assert (refused["code"], refused["retryable"]) == ("storage_unavailable", True)
        assert time.monotonic() - started < 2.5
        page = await client.canvas("get")  # from memory, or refused: what is in doubt is not told
        assert page["type"] == "error"
        await client.until("llm_text_chunk", request_id=run)
    finally:
        postgres_away.signal(signal.SIGCONT)
    again = await until_done(client, "node_create", node={})
    assert again["canvas_version"] in {2, 3}
    await client.until("completion_done", request_id=run)
    await client.canvas("node_delete", node_id=made["nodes"][0]["id"])
    assert assembled(client.frames) == await client.whole_canvas()
    await client.close()


async def test_ER5_batches_over_a_killed_store_are_done_once(
    hurt_server: ServerProcess, postgres_away: HurtPostgres
) -> None:
    client = await ProjectClient.open(hurt_server.ws_url)
    for number in range(4):
        sent = await client.send("canvas_node_create", domain="canvas", node={"type": f"lost-{number}"})
        postgres_away.signal(signal.SIGKILL)
        result = await until_done(client, "batch_create", nodes=[{"type": f"n{number}"}] * 3)
        assert result["success"]
        if not any(f.get("request_id") == sent for f in client.frames):
            await client.until("canvas_changed", "error", request_id=sent)
    canvas = await client.whole_canvas()
    types = [node["type"] for node in canvas.nodes.values()]
    assert all(types.count(f"n{number}") == 3 for number in range(4))
    assert all(types.count(f"lost-{number}") <= 1 for number in range(4))
    assert assembled(client.frames) == canvas
    await client.close()
