"""Scripts: reading them, choosing a turn, playing it in process."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import anyio
import pytest

from protocol.codes import ErrorCode
from server.llm.base import (
    ChatMessage,
    ModelEvent,
    ModelFault,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallRequest,
    TurnFinished,
    UsageReport,
)
from server.llm.player import choose_turn
from server.llm.scripted import DEMO, ScriptedModel, demo_script
from server.llm.scripts import ACTIONS, Script, ScriptError, parse_script, read_scripts

DOCUMENT = Path(__file__).parents[2] / "server" / "llm" / "SCRIPTS.md"


def script(*turns: list[dict[str, Any]] | dict[str, Any]) -> Script:
    tables = [turn if isinstance(turn, dict) else {"actions": turn} for turn in turns]
    return parse_script("s", {"turns": tables}, "test")


def history(roles: str) -> tuple[ChatMessage, ...]:
    """``u`` a user, ``a`` an assistant, ``c`` one that calls, ``t`` a tool, ``s`` a system message."""
    names = {"u": "user", "a": "assistant", "c": "assistant", "t": "tool", "s": "system"}
    return tuple(
        ChatMessage(
            names[role],
            f"{role}{at}",
            "k" if role == "t" else None,
            (ToolCallRequest("k", "search", "{}"),) if role == "c" else (),
        )
        for at, role in enumerate(roles)
    )


async def play(
    played: Script,
    messages: tuple[ChatMessage, ...] = history("u"),
    events: list[ModelEvent] | None = None,
) -> list[ModelEvent]:
    events = [] if events is None else events
    async with ScriptedModel({"s": played}).stream(ModelRequest("script/s", messages)) as batches:
        async for batch in batches:
            events += batch
    return events


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_the_documented_sample_is_read_and_every_action_is_documented(tmp_path: Path) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    sample = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert sample is not None
    (tmp_path / "sample.toml").write_text(sample[1], encoding="utf-8")
    assert len(read_scripts([tmp_path])["weather"].turns) == 5
    for kind in ACTIONS:
        assert f"| `{kind} = " in text


def test_files_of_both_forms_and_of_other_purposes(tmp_path: Path) -> None:
    (tmp_path / "alone.toml").write_text("[[turns]]\nactions = [ { text = 'Hi' } ]")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "scenario.toml").write_text(
        "id = 'X'\n[scripts.one]\nturns = [ { actions = [] } ]\n[scripts.two]\nturns = [ { actions = [] } ]"
    )
    (tmp_path / "other.toml").write_text("[tool]\nx = 1")
    assert set(read_scripts([tmp_path])) == {"alone", "one", "two"}
    assert set(read_scripts([tmp_path, tmp_path / "alone.toml"])) == {"alone", "one", "two"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("turns = []", "length >= 1"),
        ("[[turns]]\nactions = [ { say = 'x' } ]", r"turn 1, action 1: found only say"),
        ("[[turns]]\nactions = [ { text = 'x', drop = true } ]", r"text and drop together"),
        ("[[turns]]\nactions = [ { text = 'x', speed = 1 } ]", r"action 1 \(text\).*`speed`"),
        ("[[turns]]\nactions = [ { text = 'x' }, { text = 'x', chunk = 0 } ]", r"action 2 .*>= 1.*chunk"),
        ("[[turns]]\nactions = [ { error = { status = 200 } } ]", r">= 400.*\$\.error\.status"),
        ("[[turns]]\nactions = [ { finish = 'maybe' } ]", r"\(finish\): Invalid enum value 'maybe'"),
        ("[[turns]]\nactions = [ { stall = false } ]", r"\(stall\)"),
        ("[[turns]]\nwhen = { people = 1 }", r"`people`"),
        ("[[turns]]\n[[scripts]]\nx = 1", r"`scripts`"),
        ("x = 1", "holds no script"),
        ("= 1", "Invalid statement"),
    ],
)
def test_a_wrong_script_is_refused_by_file_and_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ScriptError, match=message) as caught:
        read_scripts([path])
    assert str(caught.value).startswith(str(path))


def test_two_scripts_of_one_name_and_missing_files_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text("[scripts.same]\nturns = [ { actions = [] } ]")
    with pytest.raises(ScriptError, match=r"'same' is in .*a\.toml too"):
        read_scripts([tmp_path])
    with pytest.raises(ScriptError, match="no such file"):
        read_scripts([tmp_path / "none.toml"])


@pytest.mark.parametrize(
    ("roles", "turn"),
    [
        ("", 0),
        ("u", 0),
        ("su", 0),
        ("ua", 1),
        ("uau", 1),
        ("uct", 1),
        ("ucttt", 1),
        ("ucta", 2),
        ("uctau", 2),
        ("uctctau", 3),
        ("uu", 1),
        ("uauauauau", 3),
    ],
)
def test_the_turn_follows_from_the_history(roles: str, turn: int) -> None:
    assert choose_turn(script([], [], [], []), history(roles)) == turn


@pytest.mark.parametrize(
    ("when", "roles", "holds"),
    [
        ({"users": 2}, "uau", True),
        ({"users": 2}, "ua", False),
        ({"assistants": 1, "results": 1}, "uct", True),
        ({"assistants": 1, "results": 0}, "uct", False),
        ({"last_user": "u2"}, "uau", True),
        ({"last_user": "u1"}, "uau", False),
        ({"last_result": "t2"}, "uct", True),
        ({"last_role": "tool"}, "uct", True),
        ({"last_role": "user"}, "uct", False),
        ({"attempt": 2}, "u", False),
        ({}, "u", True),
    ],
)
def test_a_turn_with_a_condition_is_played_when_it_holds(
    when: dict[str, Any], roles: str, holds: bool
) -> None:
    played = script([], {"when": when, "actions": []})
    assert choose_turn(played, history(roles)) == int(holds)


async def test_attempts_are_counted_by_history() -> None:
    played = script({"when": {"attempt": 2}, "actions": [{"text": "again"}]}, [{"text": "first"}])
    model = ScriptedModel({"s": played})

    async def ask(roles: str) -> str:
        async with model.stream(ModelRequest("script/s", history(roles))) as batches:
            return text_of([event async for batch in batches for event in batch])

    assert [await ask("u"), await ask("u"), await ask("u")] == ["first", "again", "first"]
    assert await ask("uau") == "first"


async def test_a_turn_becomes_events() -> None:
    events = await play(
        script(
            [
                {"thinking": "Hm {last_user}", "chunk": 100},
                {"text": "Line {count} {x}. ", "repeat": 2, "chunk": 100},
                {
                    "tool_calls": [
                        {"name": "a", "id": "1", "arguments": {"q": ["{last_user}"]}},
                        {"name": "b"},
                    ]
                },
            ]
        )
    )
    assert events[:3] == [ThinkingDelta("Hm u0"), TextDelta("Line 1 {x}. "), TextDelta("Line 2 {x}. ")]
    deltas = [event for event in events if isinstance(event, ToolCallDelta)]
    assert [delta.index for delta in deltas] == [0, 1, 0, 1, 0, 1]
    assert "".join(delta.arguments for delta in deltas if delta.index == 0) == '{"q":["u0"]}'
    assert deltas[0].id == "1"
    assert deltas[1].id
    assert {delta.id for delta in deltas[2:]} == {None}
    assert events[-2:] == [UsageReport(1, 9), TurnFinished("tool_calls")]


async def test_ER2_a_script_with_NUL_is_cleaned() -> None:
    assert text_of(await play(script([{"text": "a\0b"}]))) == "a\ufffdb"


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ({"error": {"status": 429, "retry_after_ms": 700}}, ErrorCode.LLM_RATE_LIMITED),
        ({"error": {"status": 400, "code": "context_length_exceeded"}}, ErrorCode.LLM_CONTEXT_LENGTH),
        ({"error": {"status": 503}}, ErrorCode.LLM_UNAVAILABLE),
        ({"drop": True}, ErrorCode.LLM_UNAVAILABLE),
        ({"finish": "none"}, ErrorCode.LLM_BAD_RESPONSE),
        ({"finish": "content_filter"}, ErrorCode.LLM_CONTENT_FILTER),
        ({"raw": "x"}, ErrorCode.LLM_BAD_RESPONSE),
    ],
)
async def test_ST6_what_was_said_precedes_a_failure(action: dict[str, Any], code: ErrorCode) -> None:
    events: list[ModelEvent] = []
    with pytest.raises(ModelFault) as caught:
        await play(script([{"text": "Hello"}, action]), events=events)
    assert caught.value.code is code
    assert text_of(events) == "Hello"


async def test_ST3_a_stalled_script_can_be_left_at_any_moment() -> None:
    model = ScriptedModel({"s": script([{"text": "Hello"}, {"stall": True}])})
    with anyio.CancelScope() as scope:
        async with model.stream(ModelRequest("script/s", history("u"))) as batches:
            async for batch in batches:
                assert text_of(list(batch)) == "Hello"
                scope.cancel()
    assert scope.cancelled_caught


async def test_an_unknown_script_is_an_unknown_model() -> None:
    with pytest.raises(ModelFault) as caught:
        async with ScriptedModel({}).stream(ModelRequest("script/x", ())):
            pass
    assert caught.value.code is ErrorCode.UNKNOWN_MODEL


async def test_the_demonstration_says_what_it_is() -> None:
    demo = demo_script()
    assert demo.name == DEMO
    fast = parse_script(DEMO, _unpaced(demo_table()), "demo")
    for roles in ("u", "uau", "uauau", "uauauauau"):
        messages = history(roles)
        text = text_of(await play(fast, messages))
        assert "script" in text
        assert messages[-1].content in text


def demo_table() -> dict[str, Any]:
    return tomllib.loads((DOCUMENT.parent / "demo.toml").read_text(encoding="utf-8"))


def _unpaced(table: dict[str, Any]) -> dict[str, Any]:
    for turn in table["turns"]:
        turn["actions"] = [{**action, "every_ms": 0} for action in turn["actions"] if "text" in action]
    return table
