"""A typed function as a tool: its schema, its description, and what is read of a model's arguments."""

from __future__ import annotations

from typing import Annotated, Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from protocol.strict import check_json
from server.tools.arguments import MAX_DEPTH, InvalidArguments, normalised, read_object
from server.tools.base import Policy, ToolContext, ToolFault, schema_of, tool
from server.tools.builtin import BUILT_IN
from tests.tools.support import context


class Inner(Struct, frozen=True):
    """A part."""

    name: str


class Point(Struct, frozen=True):
    """What it takes."""

    x: Annotated[int, Meta(ge=0, description="How far.")]
    parts: list[Inner] = []


@tool(policy=Policy.IMMEDIATE, timeout_s=1)
async def move(arguments: Point, context: ToolContext) -> dict[str, Any]:
    """Move there."""
    return {"x": arguments.x, "parts": len(arguments.parts), "run": context.run_id[:4]}


def test_the_schema_is_made_from_the_struct_without_references() -> None:
    assert move.parameters == {
        "type": "object",
        "properties": {
            "x": {"type": "integer", "minimum": 0, "description": "How far."},
            "parts": {
                "type": "array",
                "default": [],
                "items": {
                    "title": "Inner",
                    "description": "A part.",
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            },
        },
        "required": ["x"],
    }
    assert (move.name, move.description, move.policy) == ("move", "Move there.", Policy.IMMEDIATE)


async def test_what_it_returns_is_text_or_becomes_json() -> None:
    result = await move.run('{"x": 3, "parts": [{"name": "a"}]}', context())
    assert result.content == '{"x":3,"parts":1,"run":"run-"}'


def test_a_tool_needs_a_docstring_a_struct_and_a_name_that_endpoints_take() -> None:
    async def silent(arguments: Point, context: ToolContext) -> str:
        return ""

    async def loose(arguments: dict[str, Any], context: ToolContext) -> str:
        """Take anything."""
        return ""

    make = tool(policy=Policy.IMMEDIATE)
    with pytest.raises(TypeError, match="docstring"):
        make(silent)
    with pytest.raises(TypeError, match="struct"):
        make(loose)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="64 letters"):
        tool(policy=Policy.IMMEDIATE, name="a b")(silent)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("[1]", "a JSON object is expected, not an array"),
        ('"x"', "not a string"),
        ("null", "not null"),
        ('{"x": "1"}', "Expected `int`, got `str` - at `$.x`"),
        ('{"x": -1}', "Expected `int` >= 0"),
        ("{}", "missing required field `x`"),
        ('{"x": NaN}', "NaN is not JSON"),
        ('{"x": 1e999}', "Number out of range"),
        ("\ufeff{}", "byte order mark"),
        ('{"x": ' + "[" * 5000 + "]" * 5000 + "}", "deep"),
    ],
)
def test_TL1_wrong_arguments_are_told_in_words(arguments: str, said: str) -> None:
    with pytest.raises(ToolFault) as caught:
        move.check(arguments)
    assert said in caught.value.message
    assert caught.value.code == "tool_failed"


def test_nothing_for_arguments_is_an_empty_object_and_all_else_stays_as_it_is() -> None:
    assert [normalised(text) for text in ("", " \n", "{}", ' {"a":1}', "{")] == [
        "{}",
        "{}",
        "{}",
        ' {"a":1}',
        "{",
    ]


def test_ER2_escapes_that_no_store_takes_are_replaced_when_arguments_are_read() -> None:
    assert read_object(r'{"a\u0000": ["\ud800", "\ud83d\ude00", "한"]}') == {
        "a\ufffd": ["\ufffd", "\U0001f600", "한"]
    }


@given(
    st.text()
    | st.from_regex(r"\{.*\}", fullmatch=True)
    | st.binary().map(lambda data: data.decode("latin-1"))
)
def test_whatever_a_model_writes_is_read_or_refused(text: str) -> None:
    try:
        value = read_object(text)
    except InvalidArguments:
        return
    check_json(value, MAX_DEPTH)


def test_built_in_tools_have_the_fixed_names_and_sound_schemas() -> None:
    assert [(one.name, one.policy) for one in BUILT_IN] == [
        ("search", Policy.IMMEDIATE),
        ("canvas_edit", Policy.CONFIRM),
        ("ask_user", Policy.ASK_USER),
        ("current_time", Policy.IMMEDIATE),
    ]
    for one in BUILT_IN:
        jsonschema.Draft202012Validator.check_schema(one.parameters)
        assert one.parameters["type"] == "object"
        assert "$ref" not in str(one.parameters)
        assert one.expires_s is None


def test_a_struct_without_fields_takes_an_empty_object() -> None:
    class Nothing(Struct):
        """Nothing."""

    assert schema_of(Nothing) == {"type": "object", "properties": {}, "required": []}
