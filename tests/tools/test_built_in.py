"""``current_time``, ``ask_user`` and ``canvas_edit``; ``search`` has a module of its own."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from typing import Any

import pytest

from protocol.canvas import CreatedBy
from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.server_frames import CanvasBatchResult
from server.canvas.document import Canvas, Change, Limits
from server.canvas.edits import RawBatch, read_batch
from server.canvas.plan import Rejected, plan
from server.tools.answers import is_quick
from server.tools.ask_user import ask_user
from server.tools.base import ToolFault
from server.tools.canvas import canvas_edit
from server.tools.clock import current_time
from server.tools.registry import execute
from tests.tools.support import context


async def said(tool: Any, arguments: dict[str, Any], where: Any = None) -> Any:
    tool.check(json.dumps(arguments))
    return json.loads((await execute(tool, json.dumps(arguments), where or context())).content)


# current_time


async def test_the_time_is_told_in_a_zone() -> None:
    told = await said(current_time, {"zone": "Asia/Tokyo"})
    assert (told["zone"], told["utc_offset"]) == ("Asia/Tokyo", "+09:00")
    moment = datetime.fromisoformat(told["time"])
    assert moment.strftime("%A") == told["weekday"]
    assert abs(moment.timestamp() - datetime.now().astimezone().timestamp()) < 60
    assert (await said(current_time, {}))["zone"] == "UTC"


@pytest.mark.parametrize("zone", ["Nowhere/City", "../../etc/passwd", "/etc/passwd", "\0", "Europe"])
async def test_an_unknown_zone_is_a_clear_failure(zone: str) -> None:
    with pytest.raises(ToolFault, match="no time zone"):
        await said(current_time, {"zone": zone})


# ask_user


def asked(**arguments: Any) -> str:
    return json.dumps({"question": "Which?", **arguments})


@pytest.mark.parametrize(
    ("arguments", "answer", "fits"),
    [
        (asked(), "anything", True),
        (asked(choices=None, schema=None), "anything", True),
        (asked(choices=["red", "blue"]), "blue", True),
        (asked(choices=["red", "blue"]), " blue\n", True),
        (asked(choices=["red", "blue"]), "green", False),
        (asked(schema={"type": "integer", "minimum": 3}), "4", True),
        (asked(schema={"type": "integer", "minimum": 3}), "2", False),
        (asked(schema={"type": "integer"}), "four", False),
        (asked(schema={"type": "string"}), "Berlin", True),
        (asked(schema={"type": "string"}), '"Berlin"', True),
        (asked(schema={"type": "string"}), "42", True),
        (asked(schema={"enum": ["a", "b"]}), "a", True),
        (asked(schema={"enum": ["a", "b"]}), "c", False),
        (asked(schema={"type": "string", "pattern": "^[0-9]{5}$"}), "10115", True),
        (asked(schema={"type": "string", "pattern": "^[0-9]{5}$"}), "1011", False),
        (asked(schema={"type": "object", "required": ["n"]}), '{"n": 1}', True),
        (asked(schema={"type": "object", "required": ["n"]}), "{}", False),
        (asked(schema={"type": "object", "required": ["n"]}), '{"n": 1', False),
        (asked(schema={"type": "array", "uniqueItems": True}), "[1, 2]", True),
        (asked(schema={"type": "array", "uniqueItems": True}), '[{"a": 1}, {"a": 1}]', False),
        (asked(schema={"type": "string"}), "x" * 70_000, False),
        (asked(schema={"type": "number"}), "NaN", False),
    ],
)
def test_TL7_an_answer_is_checked_against_choices_and_schema(
    arguments: str, answer: str, *, fits: bool
) -> None:
    ask_user.check(arguments)
    if fits:
        ask_user.check_answer(arguments, answer)
        return
    with pytest.raises(Fault) as caught:
        ask_user.check_answer(arguments, answer)
    assert caught.value.code is ErrorCode.INVALID_MESSAGE


@pytest.mark.parametrize(
    ("schema", "said_of_it"),
    [
        ({"type": "strong"}, "not a JSON schema"),
        ({"$ref": "http://localhost:1/x"}, "$ref is not supported"),
        ({"$ref": "#"}, "$ref is not supported"),
        ({"items": {"$dynamicRef": "#x"}}, "$dynamicRef is not supported"),
        ({"patternProperties": {"(a+)+$": {}}}, "patternProperties is not supported"),
        ({"properties": {"a": {"pattern": "(a+)+$"}}}, "write a simpler one"),
        ({"anyOf": [{"pattern": "("}]}, "write a simpler one"),
        ({"description": "x" * 20_000}, "larger than 16384 bytes"),
        ("text", "Expected `object"),
    ],
)
def test_TL7_a_schema_that_is_none_or_could_do_harm_is_told_to_the_model(
    schema: Any, said_of_it: str
) -> None:
    with pytest.raises(ToolFault) as caught:
        ask_user.check(asked(schema=schema))
    assert said_of_it in caught.value.message


@pytest.mark.parametrize(
    ("pattern", "quick"),
    [
        (r"^\d{4}-\d{2}-\d{2}$", True),
        (r"^[^@\s]+@[^@\s]+\.[a-z]+$", True),
        (r"^(yes|no|maybe)$", True),
        (r"^(\d{3}-)+\d{4}$", True),
        (r"^v?\d{1,3}$", True),
        ("(a+)+$", False),
        ("(a|aa)+$", False),
        ("(a?){40}", False),
        ("a?" * 40 + "a" * 40, False),
        ("a*" * 4 + "b", False),
        ("(?=a)a", False),
        (r"(a)\1", False),
        ("(" * 300 + ")" * 300, True),
        ("(" * 5000 + ")" * 5000, False),
        ("a{99999999999}", False),
        ("[", False),
    ],
)
def test_patterns_that_could_take_long_are_not_taken(pattern: str, *, quick: bool) -> None:
    assert is_quick(pattern) is quick


async def test_a_question_is_never_run() -> None:
    with pytest.raises(ToolFault, match="answered by the user"):
        await execute(ask_user, asked(), context())


# canvas_edit


class Pure:
    """A canvas in memory with the real rules, in place of the project's actor."""

    def __init__(self) -> None:
        self.canvas = Canvas()
        self.provenances: list[CreatedBy] = []

    async def apply(self, batch: RawBatch, provenance: CreatedBy) -> CanvasBatchResult:
        self.provenances.append(provenance)
        decided = plan(
            self.canvas,
            read_batch(batch),
            Limits(),
            new_id=lambda: str(uuid.uuid4()),
            created_by=provenance,
        )
        if isinstance(decided, Rejected):
            return CanvasBatchResult(
                success=False, canvas_version=self.canvas.version, errors=list(decided.problems)
            )
        assert isinstance(decided, Change)
        self.canvas.apply(decided)
        return CanvasBatchResult(
            success=True,
            temp_id_mapping=decided.temp_ids,
            nodes=list(decided.nodes),
            edges=list(decided.edges),
            deleted_node_ids=list(decided.deleted_node_ids),
            deleted_edge_ids=list(decided.deleted_edge_ids),
            canvas_version=decided.version,
        )


