"""Sessions: appending, the fence, duplicates, taking over, reading."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import new_ulid, utc_now
from protocol.run import RunStatus
from protocol.session import MessageRole, TokenUsage
from protocol.tool_call import ConfirmationState, ExecutionState, ToolCall
from storage.errors import DuplicateRequest, Fenced, Refused
from storage.records import SessionSeed, ToolRecord, TurnWrite
from storage.store import open_store
from tests.storage.support import OWNER, append, begun, end_of, message, request, rows, run_of


async def test_SE2_appended_messages_are_claimed_in_order(database_url: str) -> None:
    session_id = new_ulid()
    async with open_store(database_url) as store:
        assert await store.sessions.claim(session_id, OWNER) is None
        for sequence in range(5):
            await store.sessions.append(append(session_id, sequence, content=f"m{sequence} 数据库 🙂"))
        claimed = await store.sessions.claim(session_id, OWNER, window=3)
    assert claimed is not None
    assert claimed.fence == 2
    assert claimed.next_sequence == 5
    assert [m.content for m in claimed.messages] == [f"m{n} 数据库 🙂" for n in (2, 3, 4)]


async def test_ER5_a_write_of_an_older_fence_changes_nothing(database_url: str) -> None:
    session_id = new_ulid()
    async with open_store(database_url) as old, open_store(database_url) as new:
        await old.sessions.append(append(session_id, 0))
        claimed = await new.sessions.claim(session_id, OWNER)
        assert claimed is not None
        with pytest.raises(Fenced):
            await old.sessions.append(append(session_id, 1, request_id="late"))
        assert await new.sessions.find_request(session_id, "late") is None
        await new.sessions.append(append(session_id, 1, fence=claimed.fence))
        assert [m.sequence for m in await new.sessions.messages(session_id, OWNER)] == [0, 1]


async def test_ER5_of_two_owners_that_race_one_is_fenced_at_every_round(database_url: str) -> None:
    session_id = new_ulid()
    async with open_store(database_url) as left, open_store(database_url) as right:
        await left.sessions.append(append(session_id, 0))
        fences = {id(left): 1, id(right): 1}
        written = 1

        async def turn(store: Any) -> None:
            nonlocal written
            claimed = await store.sessions.claim(session_id, OWNER)
            assert claimed is not None
            fences[id(store)] = claimed.fence
            try:
                await store.sessions.append(append(session_id, claimed.next_sequence, fence=claimed.fence))
                written += 1
            except Fenced:
                pass

        for _ in range(15):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(turn, left)
                tasks.start_soon(turn, right)
        stored = await left.sessions.messages(session_id, OWNER)
        assert [m.sequence for m in stored] == list(range(written))
        assert len({*fences.values()}) == 2


async def test_ST4_two_seeds_of_one_id_make_one_row(database_url: str) -> None:
    session_id = new_ulid()
    outcomes: list[str] = []
    async with open_store(database_url) as left, open_store(database_url) as right:

        async def seed(store: Any) -> None:
            try:
                await store.sessions.append(append(session_id, 0))
                outcomes.append("written")
            except Fenced:
                outcomes.append("fenced")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(seed, left)
            tasks.start_soon(seed, right)
        assert sorted(outcomes) == ["fenced", "written"]
        assert len(await left.sessions.messages(session_id, OWNER)) == 1


async def test_ST4_a_used_request_id_is_found_with_what_it_made(database_url: str) -> None:
    session_id = new_ulid()
    async with open_store(database_url) as store:
        first = append(session_id, 0, request_id="a")
        await store.sessions.append(first)
        with pytest.raises(DuplicateRequest) as caught:
            await store.sessions.append(append(session_id, 1, request_id="a", content="other"))
        record = caught.value.record
        assert record.message_id == first.message.message_id
        assert first.request is not None
        assert record.body_sha256 == first.request.body_sha256
        assert len(await store.sessions.messages(session_id, OWNER)) == 1
        assert await store.sessions.find_request(session_id, "a") == record
        assert await store.sessions.message(session_id, first.message.message_id) == first.message
        with pytest.raises(Fault):
            await store.sessions.message(session_id, new_ulid())


async def test_ST4_a_request_of_the_project_used_elsewhere_seeds_no_session(database_url: str) -> None:
    project, one, two = new_ulid(), new_ulid(), new_ulid()
    async with open_store(database_url) as store:
        for session_id in (one, two):
            write = append(session_id, 0)
            keyed = type(write)(
                session_id, 1, write.message, SessionSeed(session_id, OWNER), request(project, "q")
            )
            if session_id == one:
                await store.sessions.append(keyed)
            else:
                with pytest.raises(DuplicateRequest):
                    await store.sessions.append(keyed)
        assert await store.sessions.claim(two, OWNER) is None


async def test_SE2_a_gap_in_the_sequence_is_fenced(database_url: str) -> None:
    session_id = new_ulid()
    async with open_store(database_url) as store:
        await store.sessions.append(append(session_id, 0))
        with pytest.raises(Fenced):
            await store.sessions.append(append(session_id, 2))


async def test_ER2_a_bad_row_fails_alone(database_url: str) -> None:
    sessions = [new_ulid() for _ in range(12)]
    outcomes: dict[str, str] = {}
    async with open_store(database_url) as store:
        for session_id in sessions:
            await store.sessions.append(append(session_id, 0))

        async def one(at: int, session_id: str) -> None:
            content = {3: "nul \0", 5: "surrogate \ud800"}.get(at, "good")
            fence = 7 if at == 8 else 1
            try:
                await store.sessions.append(append(session_id, 1, content=content, fence=fence))
                outcomes[session_id] = "written"
            except (Refused, Fenced) as error:
                outcomes[session_id] = type(error).__name__

        async with anyio.create_task_group() as tasks:
            for at, session_id in enumerate(sessions):
                tasks.start_soon(one, at, session_id)
    expected = {3: "Refused", 5: "Refused", 8: "Fenced"}
    assert [outcomes[s] for s in sessions] == [expected.get(at, "written") for at in range(12)]


async def test_ER5_a_row_that_another_process_has_locked_delays_only_itself(database_url: str) -> None:
    import asyncpg

    stuck, free = new_ulid(), new_ulid()
    async with open_store(database_url) as store:
        for session_id in (stuck, free):
            await store.sessions.append(append(session_id, 0))
        blocker = await asyncpg.connect(database_url)
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute("select from chat_session where session_id = $1 for update", stuck)
        order: list[str] = []

        async def one(session_id: str) -> None:
            await store.sessions.append(append(session_id, 1))
            order.append(session_id)
            if session_id == free:
                await transaction.rollback()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, stuck)
            tasks.start_soon(one, free)
        await blocker.close()
    assert order == [free, stuck]


async def test_RU3_claim_interrupts_and_promotes_the_streamed_text(database_url: str) -> None:
    async with open_store(database_url, checkpoint_s=0.01) as store:
        session_id, run = await begun(store)
        partial = message(1).message_id
        store.runs.checkpoint(run.run_id, 1, partial, "half an ans", "hm")
        await store.checkpoints.flush()
        claimed = await store.sessions.claim(session_id, OWNER)
        assert claimed is not None
        last = claimed.messages[-1]
        assert (last.message_id, last.sequence, last.role) == (partial, 1, MessageRole.ASSISTANT)
        assert (last.content, last.metadata) == ("half an ans", {"finish_reason": "interrupted"})
        assert claimed.next_sequence == 2
        assert claimed.pair_count == 1
        assert claimed.last_run is not None
        assert claimed.last_run.status is RunStatus.INTERRUPTED
        assert claimed.last_run.request_id == "r1"
        row = await store.runs.get(run.run_id, OWNER)
        assert (row.answer, row.step_count, row.finish_reason) == ("half an ans", 1, "interrupted")
        steps = await store.runs.steps(run.run_id)
        assert [(s.content, s.thinking) for s in steps] == [("half an ans", "hm")]
        await store.sessions.append(append(session_id, 2, fence=claimed.fence))


async def test_RU3_claim_without_streamed_text_adds_no_message(database_url: str) -> None:
    async with open_store(database_url) as store:
        session_id, _ = await begun(store)
        claimed = await store.sessions.claim(session_id, OWNER)
        assert claimed is not None
        assert claimed.next_sequence == 1
        assert claimed.last_run is not None
        assert claimed.last_run.status is RunStatus.INTERRUPTED


async def test_ST7_claim_settles_executing_tools_and_answers_their_calls(database_url: str) -> None:
    async with open_store(database_url) as store:
        session_id, run = await begun(store)
        states = {
            "c1": (ConfirmationState.NOT_REQUIRED, ExecutionState.RUNNING),
            "c2": (ConfirmationState.NOT_REQUIRED, ExecutionState.WAITING),
            "c3": (ConfirmationState.PENDING, ExecutionState.WAITING),
        }
        calls = tuple(ToolCall(tool_call_id=name, name="search") for name in states)
        assistant = message(1, "", MessageRole.ASSISTANT)
        asking = type(assistant)(
            message_id=assistant.message_id,
            sequence=1,
            role=MessageRole.ASSISTANT,
            content="",
            tool_calls=calls,
        )
        tools = tuple(ToolRecord(name, "search", "{}", "00", *both) for name, both in states.items())
        await store.runs.commit_turn(session_id, 1, TurnWrite(run.run_id, (asking,), (), tools))
        claimed = await store.sessions.claim(session_id, OWNER)
    assert claimed is not None
    by_id = {call.tool_call_id: call for call in claimed.messages[1].tool_calls}
    assert by_id["c1"].execution_state is ExecutionState.FAILED
    assert by_id["c1"].error is not None
    assert by_id["c1"].error.code == "outcome_unknown"
    assert by_id["c2"].execution_state is ExecutionState.CANCELLED
    assert by_id["c3"].execution_state is ExecutionState.WAITING
    assert [tool.tool_call_id for tool in claimed.tools] == ["c3"]
    assert [m.tool_call_id for m in claimed.messages[2:]] == ["c1", "c2"]
    assert claimed.next_sequence == 4


async def test_ER5_reclaim_keeps_the_own_run_and_shuts_out_late_writes(database_url: str) -> None:
    async with open_store(database_url, checkpoint_s=60) as store:
        lost: list[str] = []
        store.runs.on_fenced = lost.append
        session_id, run = await begun(store)
        store.runs.checkpoint(run.run_id, 1, message(1).message_id, "text", "")
        claimed = await store.sessions.reclaim(session_id, 1, run.run_id)
        assert claimed is not None
        assert claimed.fence == 2
        assert claimed.last_run is not None
        assert claimed.last_run.status is RunStatus.RUNNING
        await store.checkpoints.flush()
        assert lost == []
        with pytest.raises(Fenced):
            await store.runs.finish(session_id, 1, end_of(run, 1))
        await store.runs.finish(session_id, 2, end_of(run, 1))
        again = await store.sessions.reclaim(session_id, 1, None)  # the first one's outcome was unknown, say
        assert again is not None
        assert again.fence == claimed.fence + 1
        async with open_store(database_url) as other:
            await other.sessions.claim(session_id, OWNER)
        with pytest.raises(Fenced):
            await store.sessions.reclaim(session_id, 1, None)
        assert await store.sessions.reclaim(new_ulid(), 1, None) is None


async def test_CN4_a_foreign_or_deleted_id_is_not_found(database_url: str) -> None:
    session_id = new_ulid()
    async with open_store(database_url) as store:
        await store.sessions.append(append(session_id, 0))
        for call in (
            store.sessions.claim(session_id, "somebody"),
            store.sessions.get(session_id, "somebody"),
            store.sessions.messages(session_id, "somebody"),
            store.sessions.delete(session_id, "somebody"),
            store.runs.list(session_id, "somebody"),
        ):
            with pytest.raises(Fault) as caught:
                await call
            assert caught.value.code is ErrorCode.NOT_FOUND
        await store.sessions.delete(session_id, OWNER)
        with pytest.raises(Fault):
            await store.sessions.claim(session_id, OWNER)
        with pytest.raises(Fenced):
            await store.sessions.append(append(session_id, 1))
        with pytest.raises(Fault) as exists:
            await store.sessions.create(SessionSeed(session_id, OWNER))
        assert exists.value.code is ErrorCode.SESSION_EXISTS
    assert await rows(database_url, "select from session_message") == []


async def test_CN4_a_conversation_belongs_to_its_project(database_url: str) -> None:
    session_id, project = new_ulid(), new_ulid()
    async with open_store(database_url) as store:
        await store.sessions.create(SessionSeed(session_id, OWNER, project_id=project))
        with pytest.raises(Fault) as caught:
            await store.sessions.claim(session_id, OWNER)
        assert caught.value.code is ErrorCode.USE_PROJECT_SOCKET
        claimed = await store.sessions.claim(session_id, OWNER, project=project)
        assert claimed is not None
        assert claimed.project_id == project


async def test_SE1_sessions_list_newest_first_by_page(database_url: str) -> None:
    async with open_store(database_url) as store:
        made = [new_ulid() for _ in range(7)]
        for session_id in made:
            await store.sessions.create(
                SessionSeed(session_id, OWNER, metadata={"title": session_id}, created_at=utc_now())
            )
        seen: list[str] = []
        cursor: str | None = None
        while True:
            page, cursor = await store.sessions.list(OWNER, limit=3, cursor=cursor)
            seen += [row.session_id for row in page]
            if cursor is None:
                break
        assert seen == made[::-1]
        with pytest.raises(Fault) as caught:
            await store.sessions.list(OWNER, cursor="nonsense")
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        changed = await store.sessions.update(made[0], OWNER, metadata={"title": "new"}, actor_name="a/b")
        assert (changed.metadata, changed.actor_name) == ({"title": "new"}, "a/b")
        kept = await store.sessions.update(made[0], OWNER, linked_plan_ids=("p",))
        assert (kept.actor_name, kept.linked_plan_ids) == ("a/b", ("p",))
        assert (await store.sessions.update(made[0], OWNER, actor_name=None)).actor_name is None


async def test_RU1_chat_session_has_no_message_text(database_url: str) -> None:
    session_id = new_ulid()
    async with open_store(database_url) as store:
        await store.sessions.append(append(session_id, 0, content="a-secret-word"))
        run = run_of(session_id)
        await store.runs.start(session_id, 1, None, request(session_id, "r", "request_completion"), run)
        await store.runs.finish(session_id, 1, end_of(run, 1, "a-secret-word"))
    (row,) = await rows(database_url, "select s::text from chat_session s")
    assert "a-secret-word" not in row[0]


async def test_SE6_a_session_is_restored_whole_or_not_at_all(database_url: str) -> None:
    session_id = new_ulid()
    messages = [
        message(at, f"m{at}", MessageRole.USER if at % 2 == 0 else MessageRole.ASSISTANT)
        for at in range(1200)
    ]
    usage = TokenUsage(input_tokens=1, output_tokens=2, estimated_cost=0.5)
    async with open_store(database_url) as store:
        seed = SessionSeed(session_id, OWNER)
        await store.sessions.restore(seed, messages, usage, utc_now())
        assert await store.sessions.messages(session_id, OWNER) == messages
        row = await store.sessions.get(session_id, OWNER)
        assert (row.message_count, row.pair_count, row.usage) == (1200, 600, usage)
        for again in (seed, SessionSeed(new_ulid(), OWNER)):
            with pytest.raises(Fault) as caught:
                await store.sessions.restore(again, messages, usage, utc_now())
            assert caught.value.code is ErrorCode.SESSION_EXISTS
        page, _ = await store.sessions.list(OWNER)
        assert [r.session_id for r in page] == [session_id]
