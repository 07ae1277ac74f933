"""The model's canvas tool in a conversation of a project, over a real socket (CV5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from protocol.ids import new_ulid
from tests.harness.client import Client
from tests.harness.project import ProjectClient, assembled

if TYPE_CHECKING:
    from tests.harness.client import Frame
    from tests.harness.processes import ServerProcess


async def draw(client: ProjectClient, conversation_id: str, model: str) -> tuple[list[Frame], list[Frame]]:
    """Let the model ask for a change, agree, and let it go on: the frames of both completions."""
    await client.say_in(conversation_id, "draw something")
    asked = await client.complete_in(conversation_id, model)
    assert asked[-1]["finish_reason"] == "tool_calls"
    (call,) = next(f for f in asked if f["type"] == "assistant_message_complete")["tool_calls"]
    assert (call["name"], call["confirmation_state"]) == ("canvas_edit", "pending")
    decided = await client.tell(
        conversation_id, "confirm_tool", tool_call_id=call["tool_call_id"], decision="accept"
    )
    await client.until("tool_confirmation_processed", request_id=decided)
    return asked, await client.complete_in(conversation_id, model)


async def test_CV5_what_the_model_draws_names_its_call_and_is_told_before_the_call_settles(
    server: ServerProcess,
) -> None:
    project_id, conversation_id = new_ulid(), new_ulid()
    async with await ProjectClient.open(server.ws_url, project_id) as client:
        asked, went_on = await draw(client, conversation_id, "script/draws")
        (drawn,) = [f for f in went_on if f["type"] == "canvas_batch_result"]
        assert (drawn["domain"], drawn["success"], drawn["canvas_version"]) == ("canvas", True, 1)
        assert "request_id" not in drawn
        settled = next(f for f in went_on if f["type"] == "tool_call" and f["execution_state"] == "succeeded")
        assert settled["seq"] > drawn["seq"]
        by = {"run_id": asked[0]["run_id"], "tool_call_id": "draw-1"}
        assert {"run_id": settled["run_id"], "tool_call_id": settled["tool_call_id"]} == by
        assert [entity["created_by"] for entity in (*drawn["nodes"], *drawn["edges"])] == [by] * 3
        told = json.loads(settled["result"])
        assert told["canvas_version"] == 1
        assert told["temp_id_mapping"] == drawn["temp_id_mapping"]
        assert went_on[-1]["finish_reason"] == "stop"
        assert assembled(client.frames) == await client.whole_canvas()


async def test_CV1_a_bad_change_of_the_models_changes_nothing_and_it_is_told_why(
    server: ServerProcess,
) -> None:
    async with await ProjectClient.open(server.ws_url) as client:
        _, went_on = await draw(client, new_ulid(), "script/draws-badly")
        failed = next(f for f in went_on if f["type"] == "tool_call" and f["execution_state"] == "failed")
        assert "there is no such node" in failed["error"]["message"]
        assert went_on[-1]["finish_reason"] == "stop"
        assert not [f for f in client.frames if f["type"] == "canvas_batch_result"]
        canvas = await client.whole_canvas()
        assert (canvas.version, canvas.nodes) == (0, {})


async def test_TL4_a_call_that_waits_is_shown_after_a_restart_however_long_ago_it_was(
    own_server: ServerProcess,
) -> None:
    own_server.start()
    project_id, waiting = new_ulid(), new_ulid()
    others = [new_ulid() for _ in range(11)]
    client = await ProjectClient.open(own_server.ws_url, project_id)
    await client.say_in(waiting, "draw something")
    await client.complete_in(waiting, "script/draws")
    for conversation_id in others:
        await client.say_in(conversation_id, "hello")
    own_server.kill()
    own_server.start()
    async with await ProjectClient.open(own_server.ws_url, project_id) as client:
        assert client.snapshot is not None
        views = client.snapshot["conversations"]
        assert [view["session"]["session_id"] for view in views] == [*others[:0:-1], waiting]
        (call,) = views[-1]["waiting"]
        assert (call["tool_call_id"], call["confirmation_state"]) == ("draw-1", "pending")
        decided = await client.tell(waiting, "confirm_tool", tool_call_id="draw-1", decision="accept")
        await client.until("tool_confirmation_processed", request_id=decided)
        frames = await client.complete_in(waiting, "script/draws")
        assert frames[-1]["finish_reason"] == "stop"
        assert (await client.whole_canvas()).version == 1


async def test_outside_of_projects_a_drawing_waits_too_and_then_has_nothing_to_draw_on(
    server: ServerProcess,
) -> None:
    async with await Client.open(server.ws_url) as client:
        await client.say("draw something")
        frames = await client.complete("script/draws")
        call = next(f for f in frames if f["type"] == "tool_call")
        assert (call["confirmation_state"], call["execution_state"]) == ("pending", "waiting")
        await client.send("confirm_tool", tool_call_id=call["tool_call_id"], decision="accept")
        await client.until("tool_confirmation_processed")
        frames = await client.complete("script/draws")
        last = [f for f in frames if f["type"] == "tool_call"][-1]
        assert last["execution_state"] == "failed"
        assert "canvas" in last["error"]["message"]
