"""What becomes of a batch, as a table and against the naive canvas."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from protocol.canvas import CreatedBy
from protocol.client_frames import CanvasBatchCreate, CanvasNodeDelete, CanvasNodeUpdate
from protocol.codec import decode_project_frame
from protocol.ids import new_uuid
from server.canvas.document import Canvas, Change, Limits
from server.canvas.edits import Edits, RawBatch, raw_batch, read_batch, single_edit
from server.canvas.plan import Decision, Rejected, TooLarge, plan
from tests.canvas.naive import Naive, Op

LIMITS = Limits()
NOT_THERE = "00000000-0000-7000-8000-000000000000"


def raws(items: list[Any]) -> list[Raw]:
    return [Raw(json.dumps(item).encode()) for item in items]


def batch(**lists: list[Any]) -> Edits:
    return read_batch(RawBatch(**{name: raws(items) for name, items in lists.items()}))


def decide(canvas: Canvas, limits: Limits = LIMITS, **lists: list[Any]) -> Decision:
    return plan(canvas, batch(**lists), limits, new_id=new_uuid)


def applied(canvas: Canvas, **lists: list[Any]) -> Change:
    change = decide(canvas, **lists)
    assert isinstance(change, Change), change
    canvas.apply(change)
    return change


def problems(decision: Decision) -> list[tuple[str, str, int, str | None, str]]:
    assert isinstance(decision, Rejected), decision
    return [(p.op, p.kind, p.index, p.field, p.code) for p in decision.problems]


@pytest.fixture
def triangle() -> tuple[Canvas, dict[str, str]]:
    """Nodes a, b, c and edges ab, bc, ca; version 1."""
    canvas = Canvas()
    change = applied(
        canvas,
        create_nodes=[{"temp_id": name, "data": {"name": name}} for name in "abc"],
        create_edges=[{"temp_id": s + t, "source": s, "target": t} for s, t in ("ab", "bc", "ca")],
    )
    return canvas, change.temp_ids


def test_CV2_temp_ids_become_uuids_and_edges_carry_them() -> None:
    canvas = Canvas()
    change = applied(
        canvas,
        create_nodes=[{"temp_id": "a"}, {"temp_id": "b", "type": "note", "position": {"x": 1, "y": 2}}],
        create_edges=[
            {"temp_id": "e", "source": "a", "target": "b"},
            {"source": "b", "target": "b", "type": "loop"},
        ],
    )
    a, b = change.temp_ids["a"], change.temp_ids["b"]
    assert set(change.temp_ids) == {"a", "b", "e"}
    assert [(edge.source, edge.target) for edge in change.edges] == [(a, b), (b, b)]
    assert canvas.nodes[a].type == "default"
    assert (canvas.nodes[b].position.x, canvas.nodes[b].position.y) == (1.0, 2.0)
    assert all(entity.version == 1 for entity in (*change.nodes, *change.edges))
    assert canvas.version == change.version == 1


def test_CV2_edges_may_name_nodes_of_the_canvas_and_of_the_batch(
    triangle: tuple[Canvas, dict[str, str]],
) -> None:
    canvas, ids = triangle
    change = applied(
        canvas, create_nodes=[{"temp_id": "d"}], create_edges=[{"source": ids["a"], "target": "d"}]
    )
    assert (change.edges[0].source, change.edges[0].target) == (ids["a"], change.temp_ids["d"])


def test_CV1_every_bad_item_is_named_by_index_and_field(triangle: tuple[Canvas, dict[str, str]]) -> None:
    canvas, ids = triangle
    decision = decide(
        canvas,
        create_nodes=[
            {"temp_id": "x"},
            7,
            {"temp_id": "y", "position": {"x": "no"}},
            {"temp_id": "x"},
            {"colour": 1},
            {"temp_id": ids["a"]},
        ],
        create_edges=[
            {"source": "x", "target": "y"},  # y is malformed, and this edge not wrong for that
            {"source": "nobody", "target": NOT_THERE},
            {"source": "x"},
            {"temp_id": "x", "source": "x", "target": "x"},
        ],
    )
    assert problems(decision) == [
        ("create", "node", 1, None, "invalid_canvas"),
        ("create", "node", 2, "position.x", "invalid_canvas"),
        ("create", "node", 3, "temp_id", "invalid_canvas"),
        ("create", "node", 4, "colour", "invalid_canvas"),
        ("create", "node", 5, "temp_id", "invalid_canvas"),
        ("create", "edge", 1, "source", "invalid_canvas"),
        ("create", "edge", 1, "target", "invalid_canvas"),
        ("create", "edge", 2, "target", "invalid_canvas"),
        ("create", "edge", 3, "temp_id", "invalid_canvas"),
    ]
    assert canvas.version == 1
    assert len(canvas.nodes) == 3


def test_CV2_an_edge_cannot_begin_at_an_edge(triangle: tuple[Canvas, dict[str, str]]) -> None:
    canvas, ids = triangle
    decision = decide(
        canvas,
        create_edges=[
            {"temp_id": "e", "source": ids["a"], "target": ids["b"]},
            {"source": "e", "target": ids["ab"]},
        ],
    )
    assert [(p[2], p[3]) for p in problems(decision)] == [(1, "source"), (1, "target")]


def test_CV3_a_stale_version_is_a_conflict_with_the_current_entity(
    triangle: tuple[Canvas, dict[str, str]],
) -> None:
    canvas, ids = triangle
    applied(canvas, update_nodes=[{"id": ids["a"], "version": 1, "type": "note"}])
    for version in (1, 3):
        decision = decide(canvas, update_nodes=[{"id": ids["a"], "version": version}])
        assert isinstance(decision, Rejected)
        problem = decision.problems[0]
        assert (problem.code, problem.field) == ("version_conflict", "version")
        assert problem.details == {"current": canvas.nodes[ids["a"]]}
    edge = canvas.edges[ids["ab"]]
    decision = decide(canvas, update_edges=[{"id": edge.id, "version": 2}])
    assert isinstance(decision, Rejected)
    assert decision.problems[0].details == {"current": edge}


def test_CV3_with_a_node_its_edges_go_in_one_change(triangle: tuple[Canvas, dict[str, str]]) -> None:
    canvas, ids = triangle
    change = applied(canvas, delete_node_ids=[ids["a"]])
    assert change.deleted_node_ids == (ids["a"],)
    assert set(change.deleted_edge_ids) == {ids["ab"], ids["ca"]}
    assert set(canvas.edges) == {ids["bc"]}
    assert canvas.version == change.version == 2
    assert applied(canvas, delete_node_ids=[ids["b"]], delete_edge_ids=[ids["bc"]]).deleted_edge_ids == (
        ids["bc"],
    )
    assert canvas.data_bytes == len('{"name":"c"}')


def test_what_is_not_there_is_not_found(triangle: tuple[Canvas, dict[str, str]]) -> None:
    canvas, ids = triangle
    decision = decide(
        canvas,
        update_nodes=[{"id": NOT_THERE, "version": 1}, {"id": ids["ab"], "version": 1}],
        update_edges=[{"id": NOT_THERE, "version": 1}],
        delete_node_ids=[NOT_THERE, "no id", ids["b"], ids["b"]],
        delete_edge_ids=[ids["a"], 5],
    )
    assert problems(decision) == [
        ("update", "node", 0, "id", "not_found"),
        ("update", "node", 1, "id", "not_found"),
        ("update", "edge", 0, "id", "not_found"),
        ("delete", "node", 0, "id", "not_found"),
        ("delete", "node", 1, "id", "invalid_canvas"),
        ("delete", "node", 3, "id", "invalid_canvas"),
        ("delete", "edge", 0, "id", "not_found"),
        ("delete", "edge", 1, "id", "invalid_canvas"),
    ]


def test_data_is_patched_and_other_fields_are_replaced(triangle: tuple[Canvas, dict[str, str]]) -> None:
    canvas, ids = triangle
    a = ids["a"]
    size = {"width": 3, "height": 4}
    applied(
        canvas, update_nodes=[{"id": a, "version": 1, "size": size, "data": {"k": {"l": 1}, "name": None}}]
    )
    node = canvas.nodes[a]
    assert (node.version, node.data) == (2, {"k": {"l": 1}})
    assert node.size is not None
    assert (node.size.width, node.position.x) == (3.0, 0.0)
    applied(canvas, update_nodes=[{"id": a, "version": 2, "size": None, "data": {"k": {"m": 2}}}])
    assert canvas.nodes[a].size is None
    assert canvas.nodes[a].data == {"k": {"l": 1, "m": 2}}
    applied(canvas, update_edges=[{"id": ids["ab"], "version": 1, "target": ids["c"], "type": "x"}])
    edge = canvas.edges[ids["ab"]]
    assert (edge.source, edge.target, edge.type, edge.version) == (a, ids["c"], "x", 2)
    assert set(applied(canvas, delete_node_ids=[ids["c"]]).deleted_edge_ids) == {
        ids[e] for e in ("ab", "bc", "ca")
    }


def test_one_batch_may_create_update_and_delete(triangle: tuple[Canvas, dict[str, str]]) -> None:
    canvas, ids = triangle
    change = applied(
        canvas,
        create_nodes=[{"temp_id": "d"}],
        create_edges=[{"source": "d", "target": ids["b"]}],
        update_edges=[{"id": ids["ab"], "version": 1, "source": "d"}],
        delete_node_ids=[ids["a"]],
    )
    d = change.temp_ids["d"]
    assert canvas.version == 2
    assert change.deleted_edge_ids == (ids["ca"],)
    assert {(edge.source, edge.target) for edge in canvas.edges.values()} == {
        (d, ids["b"]),
        (ids["b"], ids["c"]),
    }


def test_one_batch_does_one_thing_to_an_entity(triangle: tuple[Canvas, dict[str, str]]) -> None:
    canvas, ids = triangle
    decision = decide(
        canvas,
        create_edges=[{"source": ids["a"], "target": ids["b"]}],
        update_nodes=[{"id": ids["a"], "version": 1}, *[{"id": ids["c"], "version": 1}] * 2],
        update_edges=[{"id": ids["ab"], "version": 1}, {"id": ids["bc"], "version": 1, "target": ids["a"]}],
        delete_node_ids=[ids["a"]],
    )
    assert [(p[0], p[1], p[2], p[3]) for p in problems(decision)] == [
        ("create", "edge", 0, "source"),
        ("update", "node", 0, "id"),
        ("update", "node", 2, "id"),
        ("update", "edge", 0, "id"),
        ("update", "edge", 1, "target"),
    ]


def test_CV5_what_a_tool_makes_names_it_and_a_person_changes_that_not() -> None:
    canvas = Canvas()
    by = CreatedBy(run_id="run-1", tool_call_id="call-1")
    edits = batch(create_nodes=[{"temp_id": "a"}], create_edges=[{"source": "a", "target": "a"}])
    change = plan(canvas, edits, LIMITS, new_id=new_uuid, created_by=by)
    assert isinstance(change, Change)
    assert [entity.created_by for entity in (*change.nodes, *change.edges)] == [by, by]
    canvas.apply(change)
    node_id = change.temp_ids["a"]
    applied(canvas, update_nodes=[{"id": node_id, "version": 1, "type": "t"}])
    assert canvas.nodes[node_id].created_by == by


class TestCV6Limits:
    """Each limit has its own answer, and is refused one past it and not before."""

    def test_CV6_items_of_a_batch(self) -> None:
        assert isinstance(decide(Canvas(), create_nodes=[{}] * 500), Change)
        decision = decide(Canvas(), create_nodes=[{}] * 400, delete_edge_ids=[3] * 101)
        assert decision == TooLarge("a batch has at most 500 items", 500)

    def test_CV6_nodes_and_edges_of_a_canvas(self) -> None:
        limits = Limits(nodes=2, edges=1)
        canvas = Canvas()
        change = applied(canvas, create_nodes=[{"temp_id": "a"}, {}])
        assert isinstance(decide(canvas, limits, create_nodes=[{}]), TooLarge)
        a = change.temp_ids["a"]
        swap = decide(canvas, limits, create_nodes=[{}], delete_node_ids=[a])
        assert isinstance(swap, Change)
        loop = {"source": a, "target": a}
        assert isinstance(decide(canvas, limits, create_edges=[loop]), Change)
        assert decide(canvas, limits, create_edges=[loop] * 2) == TooLarge("a canvas has at most 1 edges", 1)
        assert isinstance(decide(canvas, Limits(nodes=1), delete_node_ids=[a]), Change)

    def test_CV6_data_of_an_entity(self) -> None:
        data = {"t": "x" * (65_536 - len('{"t":""}'))}
        canvas = Canvas()
        change = applied(canvas, create_nodes=[{"temp_id": "a", "data": data}])
        decision = decide(
            canvas,
            create_nodes=[{"data": {"t": data["t"] + "x"}}],
            update_nodes=[{"id": change.temp_ids["a"], "version": 1, "data": {"u": 1}}],
        )
        assert problems(decision) == [
            ("create", "node", 0, "data", "too_large"),
            ("update", "node", 0, "data", "too_large"),
        ]

    def test_CV6_data_of_a_change_and_of_a_canvas(self) -> None:
        node = {"data": {"t": "x" * 992}}  # 1,000 bytes
        limits = Limits(change_bytes=5000, canvas_bytes=8000)
        canvas = Canvas()
        assert isinstance(decide(canvas, limits, create_nodes=[node] * 6), TooLarge)
        change = decide(canvas, limits, create_nodes=[{"temp_id": "a", **node}, *[node] * 4])
        assert isinstance(change, Change)
        canvas.apply(change)
        assert canvas.data_bytes == 5000
        assert isinstance(decide(canvas, limits, create_nodes=[node] * 4), TooLarge)
        grown = decide(canvas, limits, create_nodes=[node] * 4, delete_node_ids=[change.temp_ids["a"]])
        assert isinstance(grown, Change)


def test_frames_of_one_item_are_batches_of_one() -> None:
    _, frame = decode_project_frame(
        b'{"type":"canvas_node_update","request_id":"r","domain":"canvas","node":{"id":"'
        + NOT_THERE.encode()
        + b'","version":1}}'
    )
    assert isinstance(frame, CanvasNodeUpdate)
    assert single_edit(frame).size == 1
    decision = plan(Canvas(), single_edit(frame), LIMITS, new_id=new_uuid)
    assert problems(decision) == [("update", "node", 0, "id", "not_found")]
    gone = single_edit(CanvasNodeDelete(request_id="r", node_id=NOT_THERE))
    assert problems(plan(Canvas(), gone, LIMITS, new_id=new_uuid)) == [
        ("delete", "node", 0, "id", "not_found")
    ]


def test_a_frame_of_many_items_is_read_item_by_item() -> None:
    frame = CanvasBatchCreate(request_id="r", nodes=raws([{}, 1]), edges=raws([{}]))
    edits = read_batch(raw_batch(frame))
    assert [item.at for item in edits.node_drafts] == [0]
    assert (edits.size, raw_batch(frame).size) == (3, 3)
    assert [(p.kind, p.index) for p in edits.problems] == [("node", 1), ("edge", 0)]


def test_planning_touches_nothing_and_costs_the_batch_not_the_canvas() -> None:
    canvas = Canvas()
    for _ in range(20):
        applied(canvas, create_nodes=[{}] * 500)
    assert len(canvas.nodes) == 10_000
    nodes, version = canvas.nodes, canvas.version
    assert isinstance(decide(canvas, create_nodes=[{}]), TooLarge)
    some = next(iter(nodes))
    change = decide(canvas, update_nodes=[{"id": some, "version": 1, "type": "t"}])
    assert isinstance(change, Change)
    assert len(change.nodes) == 1
    assert canvas.nodes is nodes
    assert (canvas.version, canvas.nodes[some].type) == (version, "default")


# Against the naive canvas.

NAMES = st.sampled_from(["a", "b", "c", "d"])
DATA = st.dictionaries(
    st.sampled_from("kl"), st.none() | st.integers(0, 3) | st.dictionaries(st.just("m"), st.integers(0, 2))
)
Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def ops(draw: Draw, model: Naive) -> list[Op]:
    """A batch of the three kinds of items, most of them good."""
    nodes = st.sampled_from([*model.nodes, NOT_THERE])
    edges = st.sampled_from([*model.edges, NOT_THERE])
    ends = NAMES | nodes
    found: list[Op] = []
    counters = {
        key: itertools.count() for key in itertools.product(("create", "update", "delete"), ("node", "edge"))
    }
    for _ in range(draw(st.integers(0, 6))):
        op = draw(st.sampled_from(["create", "create", "update", "delete"]))
        kind = draw(st.sampled_from(["node", "node", "edge"]))
        index = next(counters[op, kind])
        there = nodes if kind == "node" else edges
        item: Any
        if op == "delete":
            item = draw(there)
        else:
            item = {"data": draw(DATA)}
            if draw(st.booleans()):
                item["type"] = draw(st.sampled_from(["t", "u"]))
            if op == "create" and draw(st.booleans()):
                item["temp_id"] = draw(NAMES)
            if kind == "edge" and (op == "create" or draw(st.booleans())):
                item |= {"source": draw(ends), "target": draw(ends)}
            if op == "update":
                item["id"] = draw(there)
                known = (model.nodes if kind == "node" else model.edges).get(item["id"], {"version": 1})
                item["version"] = known["version"] + draw(st.sampled_from([0, 0, 0, 1]))
        found.append((op, kind, index, item))
    return found


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_CV1_any_batches_do_what_the_naive_canvas_does(data: st.DataObject) -> None:
    canvas, model = Canvas(), Naive()
    for _ in range(data.draw(st.integers(1, 8))):
        wanted = data.draw(ops(model))
        lists: dict[str, list[Any]] = {}
        for op, kind, _, item in wanted:
            name = f"delete_{kind}_ids" if op == "delete" else f"{op}_{kind}s"
            lists.setdefault(name, []).append(item)
        before = (dict(canvas.nodes), dict(canvas.edges))
        decision = decide(canvas, **lists)
        assert (canvas.nodes, canvas.edges) == before
        drafts = sorted((o for o in wanted if o[0] == "create"), key=lambda o: o[1] == "edge")
        rest = [o for o in wanted if o[0] != "create"]
        ids: list[str] = []
        if isinstance(decision, Change):
            old = canvas.nodes.keys() | canvas.edges.keys()
            ids = [e.id for e in (*decision.nodes, *decision.edges) if e.id not in old]
        bad = model.batch([*drafts, *rest], ids)
        if isinstance(decision, Rejected):
            assert {(p.op, p.kind, p.index) for p in decision.problems} == bad
        else:
            assert isinstance(decision, Change)
            assert not bad
            if wanted:
                canvas.apply(decision)
        assert canvas.version == model.version
        assert plain(canvas.nodes) == model.nodes
        assert plain(canvas.edges) == model.edges
        check_index(canvas)


def plain(entities: dict[str, Any]) -> dict[str, Any]:
    built = {key: msgspec.to_builtins(entity) for key, entity in entities.items()}
    for entity in built.values():
        assert entity.pop("created_by") is None
    return built


def check_index(canvas: Canvas) -> None:
    """The index of edges and the sizes are what a look at everything would give."""
    for node_id in canvas.nodes:
        assert set(canvas.edges_of(node_id)) == {
            edge.id for edge in canvas.edges.values() if node_id in {edge.source, edge.target}
        }
    entities = (*canvas.nodes.values(), *canvas.edges.values())
    assert canvas.data_bytes == sum(len(msgspec.json.encode(entity.data)) for entity in entities)