async def test_CV5_a_model_creates_updates_and_deletes_with_its_provenance() -> None:
    canvas = Pure()
    where = context(canvas=canvas, project_id="p")
    made = await said(
        canvas_edit,
        {
            "create_nodes": [{"temp_id": "a", "data": {"label": "A"}}, {"temp_id": "b"}],
            "create_edges": [{"source": "a", "target": "b"}],
        },
        where,
    )
    assert made["canvas_version"] == 1
    first, second = made["temp_id_mapping"]["a"], made["temp_id_mapping"]["b"]
    assert (made["edges"][0]["source"], made["edges"][0]["target"]) == (first, second)
    assert canvas.provenances == [CreatedBy(run_id=where.run_id, tool_call_id=where.tool_call_id)]
    changed = await said(
        canvas_edit,
        {
            "update_nodes": [{"id": first, "version": 1, "data": {"label": "Z"}}],
            "delete_node_ids": [second],
        },
        where,
    )
    assert changed["nodes"] == [{"id": first, "version": 2}]
    assert changed["deleted_edge_ids"] == [made["edges"][0]["id"]]
    assert canvas.canvas.nodes[first].data == {"label": "Z"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"create_nodes": [{}, {"typ": "note"}]}, "create_nodes[1]"),
        ({"create_edges": [{"source": "x", "target": "y"}]}, "create_edges[0].source"),
        ({"update_nodes": [{"id": "no uuid", "version": 1}]}, "update_nodes[0].id"),
        ({"delete_edge_ids": ["5"]}, "delete_edges[0].id"),
    ],
)
async def test_CV1_a_bad_item_is_told_by_index_and_field_and_nothing_is_changed(
    arguments: dict[str, Any], told: str
) -> None:
    canvas = Pure()
    with pytest.raises(ToolFault) as caught:
        await said(canvas_edit, arguments, context(canvas=canvas))
    assert caught.value.message.startswith("nothing was changed: ")
    assert told in caught.value.message
    assert canvas.canvas.version == 0


async def test_CV3_a_stale_version_is_told_with_what_is_there_now() -> None:
    canvas = Pure()
    where = context(canvas=canvas)
    made = await said(canvas_edit, {"create_nodes": [{"data": {"label": "A"}}]}, where)
    patch = {"id": made["nodes"][0]["id"], "version": 1, "type": "note"}
    await said(canvas_edit, {"update_nodes": [patch]}, where)
    with pytest.raises(ToolFault) as caught:
        await said(canvas_edit, {"update_nodes": [patch]}, where)
    assert '"version":2' in caught.value.message


async def test_a_canvas_edit_outside_of_a_project_or_without_anything_is_a_clear_failure() -> None:
    with pytest.raises(ToolFault, match="belongs to no project"):
        await said(canvas_edit, {"create_nodes": [{}]})
    with pytest.raises(ToolFault, match="nothing to create"):
        await said(canvas_edit, {}, context(canvas=Pure()))
