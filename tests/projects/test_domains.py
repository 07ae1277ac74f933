"""Both domains on one socket: conversations of a project, isolation, one sequence, resume and snapshot."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from protocol.ids import new_ulid
from tests.harness.client import Client, Refused, text_of
from tests.harness.project import ProjectClient, assembled

if TYPE_CHECKING:
    from tests.harness.client import Frame
    from tests.harness.processes import ServerProcess


async def test_CV4_a_canvas_error_leaves_a_running_completion_alone(server: ServerProcess) -> None:
    conversation_id = new_ulid()
    async with await ProjectClient.open(server.ws_url) as client:
        await client.say_in(conversation_id, "hello")
        run = await client.tell(conversation_id, "request_completion", model="script/brief")
        await client.until("llm_text_chunk", request_id=run)
        bad = await client.canvas("batch_create", nodes=[{"size": "large"}])
        assert not bad["success"]
        assert (await client.canvas("node_delete", node_id="00000000-0000-7000-8000-000000000000"))[
            "code"
        ] == "not_found"
        good = await client.create(2, [("n0", "n1")])
        assert good["success"]
        refused = await client.tell(conversation_id, "confirm_tool", tool_call_id="x", decision="accept")
        assert (await client.until("error", request_id=refused))[-1]["code"] == "unknown_tool_call"
        await client.until("completion_done", request_id=run)
        mine = [frame for frame in client.frames if frame.get("request_id") == run]
        assert text_of(mine) == "A short answer, word by word. "
        assert mine[-1]["finish_reason"] == "stop"
        assert {(frame["domain"], frame["conversation_id"]) for frame in mine} == {
            ("conversation", conversation_id)
        }
        assert all("conversation_id" not in f for f in client.frames if f.get("domain") == "canvas")
        assert mine[0]["seq"] < good["seq"] < mine[-1]["seq"]


async def test_CV5_the_order_of_both_domains_survives_a_reconnect(server: ServerProcess) -> None:
    project_id, conversation_id = new_ulid(), new_ulid()
    first = await ProjectClient.open(server.ws_url, project_id, client_id="c")
    position = first.position
    await first.say_in(conversation_id, "hello")
    run = await first.tell(conversation_id, "request_completion", model="script/brief")
    await first.until("llm_text_chunk", request_id=run)
    await first.create(2, [("n0", "n1")])
    await first.canvas("node_create", node={})
    whole = list(first.frames)
    cut = first.position
    first.drop()
    second = await ProjectClient.open(server.ws_url, project_id, client_id="c", **cut)
    assert second.connected["resume"] == "replayed"
    assert second.snapshot is None
    await second.until("completion_done", request_id=run)
    whole += second.frames
    await second.close()
    third = await ProjectClient.open(server.ws_url, project_id, **position)
    assert third.connected["resume"] == "replayed"
    replayed = await third.until("completion_done", request_id=run)
    assert replayed == [frame for frame in whole if "seq" in frame]
    domains = [frame["domain"] for frame in replayed]
    assert {"canvas", "conversation"} == set(domains)
    assert domains != sorted(domains)
    await third.close()


async def test_conversations_of_a_project_run_side_by_side(server: ServerProcess) -> None:
    one, two = new_ulid(), new_ulid()
    async with await ProjectClient.open(server.ws_url) as client:
        runs = []
        for conversation_id in (one, two):
            await client.say_in(conversation_id, f"I am {conversation_id}")
            runs.append(await client.tell(conversation_id, "request_completion", model="script/brief"))
        queued = await client.tell(one, "request_completion", model="script/echo")
        assert (await client.until("completion_queued"))[-1]["conversation_id"] == one
        ended: list[Frame] = []
        while len(ended) < 3:
            ended += [f for f in await client.until("completion_done") if f["type"] == "completion_done"]
        assert {frame["request_id"] for frame in ended} == {*runs, queued}
        for conversation_id, run in ((one, runs[0]), (two, runs[1])):
            mine = [
                f
                for f in client.frames
                if f.get("conversation_id") == conversation_id and f["request_id"] == run
            ]
            assert text_of(mine) == "A short answer, word by word. "
        again = await client.tell(two, "stop_completion")
        refused = (await client.until("error", request_id=again))[-1]
        assert (refused["code"], refused["conversation_id"]) == ("nothing_to_stop", two)


async def test_a_conversation_belongs_to_its_project_or_to_itself(server: ServerProcess) -> None:
    project_id, of_project, own = new_ulid(), new_ulid(), new_ulid()
    async with await Client.open(server.ws_url, own) as client:
        await client.say("mine")
    async with await ProjectClient.open(server.ws_url, project_id) as client:
        await client.say_in(of_project, "the project's")
        refused = await client.say_in(own, "no")
        assert (refused["type"], refused["code"], refused["conversation_id"]) == ("error", "not_found", own)
        with pytest.raises(Refused) as closed:
            await Client.open(server.ws_url, of_project)
        assert closed.value.code == 4404
        assert closed.value.frame is not None
        assert closed.value.frame["code"] == "use_project_socket"
        async with await ProjectClient.open(server.ws_url) as other:
            assert (await other.say_in(of_project, "no"))["code"] == "not_found"
        assert (await client.say_in(of_project, "still here"))["sequence"] == 1
    async with await Client.open(server.ws_url, own) as client:
        assert client.snapshot is None or len(client.snapshot["messages"]) == 1


async def test_CN4_a_project_and_a_conversation_of_the_same_id_do_not_exclude_each_other(
    server: ServerProcess,
) -> None:
    same = new_ulid()
    async with (
        await ProjectClient.open(server.ws_url, same) as project,
        await Client.open(server.ws_url, same) as conversation,
    ):
        await project.create(1)
        assert (await conversation.say("hello"))["seq"] == 1


async def test_ER4_a_refusal_for_the_rate_is_at_its_address(server: ServerProcess) -> None:
    conversation_id = new_ulid()
    async with await ProjectClient.open(server.ws_url) as client:
        for _ in range(30):
            await client.socket.send('{"type": "ping", "t": 1}')
        late = await client.tell(conversation_id, "append_message", role="user", content="too late")
        refused = (await client.until("error", request_id=late))[-1]
        assert (refused["code"], refused["conversation_id"]) == ("rate_limited", conversation_id)
        assert [f for f in client.frames if f["type"] == "error" and "domain" not in f]


async def test_CN1_a_project_has_one_holder_and_takeover_works(server: ServerProcess) -> None:
    project_id = new_ulid()
    holder = await ProjectClient.open(server.ws_url, project_id)
    await holder.create(1)
    with pytest.raises(Refused) as refused:
        await ProjectClient.open(server.ws_url, project_id)
    assert refused.value.code == 4009
    newer = await ProjectClient.open(server.ws_url, project_id, takeover=True)
    assert (await holder.closed())[0] == 4010
    await newer.create(1)
    await newer.close()


async def test_CN6_a_snapshot_has_what_runs_and_the_ten_used_last(server: ServerProcess) -> None:
    project_id = new_ulid()
    ids = [new_ulid() for _ in range(13)]
    async with await ProjectClient.open(server.ws_url, project_id, client_id="c") as client:
        await client.say_in(ids[0], "first")
        run = await client.tell(ids[0], "request_completion", model="script/slower")
        await client.until("llm_text_sentence", request_id=run)
        for conversation_id in ids[1:]:
            await client.say_in(conversation_id, "hello")
        await client.create(1)
        async with await ProjectClient.open(
            server.ws_url, project_id, client_id="c", resume="snapshot"
        ) as second:
            snapshot = second.snapshot
            assert snapshot is not None
            assert snapshot["as_of_seq"] == second.connected["seq"]
            assert (snapshot["canvas_version"], snapshot["project"]["project_id"]) == (1, project_id)
            assert "session" not in snapshot
            shown = [view["session"]["session_id"] for view in snapshot["conversations"]]
            assert shown == [*reversed(ids[3:]), ids[0]]
            running = snapshot["conversations"][-1]["running"]
            assert running["request_id"] == run
            chunks = text_of(
                [f for f in await second.until("llm_text_sentence") if f["type"] == "llm_text_chunk"]
            )
            assert chunks
            stop = await second.tell(ids[0], "stop_completion", target_request_id=run)
            frames = await second.until("completion_done", request_id=run)
            stopped = next(f for f in frames if f["type"] == "stop_completion")
            assert stopped["stop_request_id"] == stop
            assert stopped["partial_text"].startswith(running["text"] + chunks)


async def test_a_project_lists_its_conversations(server: ServerProcess) -> None:
    project_id = new_ulid()
    ids = [new_ulid() for _ in range(3)]
    async with await ProjectClient.open(server.ws_url, project_id) as client:
        for conversation_id in ids:
            await client.say_in(conversation_id, "hello", metadata={})
        request_id = await client.send("conversation_list")
        listed = (await client.until("conversation_listed", request_id=request_id))[-1]
        assert [one["conversation_id"] for one in listed["conversations"]] == ids[::-1]
        assert [one["message_count"] for one in listed["conversations"]] == [1, 1, 1]
        assert (listed["next_cursor"], listed["domain"], "seq" in listed) == (None, "conversation", False)
        request_id = await client.send("conversation_list", domain="conversation", cursor="none of yours")
        assert (await client.until("error", request_id=request_id))[-1]["code"] == "invalid_request"


async def test_CN6_after_a_restart_the_project_is_a_snapshot(own_server: ServerProcess) -> None:
    own_server.start()
    project_id, conversation_id = new_ulid(), new_ulid()
    client = await ProjectClient.open(own_server.ws_url, project_id, client_id="c")
    await client.create(3, [("n0", "n1"), ("n1", "n2")])
    await client.say_in(conversation_id, "hello")
    await client.complete_in(conversation_id, "script/hello")
    canvas = assembled(client.frames)
    position = client.position
    own_server.terminate()
    assert (await client.closed())[0] == 1012
    own_server.start()
    async with await ProjectClient.open(own_server.ws_url, project_id, client_id="c", **position) as again:
        assert again.snapshot is not None
        (view,) = again.snapshot["conversations"]
        assert [message["role"] for message in view["messages"]] == ["user", "assistant"]
        assert view["last_run"]["status"] == "succeeded"
        assert again.snapshot["canvas_version"] == canvas.version
        assert await again.whole_canvas() == canvas
        made = await again.create(1)
        assert made["canvas_version"] == canvas.version + 1


async def test_CN10_a_drain_interrupts_what_runs_in_every_conversation(own_server: ServerProcess) -> None:
    own_server.start()
    project_id = new_ulid()
    ids = [new_ulid(), new_ulid()]
    client = await ProjectClient.open(own_server.ws_url, project_id)
    runs = []
    for conversation_id in ids:
        await client.say_in(conversation_id, "hello")
        runs.append(await client.tell(conversation_id, "request_completion", model="script/slower"))
        await client.until("llm_text_chunk", request_id=runs[-1])
    async with asyncio.TaskGroup() as group:
        ended = group.create_task(asyncio.to_thread(own_server.terminate))
        code, frames = await client.closed()
    assert (code, ended.result()) == (1012, 0)
    done = {f["request_id"]: f["finish_reason"] for f in frames if f["type"] == "completion_done"}
    assert done == dict.fromkeys(runs, "interrupted")
    assert [f for f in frames if f["type"] == "draining"]
