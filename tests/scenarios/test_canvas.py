"""What the runner itself checks of every change of a canvas, and of one that is read whole."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.canvas import Canvas, merged, result_fault
from scenarios.invariants import address_fault


def node(name: str, version: int = 1) -> dict[str, Any]:
    return {"id": name, "version": version}


def edge(name: str, source: str, target: str, version: int = 1) -> dict[str, Any]:
    return {"id": name, "source": source, "target": target, "version": version}


def change(version: int, **lists: list[Any]) -> dict[str, Any]:
    empty: dict[str, list[Any]] = {"nodes": [], "edges": [], "deleted_node_ids": [], "deleted_edge_ids": []}
    return {"canvas_version": version, **empty, **lists}


def drawn() -> Canvas:
    canvas = Canvas()
    assert canvas.take(change(1, nodes=[node("a"), node("b")], edges=[edge("e", "a", "b")])) == []
    return canvas


@pytest.mark.parametrize(
    ("frame", "fault"),
    [
        (change(2, nodes=[node("a", 2)], edges=[edge("e", "b", "b", 2)]), None),
        (change(2, deleted_node_ids=["a"], deleted_edge_ids=["e"]), None),
        (change(2, nodes=[node("c")], edges=[edge("f", "c", "a")]), None),
        (change(3), "canvas_version 3 came after 1"),
        (change(1), "canvas_version 1 came after 1"),
        (change(2, nodes=[node("a", 3)]), "node a has version 3 after 1"),
        (change(2, nodes=[node("c", 2)]), "node c has version 2 after 0"),
        (change(2, edges=[edge("f", "a", "z")]), "edge f is without its target z"),
        (change(2, deleted_node_ids=["a"]), "edge e is without its source a"),
        (change(2, deleted_edge_ids=["f"]), "edge f was deleted, but is not known"),
    ],
)
def test_CV3_a_change_is_judged_by_what_was_there(frame: dict[str, Any], fault: str | None) -> None:
    faults = drawn().take(frame)
    assert (faults == []) if fault is None else fault in faults[0]


def test_what_was_not_seen_is_not_judged() -> None:
    canvas = Canvas()
    assert canvas.take(change(7, nodes=[node("x", 4)])) == []
    assert canvas.take(change(8, edges=[edge("f", "x", "z")])) == []
    assert canvas.take(change(10)) == ["canvas_version 10 came after 8"]
    canvas.lose()
    assert canvas.take(change(12)) == []
    assert canvas.read(change(12, nodes=[node("x", 4)])) == []
    assert canvas.take(change(13, nodes=[node("x", 4)])) == ["node x has version 4 after 4"]


def test_a_canvas_that_is_read_is_the_one_that_frames_made() -> None:
    canvas = drawn()
    whole = change(1, nodes=[node("a"), node("b")], edges=[edge("e", "a", "b")])
    assert canvas.read(whole) == []
    assert len(canvas.read({**whole, "nodes": [node("a", 2)]})) == 2
    assert "was read when frames told of 1 only" in canvas.read(change(2))[0]


def test_pages_have_everything_once_and_nodes_first() -> None:
    first, second = change(1, nodes=[node("a")]), change(2, nodes=[node("b")], edges=[edge("e", "a", "b")])
    whole, faults = merged([first, second])
    assert (whole["canvas_version"], len(whole["nodes"]), len(whole["edges"]), faults) == (2, 2, 1, [])
    assert merged([second, first])[1] == ["an edge came before a node"]
    assert merged([first, first])[1] == ["a was read 2 times"]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"success": True, "seq": 1}, False),
        ({"success": True}, False),
        ({"success": True, "repeated": True, "nodes": [node("a")]}, False),
        ({"success": True, "nodes": [node("a")]}, True),
        ({"success": False, "errors": [{}]}, False),
        ({"success": False, "errors": [{}], "seq": 1}, True),
        ({"success": False}, True),
        ({"success": True, "errors": [{}]}, True),
    ],
)
def test_CV1_a_result_has_a_seq_if_it_changed_something(fields: dict[str, Any], fault: bool) -> None:
    assert (result_fault({"errors": [], **fields}) is not None) is fault


@pytest.mark.parametrize(
    ("frame", "in_project", "fault"),
    [
        ({"type": "pong"}, True, False),
        ({"type": "error"}, True, False),
        ({"type": "error", "domain": "canvas"}, True, False),
        ({"type": "error", "domain": "canvas", "conversation_id": "c"}, True, True),
        ({"type": "error", "domain": "canvas"}, False, True),
        ({"type": "canvas_state", "domain": "canvas"}, True, False),
        ({"type": "canvas_state"}, True, True),
        ({"type": "canvas_state", "domain": "conversation"}, True, True),
        ({"type": "message_appended", "domain": "conversation", "conversation_id": "c"}, True, False),
        ({"type": "message_appended", "domain": "conversation"}, True, True),
        ({"type": "message_appended", "conversation_id": "c"}, False, True),
        ({"type": "message_appended"}, False, False),
        ({"type": "conversation_listed", "domain": "conversation"}, True, False),
    ],
)
def test_a_frame_says_whose_it_is(frame: dict[str, Any], in_project: bool, fault: bool) -> None:
    assert (address_fault(frame, in_project=in_project) is not None) is fault
