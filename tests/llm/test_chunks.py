"""Chunks of different upstreams become the same events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.codes import ErrorCode
from server.llm.base import (
    ModelEvent,
    ModelFault,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    TurnFinished,
    UsageReport,
)
from server.llm.chunks import ChunkReader


def delta(**fields: Any) -> bytes:
    return msgspec.json.encode({"choices": [{"index": 0, "delta": fields, "finish_reason": None}]})


def finish(reason: str) -> bytes:
    return msgspec.json.encode({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})


def call(
    index: int | None, *, call_id: str | None = None, name: str | None = None, arguments: Any = None
) -> bytes:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    part: dict[str, Any] = {"function": function}
    if index is not None:
        part["index"] = index
    if call_id is not None:
        part["id"] = call_id
    return delta(tool_calls=[part])


def read(*chunks: bytes, reason: str | None = "stop") -> list[ModelEvent]:
    reader = ChunkReader()
    events: list[ModelEvent] = []
    for chunk in (*chunks, *([finish(reason)] if reason else [])):
        reader.feed(chunk, events)
    return events + reader.finish()


def calls(events: list[ModelEvent]) -> list[ToolCallDelta]:
    """The tool call deltas, checked for what TL1 says of all of them."""
    deltas = [event for event in events if isinstance(event, ToolCallDelta)]
    seen: set[int] = set()
    for event in deltas:
        if event.index in seen:
            assert event.id is None
            assert event.name is None
            assert event.arguments
        else:
            assert event.id
            assert event.name
        seen.add(event.index)
    assert seen == set(range(len(seen)))
    return deltas


def gathered(events: list[ModelEvent]) -> list[tuple[str, str, str]]:
    deltas = calls(events)
    return [
        (str(first.id), str(first.name), "".join(d.arguments for d in deltas if d.index == first.index))
        for first in deltas
        if first.id is not None
    ]


def test_ST2_text_thinking_usage_and_finish() -> None:
    usage = b'{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}'
    events = read(
        delta(role="assistant", content=""),
        delta(reasoning_content="Hm"),
        delta(reasoning=", well"),
        delta(content="Hi"),
        delta(content=None),
        delta(content=" there"),
        finish("length"),
        usage,
        b"[DONE]",
        reason=None,
    )
    assert events == [
        ThinkingDelta("Hm"),
        ThinkingDelta(", well"),
        TextDelta("Hi"),
        TextDelta(" there"),
        UsageReport(7, 2),
        TurnFinished("length"),
    ]


def test_unknown_fields_other_choices_and_empty_events_are_passed_over() -> None:
    other = b'{"choices":[{"index":1,"delta":{"content":"no"}}],"x":{"y":[1]},"obfuscation":"abc"}'
    assert read(other, b"", b" ", b'{"choices":null}', b"{}", delta(content="yes")) == [
        TextDelta("yes"),
        TurnFinished("stop"),
    ]


def test_ER2_a_surrogate_pair_split_over_two_deltas_is_joined() -> None:
    high = rb'{"choices":[{"delta":{"content":"a\ud83d"}}]}'
    low = rb'{"choices":[{"delta":{"content":"\ude00b"}}]}'
    between = delta(reasoning_content="x")
    assert read(high, between, low) == [
        TextDelta("a"),
        ThinkingDelta("x"),
        TextDelta("😀b"),
        TurnFinished("stop"),
    ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (rb"a\ud83d", "a\ufffd"),
        (rb"a\ud83db", "a\ufffdb"),
        (rb"\ude00b", "\ufffdb"),
        (rb"a\u0000b", "a\ufffdb"),
        (b"\xed\xa0\xbdb", "\ufffdb"),
        (rb"\ud83d\ud83d\ude00", "\ufffd😀"),
    ],
)
def test_ER2_what_no_store_takes_becomes_a_replacement_character(content: bytes, text: str) -> None:
    events = read(b'{"choices":[{"delta":{"content":"' + content + b'"}}]}', delta(content="!"))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text + "!"
    tail = read(b'{"choices":[{"delta":{"content":"' + content + b'"}}]}')
    assert "".join(event.text for event in tail if isinstance(event, TextDelta)) == text


def test_TL1_interleaved_calls_are_told_apart() -> None:
    events = read(
        call(0, call_id="a", name="one", arguments=""),
        call(1, call_id="b", name="two", arguments=""),
        call(0, arguments='{"x"'),
        call(1, arguments="{}"),
        call(0, arguments=":1}"),
        call(0, arguments=""),
        reason="tool_calls",
    )
    assert gathered(events) == [("a", "one", '{"x":1}'), ("b", "two", "{}")]
    assert events[-1] == TurnFinished("tool_calls")


def test_TL1_repeated_ids_and_names_are_sent_once() -> None:
    events = read(*(call(0, call_id="a", name="one", arguments=piece) for piece in ("{", '"x":', "1}")))
    assert gathered(events) == [("a", "one", '{"x":1}')]
    assert events[-1] == TurnFinished("tool_calls")


def test_TL1_missing_ids_are_made() -> None:
    events = read(call(0, name="one", arguments="{}"), call(1, call_id="", name="two", arguments="{}"))
    (first, _, _), (second, _, _) = gathered(events)
    assert first != second


def test_TL1_equal_ids_are_made_unlike() -> None:
    events = read(
        call(0, call_id="a", name="one", arguments="{}"), call(1, call_id="a", name="two", arguments="[]")
    )
    (first, _, _), (second, name, arguments) = gathered(events)
    assert first == "a"
    assert second not in {"", "a"}
    assert (name, arguments) == ("two", "[]")


def test_TL1_one_index_for_all_calls_or_none_at_all() -> None:
    for index in (0, None):
        events = read(
            call(index, call_id="a", name="one", arguments="{}"),
            call(index, call_id="b", name="two", arguments="[]"),
        )
        assert gathered(events) == [("a", "one", "{}"), ("b", "two", "[]")]
    events = read(call(None, name="one", arguments="{}"), call(None, name="two", arguments="[]"))
    assert [(name, arguments) for _, name, arguments in gathered(events)] == [("one", "{}"), ("two", "[]")]


def test_TL1_arguments_before_the_name_are_held_back() -> None:
    events = read(call(0, call_id="a"), call(0, arguments='{"x"'), call(0, name="one", arguments=":1}"))
    assert gathered(events) == [("a", "one", '{"x":1}')]


def test_TL1_arguments_as_an_object_become_text() -> None:
    assert gathered(read(call(0, call_id="a", name="one", arguments={"x": "é"}))) == [
        ("a", "one", '{"x": "é"}')
    ]


def code_of(*chunks: bytes, reason: str | None = None) -> ErrorCode:
    with pytest.raises(ModelFault) as caught:
        read(*chunks, reason=reason)
    return caught.value.code


@pytest.mark.parametrize(
    "chunk",
    [
        b"{",
        b"oops",
        b"[]",
        b"7",
        b'{"choices":7}',
        b'{"choices":[{"delta":{"content":7}}]}',
        b'{"choices":[{"delta":{"content":"\xff"}}]}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
    ],
)
def test_ST6_broken_chunks_are_a_bad_response(chunk: bytes) -> None:
    assert code_of(chunk) is ErrorCode.LLM_BAD_RESPONSE


def test_ST6_an_end_without_a_finish_is_a_bad_response() -> None:
    assert code_of(delta(content="Hi"), b"[DONE]") is ErrorCode.LLM_BAD_RESPONSE


def test_ST6_a_call_without_a_name_is_a_bad_response() -> None:
    assert code_of(call(0, call_id="a", arguments="{}"), reason="tool_calls") is ErrorCode.LLM_BAD_RESPONSE


def test_ST6_a_content_filter_ends_the_answer() -> None:
    assert code_of(delta(content="Hi"), finish("content_filter")) is ErrorCode.LLM_CONTENT_FILTER


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "secret", "code": "context_length_exceeded"}, ErrorCode.LLM_CONTEXT_LENGTH),
        ({"message": "secret", "code": 429}, ErrorCode.LLM_RATE_LIMITED),
        ({"message": "Rate limit reached", "type": "requests"}, ErrorCode.LLM_RATE_LIMITED),
        ({"message": "secret", "code": 502}, ErrorCode.LLM_UNAVAILABLE),
        ({"message": "secret", "type": "server_error"}, ErrorCode.LLM_UNAVAILABLE),
        ({"message": "secret", "code": "content_filter"}, ErrorCode.LLM_CONTENT_FILTER),
        ({"message": "secret", "status": 401}, ErrorCode.LLM_UNAVAILABLE),
        ("secret", ErrorCode.LLM_UNAVAILABLE),
        (17, ErrorCode.LLM_UNAVAILABLE),
    ],
)
def test_ST6_an_error_object_inside_of_the_stream(error: Any, code: ErrorCode) -> None:
    with pytest.raises(ModelFault) as caught:
        read(delta(content="Hi"), msgspec.json.encode({"error": error}), reason=None)
    assert caught.value.code is code
    assert "secret" not in f"{caught.value} {caught.value.details}"
