"""One model turn as frames (ST1, ST2, TL1), and the gate of a run (ST3)."""

from __future__ import annotations

import asyncio
import json

from hypothesis import given
from hypothesis import strategies as st

from protocol.server_frames import (
    FinishReason,
    LlmTextChunk,
    LlmTextSentence,
    LlmThinkingChunk,
    ServerFrame,
    ToolCallChunk,
)
from server.engine.live_run import Failed, Finished, LiveRun, Stopped
from server.engine.turn import CHUNK_CHARACTERS, Turn
from server.llm.base import TextDelta, ThinkingDelta, ToolCallDelta, TurnFinished, UsageReport

CHARACTERS = st.characters(exclude_categories=("Cs",), exclude_characters="\0")


def new_turn(taken: set[str] | None = None) -> Turn:
    return Turn("req", "run", "msg", taken_ids=taken or set())


@given(st.lists(st.text(CHARACTERS, min_size=1)))
def test_ST2_chunks_sentences_and_text_are_the_same_for_any_text(deltas: list[str]) -> None:
    turn = new_turn()
    frames = [frame for delta in deltas for frame in turn.feed(TextDelta(delta))]
    told = "".join(frame.text for frame in frames if isinstance(frame, LlmTextChunk))
    sentences = [frame for frame in frames if isinstance(frame, LlmTextSentence)]
    assert told == turn.text == "".join(deltas)
    assert "".join(s.text for s in sentences) + turn.sentence_begun == told
    assert turn.next_sentence_index == len(sentences)
    sentences += [frame for frame in turn.finish_text() if isinstance(frame, LlmTextSentence)]
    assert "".join(s.text for s in sentences) == told
    assert [s.index for s in sentences] == list(range(len(sentences)))


def test_ST1_a_token_of_megabytes_is_told_in_chunks() -> None:
    turn = new_turn()
    text = "é" * (CHUNK_CHARACTERS * 3 + 5)
    frames = turn.feed(TextDelta(text)) + turn.feed(ThinkingDelta(text))
    for kind in (LlmTextChunk, LlmThinkingChunk):
        pieces = [frame.text for frame in frames if isinstance(frame, kind)]
        assert "".join(pieces) == text
        assert max(map(len, pieces)) <= CHUNK_CHARACTERS


def test_TL1_interleaved_calls_accumulate_and_name_themselves_once() -> None:
    turn = new_turn()
    deltas = [
        ToolCallDelta(0, "a", "search", ""),
        ToolCallDelta(1, "b", "canvas_edit", '{"x"'),
        ToolCallDelta(0, None, None, '{"q":'),
        ToolCallDelta(1, None, None, ":1}"),
        ToolCallDelta(0, None, None, '"hi"}'),
    ]
    frames = [frame for delta in deltas for frame in turn.feed(delta) if isinstance(frame, ToolCallChunk)]
    for index, tool_call_id, name in ((0, "a", "search"), (1, "b", "canvas_edit")):
        own = [frame for frame in frames if frame.index == index]
        assert (own[0].id, own[0].function.name) == (tool_call_id, name)
        assert all(frame.id is None and frame.function.name is None for frame in own[1:])
        json.loads("".join(frame.function.arguments for frame in own))


def test_TL1_an_id_that_the_model_repeats_is_made_unique() -> None:
    turn = new_turn({"call_1"})
    turn.feed(ToolCallDelta(0, "call_1", "search", "{}"))
    turn.feed(ToolCallDelta(1, "x", "search", "{}"))
    turn.feed(ToolCallDelta(2, "x", "search", "{}"))
    ids = [call.tool_call_id for call in turn.calls.values()]
    assert len({*ids, "call_1"}) == 4


def test_ST1_thinking_is_told_only_when_it_was_asked_for() -> None:
    turn = Turn("req", "run", "msg", reasoning=False)
    assert turn.feed(ThinkingDelta("hm")) == []
    assert turn.thinking == ""


def test_ST6_usage_and_finish_are_taken_in_any_order() -> None:
    turn = new_turn()
    for event in (TurnFinished("length"), UsageReport(3, 4)):
        assert turn.feed(event) == []
    assert (turn.finish, turn.input_tokens, turn.output_tokens) == ("length", 3, 4)


async def test_ST3_the_first_end_closes_the_gate_and_flushes_the_sentence_begun() -> None:
    told: list[ServerFrame] = []
    run = LiveRun(
        "req", "run", "m", reasoning=False, started=asyncio.get_running_loop().time(), emit=told.append
    )
    run.tell(run.turn.feed(TextDelta("Half a sent")))
    assert run.close(Stopped("stop", None))
    assert isinstance(told[-1], LlmTextSentence)
    assert told[-1].text == "Half a sent"
    before = len(told)
    run.tell(run.turn.feed(TextDelta("ence.")))
    assert not run.close(Finished(FinishReason.STOP))
    assert isinstance(run.outcome, Stopped)
    assert len(told) == before
    assert Failed is not type(run.outcome)
