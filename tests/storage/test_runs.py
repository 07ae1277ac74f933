"""Runs: beginning, the one end, checkpoints, counts, reading."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import new_ulid
from protocol.run import FinishReason, RunError, RunStatus
from protocol.session import MessageRole, TokenUsage
from protocol.tool_call import ConfirmationState, ExecutionState
from storage.errors import DuplicateRequest, Fenced, Refused
from storage.records import RequestKey, RunEnd, SessionSeed, StepRecord, ToolRecord, TurnWrite
from storage.store import open_store
from tests.storage.support import OWNER, append, begun, end_of, message, request, rows, run_of


async def test_RU1_a_finished_run_leaves_message_step_usage_and_counts(database_url: str) -> None:
    async with open_store(database_url) as store:
        session_id, run = await begun(store)
        await store.runs.finish(session_id, 1, end_of(run, 1))
        row = await store.runs.get(run.run_id, OWNER)
        assert (row.status, row.finish_reason, row.answer) == (RunStatus.SUCCEEDED, "stop", "an answer")
        assert (row.step_count, row.tool_call_count, row.usage.output_tokens) == (1, 0, 5)
        session = await store.sessions.get(session_id, OWNER)
        assert session.usage == TokenUsage(input_tokens=3, output_tokens=5, estimated_cost=0.25)
        assert (session.pair_count, session.message_count) == (1, 2)
        assert [m.role for m in await store.sessions.messages(session_id, OWNER)] == ["user", "assistant"]
        record = await store.sessions.find_request(session_id, "r1")
        assert record is not None
        assert (record.run_id, record.run_status) == (run.run_id, RunStatus.SUCCEEDED)


async def test_ST3_a_run_ends_once_whatever_races(database_url: str) -> None:
    async with open_store(database_url) as left, open_store(database_url) as right:
        for _ in range(15):
            session_id, run = await begun(left)
            left.runs.checkpoint(run.run_id, 1, message(1).message_id, "partial", "")
            await left.checkpoints.flush()
            outcomes: list[str] = []

            async def ending(
                name: str,
                act: Callable[[], Awaitable[Any]],
                said: list[str] = outcomes,
            ) -> None:
                try:
                    await act()
                    said.append(name)
                except Fenced:
                    pass

            stopped = end_of(run, 1, "partial", status=RunStatus.STOPPED, finish=FinishReason.STOPPED)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ending, "stop", lambda s=session_id, e=stopped: left.runs.finish(s, 1, e))
                tasks.start_soon(
                    ending, "done", lambda s=session_id, r=run: left.runs.finish(s, 1, end_of(r, 1, "whole"))
                )
                tasks.start_soon(ending, "claim", lambda s=session_id: right.sessions.claim(s, OWNER))
            row = await left.runs.get(run.run_id, OWNER)
            ended_by = [name for name in outcomes if name != "claim"]
            assert len(ended_by) <= 1
            stored = await left.sessions.messages(session_id, OWNER)
            assert [m.sequence for m in stored] == [0, 1]
            expected = {"stop": RunStatus.STOPPED, "done": RunStatus.SUCCEEDED}
            assert row.status is (expected[ended_by[0]] if ended_by else RunStatus.INTERRUPTED)
            assert stored[1].content == row.answer


async def test_RU3_a_session_has_one_running_run(database_url: str) -> None:
    async with open_store(database_url) as store:
        session_id, _ = await begun(store)
        second = run_of(session_id, "r2")
        with pytest.raises(Refused):
            await store.runs.start(
                session_id, 1, None, request(session_id, "r2", "request_completion"), second
            )
        assert await store.sessions.find_request(session_id, "r2") is None


async def test_ST4_a_request_whose_run_failed_runs_again(database_url: str) -> None:
    async with open_store(database_url) as store:
        session_id, run = await begun(store)
        failed = RunEnd(
            run.run_id,
            RunStatus.FAILED,
            FinishReason.ERROR,
            "",
            TokenUsage(),
            RunError("llm_timeout", "no token"),
        )
        key = request(session_id, "r1", "request_completion")
        with pytest.raises(DuplicateRequest):
            await store.runs.start(session_id, 1, None, key, run_of(session_id))
        await store.runs.finish(session_id, 1, failed)
        assert await store.sessions.find_request(session_id, "r1") is None
        again = run_of(session_id)
        await store.runs.start(session_id, 1, None, key, again)
        claimed = await store.sessions.claim(session_id, OWNER)
        assert claimed is not None
        once_more = run_of(session_id)
        await store.runs.start(session_id, claimed.fence, None, key, once_more)
        record = await store.sessions.find_request(session_id, "r1")
        assert record is not None
        assert record.run_id == once_more.run_id


async def test_ST4_a_chat_request_covers_its_question_and_its_run(database_url: str) -> None:
    session_id = new_ulid()
    async with open_store(database_url) as store:
        question = append(session_id, 0, request_id="c1")
        await store.sessions.append(question)
        assert question.request is not None
        run = run_of(session_id, "c1")
        await store.runs.start(session_id, 1, None, question.request, run)
        record = await store.sessions.find_request(session_id, "c1")
        assert record is not None
        assert (record.message_id, record.run_id) == (question.message.message_id, run.run_id)


async def test_ST4_a_run_may_be_a_sessions_first_change(database_url: str) -> None:
    session_id = new_ulid()
    async with open_store(database_url) as store:
        run = run_of(session_id)
        key = request(session_id, "r1", "request_completion")
        seed = SessionSeed(session_id, OWNER, metadata={"title": "t"}, linked_plan_ids=("p",))
        await store.runs.start(session_id, 1, seed, key, run)
        with pytest.raises(Fenced):
            await store.runs.start(session_id, 1, seed, request(session_id, "r2"), run_of(session_id))
        row = await store.sessions.get(session_id, OWNER)
        assert (row.metadata, row.linked_plan_ids) == ({"title": "t"}, ("p",))


async def test_ST3_a_stop_is_remembered_with_the_run_it_ended(database_url: str) -> None:
    async with open_store(database_url) as store:
        session_id, run = await begun(store)
        stop = RequestKey(session_id, "s1", "stop_completion", "00", {"partial_text": "par"})
        end = end_of(run, 1, "par", status=RunStatus.STOPPED, finish=FinishReason.STOPPED)
        await store.runs.finish(session_id, 1, end, [stop])
        record = await store.sessions.find_request(session_id, "s1")
        assert record is not None
        assert (record.run_id, record.outcome) == (run.run_id, {"partial_text": "par"})


async def test_RU2_turns_of_a_run_that_goes_on_are_counted_from_rows(database_url: str) -> None:
    async with open_store(database_url) as store:
        session_id, run = await begun(store)
        asked = message(1, "", MessageRole.ASSISTANT)
        running = ToolRecord(
            "c1",
            "search",
            '{"q": 1}',
            "00",
            ConfirmationState.NOT_REQUIRED,
            ExecutionState.RUNNING,
            step_index=0,
            assistant_message_id=asked.message_id,
        )
        await store.runs.commit_turn(
            session_id, 1, TurnWrite(run.run_id, (asked,), (StepRecord(0, "m"),), (running,))
        )
        answer = type(asked)(sequence=2, role=MessageRole.TOOL, content="found", tool_call_id="c1")
        done = ToolRecord(
            "c1",
            "search",
            '{"q": 1}',
            "00",
            ConfirmationState.NOT_REQUIRED,
            ExecutionState.SUCCEEDED,
            message_id=answer.message_id,
            result="found",
        )
        await store.runs.commit_turn(session_id, 1, TurnWrite(run.run_id, (answer,), (), (done,)))
        late = ToolRecord(
            "c1", "search", "{}", "00", ConfirmationState.NOT_REQUIRED, ExecutionState.CANCELLED
        )
        end = end_of(run, 3)
        await store.runs.finish(
            session_id,
            1,
            RunEnd(
                end.run_id,
                end.status,
                end.finish_reason,
                end.answer,
                end.usage,
                message=end.message,
                step=StepRecord(1, "m", "an answer"),
                tools=(late,),
            ),
        )
        row = await store.runs.get(run.run_id, OWNER)
        assert (row.step_count, row.tool_call_count) == (2, 1)
        (tool,) = await store.runs.tools(run.run_id)
        assert (tool.execution_state, tool.result, tool.step_index) == ("succeeded", "found", 0)
        assert [s.step_index for s in await store.runs.steps(run.run_id)] == [0, 1]


async def test_TL5_one_decision_counts_and_its_request_is_remembered(database_url: str) -> None:
    async with open_store(database_url) as store:
        session_id, run = await begun(store)
        asked = message(1, "", MessageRole.ASSISTANT)
        waiting = ToolRecord(
            "c1", "canvas_edit", "{}", "00", ConfirmationState.PENDING, ExecutionState.WAITING
        )
        await store.runs.commit_turn(session_id, 1, TurnWrite(run.run_id, (asked,), (), (waiting,)))
        decided = ToolRecord(
            "c1",
            "canvas_edit",
            "{}",
            "00",
            ConfirmationState.ACCEPTED,
            ExecutionState.WAITING,
            decision="accept",
            decided_by=OWNER,
        )
        key = request(session_id, "d1", "confirm_tool")
        await store.runs.commit_turn(session_id, 1, TurnWrite(tools=(decided,), requests=(key,)))
        with pytest.raises(DuplicateRequest):
            await store.runs.commit_turn(session_id, 1, TurnWrite(tools=(waiting,), requests=(key,)))
        claimed = await store.sessions.claim(session_id, OWNER)
        assert claimed is not None
        assert [(t.confirmation_state, t.decided_by, t.run_id) for t in claimed.tools] == [
            (ConfirmationState.ACCEPTED, OWNER, run.run_id)
        ]


async def test_ST7_a_late_checkpoint_neither_undoes_an_end_nor_reports_it(database_url: str) -> None:
    async with open_store(database_url, checkpoint_s=60) as store:
        lost: list[str] = []
        store.runs.on_fenced = lost.append
        session_id, run = await begun(store)
        store.runs.checkpoint(run.run_id, 1, message(1).message_id, "late", "")
        await store.runs.finish(session_id, 1, end_of(run, 1))
        await store.checkpoints.flush()
        assert lost == []
        store.runs.checkpoint(run.run_id, 1, message(1).message_id, "later", "")
        await store.checkpoints.flush()
        assert lost == [run.run_id]
    (row,) = await rows(database_url, "select status, partial_text from diagnosis_run")
    assert tuple(row) == ("succeeded", "")


async def test_ST7_checkpoints_of_many_runs_are_written_and_bad_ones_left_out(database_url: str) -> None:
    async with open_store(database_url, checkpoint_s=60) as store:
        made = [await begun(store) for _ in range(5)]
        for at, (_, run) in enumerate(made):
            text = "bad \0" if at == 2 else f"text {at}"
            store.runs.checkpoint(run.run_id, 1, message(1).message_id, text, "")
        await store.checkpoints.flush()
        assert store.checkpoints.failures == 1
    found = await rows(database_url, "select partial_text from diagnosis_run order by id")
    assert [r[0] for r in found] == ["text 0", "text 1", "", "text 3", "text 4"]


async def test_RU1_runs_list_newest_first_by_page_with_previews(database_url: str) -> None:
    async with open_store(database_url) as store:
        session_id, run = await begun(store)
        made = [run.run_id]
        await store.runs.finish(session_id, 1, end_of(run, 1, "x" * 500))
        for at in range(4):
            following = run_of(session_id, f"q{at}")
            await store.runs.start(session_id, 1, None, request(session_id, f"q{at}"), following)
            await store.runs.finish(session_id, 1, end_of(following, 2 + at))
            made.append(following.run_id)
        first, cursor = await store.runs.list(session_id, OWNER, limit=3)
        second, end = await store.runs.list(session_id, OWNER, limit=3, cursor=cursor)
        assert [r.run_id for r in first + second] == made[::-1]
        assert end is None
        assert len(second[-1].answer_preview) == 200
        latest = await store.runs.latest(session_id, OWNER)
        assert latest is not None
        assert latest.run_id == made[-1]
        with pytest.raises(Fault) as caught:
            await store.runs.get(run.run_id, "somebody")
        assert caught.value.code is ErrorCode.NOT_FOUND
        await store.runs.set_evaluation(run.run_id, "aiops_rule_evaluation", {"score": 1.0})
        marked = await store.runs.set_feedback(run.run_id, OWNER, "useful")
        assert marked.self_evaluation == {"aiops_rule_evaluation": {"score": 1.0}}
        assert marked.feedback == "useful"
