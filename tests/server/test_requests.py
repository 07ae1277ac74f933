"""Repeat-safe requests and stops (ST3, ST4, ST5), where several connections or restarts are needed to see
them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.ids import new_ulid
from tests.harness.client import Client, text_of

if TYPE_CHECKING:
    from tests.harness.processes import ServerProcess


async def test_ST4_a_stop_is_repeat_safe_across_a_restart(own_server: ServerProcess) -> None:
    own_server.start()
    conversation_id = new_ulid()
    client = await Client.open(own_server.ws_url, conversation_id)
    await client.say("hello")
    run = await client.send("request_completion", model="script/slower")
    await client.until("llm_text_chunk")
    stop = await client.send("stop_completion")
    frames = await client.until("completion_done", request_id=run)
    stopped = frames[-2]
    assert stopped["type"] == "stop_completion"
    own_server.kill()
    own_server.start()
    client = await Client.open(own_server.ws_url, conversation_id)
    later = await client.send("request_completion", model="script/slow")
    await client.until("llm_text_chunk", request_id=later)
    await client.send("stop_completion", request_id=stop)
    again = (await client.until("stop_completion"))[-1]
    assert again.pop("repeated") is True
    assert "seq" not in again
    del stopped["seq"]
    assert again == stopped
    assert (await client.until("completion_done"))[-1]["finish_reason"] == "stop"


async def test_ST4_the_stop_of_a_queued_one_is_repeat_safe(server: ServerProcess) -> None:
    client = await Client.open(server.ws_url)
    await client.say("hello")
    running = await client.send("request_completion", model="script/slower")
    await client.until("completion_init", request_id=running)
    queued = await client.send("request_completion", model="script/hello")
    await client.until("completion_queued", request_id=queued)
    stop = await client.send("stop_completion", target_request_id=queued)
    stopped, done = (await client.until("completion_done", request_id=queued))[-2:]
    assert (stopped["type"], stopped["run_id"], stopped["stop_request_id"]) == ("stop_completion", None, stop)
    assert (done["run_id"], done["finish_reason"]) == (None, "stopped")
    await client.send("stop_completion", target_request_id=queued, request_id=stop)
    again = (await client.until("stop_completion", request_id=queued))[-1]
    assert (again["repeated"], again["partial_text"], again["run_id"]) == (True, "", None)
    await client.send("stop_completion", request_id="other", target_request_id=queued)
    assert (await client.until("error", request_id="other"))[-1]["code"] == "nothing_to_stop"


async def test_ST4_a_completion_is_done_once_and_answered_by_its_outcome(server: ServerProcess) -> None:
    client = await Client.open(server.ws_url)
    await client.say("hello")
    first = await client.complete("script/hello", request_id="once")
    await client.send("request_completion", model="script/hello", request_id="once")
    again = (await client.until("completion_done"))[-1]
    assert again["repeated"] is True
    assert "seq" not in again
    assert {k: again[k] for k in ("run_id", "finish_reason", "usage")} == {
        k: first[-1][k] for k in ("run_id", "finish_reason", "usage")
    }
    await client.send("request_completion", model="script/echo", request_id="once")
    assert (await client.until("error"))[-1]["code"] == "request_id_conflict"


async def test_ST4_what_failed_is_not_remembered(server: ServerProcess) -> None:
    client = await Client.open(server.ws_url)
    await client.say("hello")
    runs = set()
    for _ in range(2):
        frames = await client.complete("script/reset", request_id="again")
        assert [f["type"] for f in frames[-2:]] == ["error", "completion_done"]
        assert frames[-2]["code"] == "llm_unavailable"
        runs.add(frames[-1]["run_id"])
    assert len(runs) == 2


async def test_ST5_interrupt_ends_the_running_one_as_stopped_first(server: ServerProcess) -> None:
    client = await Client.open(server.ws_url)
    await client.say("hello")
    first = await client.send("request_completion", model="script/slower")
    await client.until("llm_text_chunk")
    second = await client.send("request_completion", model="script/hello", on_busy="interrupt")
    frames = await client.until("completion_done", request_id=first)
    assert frames[-1]["finish_reason"] == "stopped"
    assert frames[-2]["stop_request_id"] == second
    assert frames[-2]["partial_text"] == text_of([f for f in client.frames if f.get("request_id") == first])
    rest = await client.until("completion_done", request_id=second)
    assert rest[0]["type"] == "completion_init"
    assert rest[-1]["finish_reason"] == "stop"


async def test_TL1_a_call_of_an_unknown_tool_fails_and_the_model_goes_on(server: ServerProcess) -> None:
    client = await Client.open(server.ws_url)
    await client.say("hello")
    frames = await client.complete("script/calls")
    kinds = [frame["type"] for frame in frames]
    assert "tool_call_chunk" in kinds
    call = next(frame for frame in frames if frame["type"] == "tool_call")
    assert (call["execution_state"], call["error"]["code"]) == ("failed", "tool_failed")
    first, last = [frame for frame in frames if frame["type"] == "assistant_message_complete"]
    assert (first["finish_reason"], last["finish_reason"]) == ("tool_calls", "stop")
    assert first["tool_calls"][0]["execution_state"] == "failed"
    assert call["sequence"] == first["sequence"] + 1 == last["sequence"] - 1
    assert "no tool named no_such_tool" in last["content"]
    assert frames[-1]["finish_reason"] == "stop"
