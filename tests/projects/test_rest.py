"""Projects over REST, and the model's way to the canvas, on a real store and real actors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from protocol.canvas import CreatedBy
from protocol.errors import Fault
from protocol.ids import new_ulid
from server.actors.kinds import Kind
from server.actors.project import ProjectActor
from server.actors.resume import Wish
from server.canvas.edits import RawBatch
from tests.harness.peer import MemoryPeer
from tests.projects.support import change, edge, node
from tests.rest.conftest import Rest, bearer, serving, tokens_file

__all__ = ["tokens_file"]

BY = CreatedBy(run_id="run-1", tool_call_id="call-1")


@asynccontextmanager
async def project(rest: Rest, project_id: str) -> AsyncIterator[ProjectActor]:
    async with rest.registry.use(project_id, "local", kind=Kind.PROJECT) as actor:
        assert isinstance(actor, ProjectActor)
        yield actor


def batch(**lists: list[Any]) -> RawBatch:
    return RawBatch(**{k: [Raw(msgspec.json.encode(item)) for item in v] for k, v in lists.items()})


async def test_a_project_is_made_read_and_deleted(database_url: str) -> None:
    async with serving(database_url) as rest:
        project_id = (await rest.data("POST", "/api/projects", json={"metadata": {"title": "Plan"}}))[
            "projectId"
        ]
        found = await rest.data("GET", f"/api/projects/{project_id}")
        assert (found["projectId"], found["metadata"], found["canvasVersion"]) == (
            project_id,
            {"title": "Plan"},
            0,
        )
        assert await rest.data("GET", f"/api/projects/{project_id}/canvas") == {
            "nodes": [],
            "edges": [],
            "canvasVersion": 0,
            "nextCursor": None,
        }
        status, body = await rest.call("POST", "/api/projects", json={"projectId": project_id})
        assert (status, body["error"]["code"]) == (409, "project_exists")
        assert await rest.data("DELETE", f"/api/projects/{project_id}") == {"projectId": project_id}
        for method, path in (("GET", ""), ("GET", "/canvas"), ("DELETE", "")):
            status, body = await rest.call(method, f"/api/projects/{project_id}{path}")
            assert (status, body["error"]["code"]) == (404, "not_found")
        status, _ = await rest.call("POST", "/api/projects", json={"projectId": project_id})
        assert status == 409
        with pytest.raises(Fault):
            async with project(rest, project_id):
                pass


async def test_a_canvas_is_read_page_by_page(database_url: str) -> None:
    async with serving(database_url) as rest:
        project_id = new_ulid()
        nodes = [node(data={"some_key": {"x": 1}}, created_by=BY) for _ in range(3)]
        ends = [edge(nodes[0], nodes[1]), edge(nodes[1], nodes[2])]
        await rest.store.canvases.write(change(project_id, 0, *nodes, *ends))
        path, seen, cursor = f"/api/projects/{project_id}/canvas", [], None
        while True:
            page = await rest.data("GET", path, params={"limit": 2, **({"cursor": cursor} if cursor else {})})
            assert page["canvasVersion"] == 1
            seen += [*page["nodes"], *page["edges"]]
            if (cursor := page["nextCursor"]) is None:
                break
        assert [entity["id"] for entity in seen] == [entity.id for entity in (*nodes, *ends)]
        assert seen[0]["data"] == {"some_key": {"x": 1}}
        assert seen[0]["createdBy"] == {"runId": "run-1", "toolCallId": "call-1"}
        for params in ({"limit": 0}, {"limit": 201}, {"cursor": "foreign"}):
            status, body = await rest.call("GET", path, params=params)
            assert (status, body["error"]["code"]) == (400, "invalid_request")


async def test_another_principals_project_is_answered_like_one_that_is_not_there(
    database_url: str, tokens_file: Path
) -> None:
    async with serving(database_url, tokens_file=tokens_file) as rest:
        made = await rest.data("POST", "/api/projects", json={}, headers=bearer("token-a"))
        for project_id in (made["projectId"], new_ulid(), "no-id"):
            for method, path in (("GET", ""), ("GET", "/canvas"), ("DELETE", "")):
                answer = await rest.call(
                    method, f"/api/projects/{project_id}{path}", headers=bearer("token-b")
                )
                assert answer == (
                    404,
                    {
                        "success": False,
                        "error": {"code": "not_found", "message": "There is no such project.", "details": {}},
                    },
                )
        status, _ = await rest.call(
            "POST", "/api/sessions", json={"projectId": made["projectId"]}, headers=bearer("token-b")
        )
        assert status == 404


async def test_a_session_of_a_project_is_one_of_its_conversations(database_url: str) -> None:
    async with serving(database_url) as rest:
        project_id = new_ulid()
        session_id = await rest.new_session(projectId=project_id)
        path = f"/api/sessions/{session_id}"
        assert (await rest.data("GET", f"/api/projects/{project_id}"))["canvasVersion"] == 0
        async with project(rest, project_id) as actor:
            peer = MemoryPeer()
            await actor.admit(peer, Wish(snapshot=True))
            (view,) = peer.told[1]["conversations"]
            assert view["session"]["session_id"] == session_id
            body = {"role": "user", "content": "hello", "requestId": "r"}
            assert (await rest.data("POST", f"{path}/messages", json=body))["message"]["sequence"] == 0
            assert (await rest.data("POST", f"{path}/messages", json=body))["repeated"]
            changed = await rest.data("PATCH", path, json={"metadata": {"title": "T"}})
            assert (changed["metadata"], changed["projectId"]) == ({"title": "T"}, project_id)
            await asyncio.sleep(0)
            (frame,) = peer.frames
            assert (frame["type"], frame["domain"], frame["conversation_id"], frame["origin"]) == (
                "message_appended",
                "conversation",
                session_id,
                "rest",
            )
            await rest.data("DELETE", path)
            assert peer.closed is None
            assert not actor.snapshot().conversations
            with pytest.raises(Fault) as refused:
                await actor._conversations.use(session_id)
            assert refused.value.code == "not_found"
        status, _ = await rest.call("POST", f"{path}/messages", json={"role": "user", "content": "late"})
        assert status == 404


async def test_a_session_of_a_project_that_nobody_holds_is_reached_too(database_url: str) -> None:
    async with serving(database_url) as rest:
        project_id = new_ulid()
        session_id = await rest.new_session(projectId=project_id)
        body = {"role": "user", "content": "hello"}
        sent = await rest.data("POST", f"/api/sessions/{session_id}/messages", json=body)
        assert sent["message"]["sequence"] == 0
        assert [(one.kind, one.resource_id) for one in rest.registry.live] == [("project", project_id)]


async def test_a_project_that_a_socket_holds_is_made_by_its_actor(database_url: str) -> None:
    project_id, other = new_ulid(), new_ulid()
    async with serving(database_url) as rest:
        async with project(rest, project_id) as actor:
            peer = MemoryPeer()
            await actor.admit(peer, Wish())
            made = await rest.data(
                "POST", "/api/projects", json={"projectId": project_id, "metadata": {"title": "T"}}
            )
            assert made == {"projectId": project_id}
            status, _ = await rest.call("POST", "/api/projects", json={"projectId": project_id})
            assert status == 409
            assert (await actor.apply(batch(create_nodes=[{}]), BY)).canvas_version == 1
            assert actor.snapshot().project.metadata == {"title": "T"}  # type: ignore[union-attr]
            await rest.new_session(projectId=project_id)
        async with project(rest, other) as actor:
            peer = MemoryPeer()
            await actor.admit(peer, Wish())
            conversation = await actor._conversations.use(new_ulid())
            session_id = conversation.ledger.session_id
            assert await rest.new_session(projectId=other, sessionId=session_id) == session_id
            assert conversation.ledger.seed is None
            status, _ = await rest.call(
                "POST", "/api/sessions", json={"projectId": other, "sessionId": session_id}
            )
            assert status == 409
            assert (await actor.apply(batch(create_nodes=[{}]), BY)).canvas_version == 1
            assert peer.closed is None
        assert (await rest.data("GET", f"/api/projects/{project_id}"))["metadata"] == {"title": "T"}


async def test_deleting_a_project_closes_its_holder(database_url: str) -> None:
    async with serving(database_url) as rest:
        project_id = new_ulid()
        async with project(rest, project_id) as actor:
            peer = MemoryPeer()
            await actor.admit(peer, Wish())
            assert (await actor.apply(batch(create_nodes=[{}]), BY)).success
            await rest.data("DELETE", f"/api/projects/{project_id}")
            while peer.closed is None:
                await asyncio.sleep(0)
        assert peer.closed[0] == 4404


async def test_CV5_a_tools_batch_takes_the_same_path_and_is_done_once(database_url: str) -> None:
    async with serving(database_url) as rest:
        project_id = new_ulid()
        async with project(rest, project_id) as actor:
            peer = MemoryPeer()
            await actor.admit(peer, Wish())
            wanted = batch(create_nodes=[{"temp_id": "a"}], create_edges=[{"source": "a", "target": "a"}])
            result = await actor.apply(wanted, BY)
            assert result.success
            assert [entity.created_by for entity in (*result.nodes, *result.edges)] == [BY, BY]
            again = await actor.apply(wanted, BY)
            assert (again.repeated, again.canvas_version) == (True, 1)
            assert again.temp_id_mapping == result.temp_id_mapping
            bad = await actor.apply(
                batch(create_nodes=[{}], delete_edge_ids=["x"]),
                CreatedBy(run_id="run-1", tool_call_id="call-2"),
            )
            assert not bad.success
            assert [(p.op, p.kind, p.index, p.field) for p in bad.errors] == [("delete", "edge", 0, "id")]
            with pytest.raises(Fault) as refused:
                await actor.apply(batch(create_nodes=[{}] * 501), CreatedBy(run_id="r", tool_call_id="c"))
            assert refused.value.code == "too_large"
            with pytest.raises(Fault) as refused:
                await actor.apply(batch(create_nodes=[{}]), BY)
            assert refused.value.code == "request_id_conflict"
            (frame,) = peer.frames
            assert (frame["type"], frame["domain"], frame["seq"]) == ("canvas_batch_result", "canvas", 1)
            assert "request_id" not in frame
        page = await rest.data("GET", f"/api/projects/{project_id}/canvas")
        assert [entity["createdBy"]["toolCallId"] for entity in (*page["nodes"], *page["edges"])] == [
            "call-1"
        ] * 2


async def test_one_batch_of_a_tool_may_create_update_and_delete(database_url: str) -> None:
    project_id = new_ulid()
    a, b, c = node(), node(), node()
    ab, bc = edge(a, b), edge(b, c)
    async with serving(database_url) as rest:
        await rest.store.canvases.write(change(project_id, 0, a, b, c, ab, bc))
        async with project(rest, project_id) as actor:
            result = await actor.apply(
                batch(
                    create_nodes=[{"temp_id": "d"}],
                    create_edges=[{"source": "d", "target": a.id}],
                    update_nodes=[{"id": c.id, "version": 1, "type": "end"}],
                    update_edges=[{"id": ab.id, "version": 1, "target": "d"}],
                    delete_node_ids=[b.id],
                ),
                BY,
            )
            assert result.success
            d = result.temp_id_mapping["d"]
            assert (result.deleted_node_ids, result.deleted_edge_ids) == ([b.id], [bc.id])
        version, nodes, edges = await rest.store.canvases.read(project_id, actor._ledger.fence)
        assert (version, {one.id for one in nodes}) == (2, {a.id, c.id, d})
        assert sorted((one.source, one.target) for one in edges) == sorted([(a.id, d), (d, a.id)])
        moved = next(one for one in edges if one.id == ab.id)
        assert (moved.version, moved.created_by) == (2, None)


async def test_a_tool_that_is_cancelled_before_its_turn_changes_nothing(database_url: str) -> None:
    async with serving(database_url) as rest, project(rest, new_ulid()) as actor:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(actor.apply(batch(create_nodes=[{}]), BY))
            await asyncio.sleep(0)
            task.cancel()
        assert (await actor.apply(batch(create_nodes=[{}]), BY)).canvas_version == 1


async def test_idle_conversations_are_let_go_and_come_back(database_url: str) -> None:
    async with serving(database_url) as rest:
        project_id = new_ulid()
        ids = [await rest.new_session(projectId=project_id) for _ in range(60)]
        async with project(rest, project_id) as actor:
            for session_id in ids:
                await actor._conversations.use(session_id)
            assert len(list(actor._conversations)) == 32
            first = await actor._conversations.use(ids[0])
            assert first.ledger.session_id == ids[0]
            assert len(actor._conversations.views()) == 10


async def test_a_project_that_never_changed_leaves_no_row(database_url: str) -> None:
    async with serving(database_url) as rest:
        project_id = new_ulid()
        async with project(rest, project_id) as actor:
            peer = MemoryPeer()
            attachment = await actor.admit(peer, Wish())
            assert peer.told[0]["resume"] == "fresh"
            actor.detach(attachment)  # type: ignore[arg-type]
        status, _ = await rest.call("GET", f"/api/projects/{project_id}")
        assert status == 404
        assert not [one for one in rest.registry.live if one.resource_id == project_id]
