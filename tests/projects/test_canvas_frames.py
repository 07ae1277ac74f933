"""The canvas over a real socket: each frame, its answer, and what is stored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from protocol.ids import new_ulid
from tests.harness.client import Refused
from tests.harness.project import Canvas, ProjectClient, assembled

if TYPE_CHECKING:
    from tests.harness.processes import ServerProcess

NOT_THERE = "00000000-0000-7000-8000-000000000000"


async def test_CV2_three_nodes_and_two_edges_with_temp_ids(server: ServerProcess) -> None:
    async with await ProjectClient.open(server.ws_url) as client:
        assert client.connected["resume"] == "fresh"
        result = await client.canvas(
            "batch_create",
            nodes=[{"temp_id": name, "data": {"label": name}} for name in "abc"],
            edges=[{"source": "a", "target": "b"}, {"temp_id": "e", "source": "b", "target": "c"}],
        )
        assert result["success"]
        assert (result["seq"], result["canvas_version"], result["errors"]) == (1, 1, [])
        ids = result["temp_id_mapping"]
        assert set(ids) == {"a", "b", "c", "e"}
        assert [node["id"] for node in result["nodes"]] == [ids[name] for name in "abc"]
        assert [(edge["source"], edge["target"]) for edge in result["edges"]] == [
            (ids["a"], ids["b"]),
            (ids["b"], ids["c"]),
        ]
        assert result["nodes"][0] == {
            "id": ids["a"],
            "type": "default",
            "position": {"x": 0.0, "y": 0.0},
            "size": None,
            "data": {"label": "a"},
            "version": 1,
            "created_by": None,
        }


async def test_CV1_one_bad_node_and_nothing_is_changed(server: ServerProcess) -> None:
    async with await ProjectClient.open(server.ws_url) as client:
        assert (await client.create(1))["success"]
        seq, before = client.seq, await client.whole_canvas()
        result = await client.canvas(
            "batch_create",
            nodes=[{"temp_id": "a"}, {"temp_id": "b", "position": {"x": "left"}}, {"temp_id": "c"}],
            edges=[{"source": "a", "target": "b"}],
        )
        assert not result["success"]
        assert "seq" not in result
        assert [(e["kind"], e["index"], e["field"], e["code"]) for e in result["errors"]] == [
            ("node", 1, "position.x", "invalid_canvas")
        ]
        assert result["nodes"] == result["edges"] == []
        assert result["temp_id_mapping"] == {}
        assert result["canvas_version"] == 1
        assert await client.whole_canvas() == before
        assert client.seq == seq


async def test_CV3_single_frames_change_one_thing_each(server: ServerProcess) -> None:
    async with await ProjectClient.open(server.ws_url) as client:
        a = (await client.canvas("node_create", node={}))["nodes"][0]["id"]
        made = await client.canvas("node_create", node={"type": "note", "position": {"x": 1.5, "y": -2}})
        assert (made["type"], made["op"], made["canvas_version"]) == ("canvas_changed", "create", 2)
        b = made["nodes"][0]["id"]
        edge = (await client.canvas("edge_create", edge={"source": a, "target": b}))["edges"][0]
        moved = await client.canvas(
            "node_update", node={"id": b, "version": 1, "position": {"x": 5, "y": 5}, "data": {"k": 1}}
        )
        assert (moved["op"], moved["nodes"][0]["version"]) == ("update", 2)
        assert moved["nodes"][0]["type"] == "note"
        turned = await client.canvas(
            "edge_update", edge={"id": edge["id"], "version": 1, "source": b, "target": b}
        )
        assert (turned["edges"][0]["source"], turned["edges"][0]["target"]) == (b, b)
        conflict = await client.canvas("node_update", node={"id": b, "version": 1, "type": "x"})
        assert (conflict["type"], conflict["code"]) == ("error", "version_conflict")
        assert conflict["details"]["current"] == moved["nodes"][0]
        gone = await client.canvas("node_delete", node_id=b)
        assert (gone["op"], gone["deleted_node_ids"], gone["deleted_edge_ids"]) == (
            "delete",
            [b],
            [edge["id"]],
        )
        assert gone["canvas_version"] == 6
        again = await client.canvas("node_delete", node_id=b)
        assert (again["type"], again["code"]) == ("error", "not_found")
        assert (await client.canvas("edge_delete", edge_id=edge["id"]))["code"] == "not_found"
        loop = (await client.canvas("edge_create", edge={"source": a, "target": a}))["edges"][0]
        assert (await client.canvas("edge_delete", edge_id=loop["id"]))["deleted_edge_ids"] == [loop["id"]]
        nowhere = await client.canvas("edge_create", edge={"source": a, "target": NOT_THERE})
        assert (nowhere["code"], nowhere["details"]["field"]) == ("invalid_canvas", "target")
        assert assembled(client.frames) == await client.whole_canvas()


async def test_CV3_a_stale_item_fails_its_batch_with_the_current_entity(server: ServerProcess) -> None:
    async with await ProjectClient.open(server.ws_url) as client:
        made = await client.create(2, [("n0", "n1")])
        a, b = (node["id"] for node in made["nodes"])
        await client.canvas("batch_update", nodes=[{"id": a, "version": 1, "data": {"k": {"l": 1, "m": 2}}}])
        result = await client.canvas(
            "batch_update",
            nodes=[{"id": b, "version": 1, "type": "t"}, {"id": a, "version": 1, "type": "t"}],
        )
        assert not result["success"]
        (error,) = result["errors"]
        assert (error["index"], error["field"], error["code"]) == (1, "version", "version_conflict")
        assert error["details"]["current"]["data"] == {"k": {"l": 1, "m": 2}}
        patched = await client.canvas(
            "batch_update",
            nodes=[{"id": b, "version": 1}, {"id": a, "version": 2, "data": {"k": {"l": None}}}],
        )
        assert [node["version"] for node in patched["nodes"]] == [2, 3]
        assert patched["nodes"][1]["data"] == {"k": {"m": 2}}
        deleted = await client.canvas("batch_delete", node_ids=[a, b], edge_ids=[])
        assert (set(deleted["deleted_node_ids"]), len(deleted["deleted_edge_ids"])) == ({a, b}, 1)
        assert await client.whole_canvas() == Canvas(version=4)


async def test_ST4_a_repeated_batch_is_answered_by_what_it_did(server: ServerProcess) -> None:
    project_id = new_ulid()
    async with await ProjectClient.open(server.ws_url, project_id) as client:
        batch: dict[str, Any] = {"nodes": [{"temp_id": "a"}], "edges": [{"source": "a", "target": "a"}]}
        first = await client.canvas("batch_create", request_id="r", **batch)
        again = await client.canvas("batch_create", request_id="r", **batch)
        assert again == {**{k: v for k, v in first.items() if k != "seq"}, "repeated": True}
        node = first["nodes"][0]
        change = {"id": node["id"], "version": 1, "type": "t"}
        await client.canvas("node_update", request_id="u", node=change)
        repeated = await client.canvas("node_update", request_id="u", node=change)
        assert (repeated["type"], repeated["repeated"]) == ("canvas_changed", True)
        assert repeated["nodes"][0]["version"] == 2
        await client.canvas("node_delete", request_id="d", node_id=node["id"])
    async with await ProjectClient.open(server.ws_url, project_id, resume="snapshot") as client:
        gone = await client.canvas("node_delete", request_id="d", node_id=node["id"])
        assert (gone["repeated"], gone["deleted_node_ids"]) == (True, [node["id"]])
        assert len(gone["deleted_edge_ids"]) == 1
        again = await client.canvas("batch_create", request_id="r", **batch)
        assert (again["temp_id_mapping"], again["nodes"], again["edges"]) == (
            first["temp_id_mapping"],
            [],
            [],
        )
        for kind, fields in (
            ("batch_create", {"nodes": [{"temp_id": "b"}]}),
            ("batch_create", {"nodes": [{"temp_id": ""}]}),
            ("batch_create", {}),
            ("node_delete", {"node_id": NOT_THERE}),
        ):
            conflict = await client.canvas(kind, request_id="r", **fields)
            assert (conflict["type"], conflict["code"]) == ("error", "request_id_conflict")
        failed = await client.canvas("batch_create", request_id="f", nodes=[5])
        assert not failed["success"]
        assert (await client.canvas("batch_create", request_id="f", nodes=[{}]))["success"]
        assert (await client.whole_canvas()).version == 4


async def test_ST4_a_request_id_is_one_for_the_whole_project(server: ServerProcess) -> None:
    async with await ProjectClient.open(server.ws_url) as client:
        await client.canvas("node_create", request_id="r", node={})
        answer = await client.say_in(new_ulid(), "hello", request_id="r")
        assert (answer["type"], answer["code"]) == ("error", "request_id_conflict")
        assert answer["domain"] == "conversation"
        await client.say_in(new_ulid(), "hello", request_id="s")
        assert (await client.canvas("node_create", request_id="s", node={}))["code"] == "request_id_conflict"


async def test_a_batch_of_nothing_succeeds_and_is_no_change(server: ServerProcess) -> None:
    async with await ProjectClient.open(server.ws_url) as client:
        for kind in ("batch_create", "batch_update", "batch_delete"):
            result = await client.canvas(kind)
            assert (result["success"], result["canvas_version"], "seq" in result) == (True, 0, False)


async def test_CV6_limits_are_clear_errors_and_change_nothing(server: ServerProcess) -> None:
    async with await ProjectClient.open(server.ws_url) as client:
        for kind, fields in (
            ("batch_create", {"nodes": [{}] * 300, "edges": [{}] * 201}),
            ("batch_delete", {"node_ids": [NOT_THERE] * 501}),
        ):
            refused = await client.canvas(kind, **fields)
            assert (refused["type"], refused["code"], refused["details"]["limit"]) == (
                "error",
                "too_large",
                500,
            )
            assert not refused["retryable"]
        heavy = {"data": {"t": "x" * 65_600}}
        result = await client.canvas("batch_create", nodes=[{}, heavy])
        assert [(e["index"], e["field"], e["code"]) for e in result["errors"]] == [(1, "data", "too_large")]
        assert (await client.canvas("node_create", node=heavy))["code"] == "too_large"
        assert await client.whole_canvas() == Canvas()
        await client.socket.send(json.dumps({"type": "canvas_batch_create", "x": "y" * 1_100_000}))
        assert (await client.closed())[0] == 1009


async def test_CV6_ten_thousand_nodes_are_read_page_by_page(server: ServerProcess) -> None:
    project_id = new_ulid()
    async with await ProjectClient.open(server.ws_url, project_id) as client:
        for _ in range(20):
            result = await client.canvas("batch_create", nodes=[{"data": {"label": "a node"}}] * 500)
            assert result["success"]
        refused = await client.canvas("node_create", node={})
        assert (refused["code"], refused["details"]["limit"]) == ("too_large", 10_000)
        canvas = await client.whole_canvas()
        assert (len(canvas.nodes), canvas.version) == (10_000, 20)
        assert canvas == assembled(client.frames)
        assert list(canvas.nodes) == sorted(canvas.nodes)


async def test_pages_are_bounded_in_bytes_too(server: ServerProcess) -> None:
    async with await ProjectClient.open(server.ws_url) as client:
        for _ in range(3):
            result = await client.canvas("batch_create", nodes=[{"data": {"t": "x" * 60_000}}] * 10)
            assert result["success"]
        page = await client.canvas("get")
        assert 400_000 < len(json.dumps(page)) < 600_000
        assert len((await client.whole_canvas()).nodes) == 30
        foreign = await client.canvas("get", cursor="no such cursor")
        assert foreign["code"] == "invalid_request"


async def test_ER1_a_malformed_single_item_is_a_bad_frame(server: ServerProcess) -> None:
    async with await ProjectClient.open(server.ws_url) as client:
        for frame, field in (
            ({"type": "canvas_node_create", "domain": "canvas", "node": {"type": 5}}, "node.type"),
            ({"type": "canvas_node_create", "domain": "conversation", "node": {}}, "domain"),
            ({"type": "canvas_node_create", "node": {}}, "domain"),
            (
                {"type": "append_message", "domain": "conversation", "role": "user", "content": "x"},
                "conversation_id",
            ),
        ):
            await client.socket.send(json.dumps({"request_id": "r", **frame}))
            error = (await client.until("error"))[-1]
            assert (error["code"], error["details"]["field"]) == ("bad_frame", field)


async def test_an_id_that_is_none_is_4400(server: ServerProcess) -> None:
    with pytest.raises(Refused) as refused:
        await ProjectClient.open(server.ws_url, new_ulid().lower())
    assert refused.value.code == 4400
