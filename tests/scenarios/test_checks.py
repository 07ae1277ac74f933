"""Assertions over collected frames, and what is always checked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scenarios.checks import SelectorError, check, select
from scenarios.client import Received
from scenarios.format import Assert
from scenarios.invariants import Ledger, sequence_fault

_RUN = {"request_id": "r", "run_id": "run-1"}


def _received(*frames: dict[str, Any]) -> list[Received]:
    return [Received(msgspec.json.encode(frame), frame, 0.0) for frame in frames]


def _chunk(seq: int, text: str) -> dict[str, Any]:
    return {"type": "llm_text_chunk", "seq": seq, "text": text, "message_id": "m", **_RUN}


_ANSWER = _received(
    {"type": "completion_init", "seq": 1, **_RUN},
    _chunk(2, "Hello "),
    _chunk(3, "there."),
    {"type": "llm_text_sentence", "seq": 4, "index": 0, "text": "Hello there.", **_RUN},
    {"type": "completion_done", "seq": 5, **_RUN},
)
_LISTS = {"answer": _ANSWER, "part": _ANSWER[1:3]}


def _check(**fields: Any) -> list[str]:
    return check(msgspec.convert({"verb": "assert", "assert": "answer", **fields}, Assert), _LISTS)


@pytest.mark.parametrize(
    ("selector", "value"),
    [
        ("concat llm_text_chunk.text", "Hello there."),
        ("one llm_text_sentence.index", 0),
        ("first llm_text_chunk.text", "Hello "),
        ("last llm_text_chunk.seq", 3),
        ("list part:*.seq", [2, 3]),
        ("count llm_*", 3),
        ("count completion_init|completion_done", 2),
        ("list part:*.seq + list completion_done.seq", [2, 3, 5]),
        ("= one two + three", "one two + three"),
    ],
)
def test_a_selector_gives_its_value(selector: str, value: Any) -> None:
    assert select(selector, _LISTS, "answer") == value


@pytest.mark.parametrize(
    "selector",
    ["one llm_text_chunk.text", "first pong.t", "sum *.seq", "count other:*", "count * + concat *.type"],
)
def test_a_selector_without_its_frames_is_an_error(selector: str) -> None:
    with pytest.raises(SelectorError):
        select(selector, _LISTS, "answer")


@pytest.mark.parametrize(
    "fields",
    [
        {"equal": ["concat llm_text_chunk.text", "concat llm_text_sentence.text", "= Hello there."]},
        {"every": {"request_id": "r"}},
        {"counts": {"llm_text_chunk": 2, "pong": 0, "*": {"min": 5}}},
        {"order": ["completion_init", "llm_*", "completion_done"]},
        {"none_after": {"frame": {"type": "llm_text_sentence"}, "allow": ["completion_done"]}},
        {"values": {"list *.seq": [1, 2, 3, 4, 5]}},
        {"dense": True},
        {"ascending": "llm_text_sentence.index"},
        {"same_bytes": "part"},
        {"json": '= {"a": 1}'},
    ],
)
def test_what_holds_is_silent(fields: dict[str, Any]) -> None:
    assert _check(**fields) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"equal": ["concat llm_text_chunk.text", "= Hello, you."]}, "differ from character 5"),
        ({"every": {"text": {"is": "present"}}}, "frame 0 (completion_init)"),
        ({"counts": {"llm_text_chunk": 3}}, "count of llm_text_chunk: expected exactly 3, got 2"),
        ({"order": ["llm_text_sentence", "llm_text_chunk"]}, "before the last llm_text_sentence"),
        ({"order": ["completion_init", "error"]}, "no error"),
        ({"none_after": {"frame": {"type": "completion_init"}}}, "frame 1 (llm_text_chunk) came after"),
        ({"none_after": {"frame": {"type": "error"}}}, "no frame like"),
        ({"values": {"one completion_init.seq": 2}}, "expected exactly 2, got 1"),
        ({"ascending": "llm_text_chunk.seq"}, "not 0, 1, 2"),
        ({"same_bytes": "other"}, "nothing was collected"),
        ({"json": "= {"}, "not JSON"),
        ({"assert": "other"}, "nothing was collected"),
    ],
)
def test_what_does_not_hold_is_said(fields: dict[str, Any], said: str) -> None:
    assert said in "\n".join(_check(**fields))


def test_a_gap_is_not_dense() -> None:
    lists = {"answer": [_ANSWER[0], _ANSWER[2]]}
    assert check(msgspec.convert({"verb": "assert", "assert": "answer", "dense": True}, Assert), lists) == [
        "seq 3 follows 1"
    ]


def _faults(*frames: dict[str, Any]) -> list[str]:
    ledger = Ledger()
    return [
        fault
        for received in _received(*frames)
        for fault in ledger.add("/ws/x", "epoch", received.frame, received.data)
    ]


_INIT = {"type": "completion_init", "seq": 1, **_RUN}


def _complete(seq: int, content: str) -> dict[str, Any]:
    return {"type": "assistant_message_complete", "seq": seq, "content": content, **_RUN}


def _sentence(seq: int, index: int, text: str) -> dict[str, Any]:
    return {"type": "llm_text_sentence", "seq": seq, "index": index, "text": text, **_RUN}


def test_CN6_the_same_seq_with_other_bytes_is_a_fault() -> None:
    assert _faults(_chunk(7, "a"), _chunk(7, "a")) == []
    assert "other bytes" in _faults(_chunk(7, "a"), _chunk(7, "b"))[0]


def test_ST2_chunks_sentences_and_content_must_be_one() -> None:
    assert _faults(_INIT, _chunk(2, "a. "), _sentence(3, 0, "a. "), _complete(4, "a. ")) == []
    assert (
        "chunks concatenate" in _faults(_INIT, _chunk(2, "a"), _sentence(3, 0, "a."), _complete(4, "a."))[0]
    )
    assert "sentences concatenate" in _faults(_INIT, _chunk(2, "a."), _complete(3, "a."))[0]
    assert "sentence 1 came" in _faults(_INIT, _sentence(2, 1, "a."))[0]


def test_ST3_partial_text_must_be_what_was_streamed() -> None:
    stopped = {"type": "stop_completion", "seq": 4, "partial_text": "abc", **_RUN}
    assert _faults(_INIT, _chunk(2, "abc"), _sentence(3, 0, "abc"), stopped) == []
    assert "partial_text" in _faults(_INIT, _chunk(2, "ab"), _sentence(3, 0, "ab"), stopped)[0]


def test_ST1_nothing_of_a_run_comes_after_its_end() -> None:
    done = {"type": "completion_done", "seq": 2, **_RUN}
    assert "after its completion_done" in _faults(_INIT, done, _chunk(3, "late"))[0]


def test_ST4_every_frame_of_a_run_has_its_request_id() -> None:
    assert "request_id" in _faults(_INIT, _chunk(2, "a") | {"request_id": "other"})[0]


def test_what_was_not_seen_from_its_beginning_is_not_judged() -> None:
    assert _faults(_chunk(5, "rest"), _complete(6, "all of it and the rest")) == []
    assert _faults(_INIT, _chunk(2, "a"), _chunk(9, "z"), _complete(10, "a…z")) == []


@pytest.mark.parametrize(
    ("frame", "is_fault"),
    [
        ({"type": "pong"}, False),
        ({"type": "pong", "seq": 1}, True),
        ({"type": "llm_text_chunk"}, True),
        ({"type": "message_appended", "repeated": True}, False),
        ({"type": "error"}, False),
        ({"type": "error", "seq": 4}, False),
        ({"type": "connected", "seq": 4}, False),
    ],
)
def test_CN6_only_sequenced_frames_have_a_seq(frame: dict[str, Any], is_fault: bool) -> None:
    assert (sequence_fault(frame) is not None) is is_fault
