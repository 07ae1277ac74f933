"""Projects and canvases in the store: whole changes, the fence, pages, deletion."""

from __future__ import annotations

import asyncio

import pytest

from protocol.canvas import CreatedBy, Position, Size
from protocol.errors import Fault
from protocol.ids import new_ulid, new_uuid
from protocol.session import MessageRole
from storage.errors import DuplicateRequest, Fenced, Refused
from storage.records import ProjectSeed, SessionSeed
from storage.store import open_store
from tests.projects.support import change, edge, new_project, node
from tests.storage.support import OWNER, append, begun, request, rows, run_of


async def counts(dsn: str) -> tuple[int, int, int]:
    found = await rows(
        dsn,
        "select (select count(*) from canvas_node), (select count(*) from canvas_edge), "
        "(select coalesce(sum(canvas_version), 0) from project)",
    )
    return int(found[0][0]), int(found[0][1]), int(found[0][2])


async def test_CV1_a_change_is_read_back_as_it_was_written(database_url: str) -> None:
    project_id = new_project()
    by = CreatedBy(run_id="run-1", tool_call_id="call-1")
    a = node(
        type="note",
        position=Position(x=-0.1, y=1e300),
        size=Size(width=5e-324, height=2.0),
        data={"z": 1.0, "a": 1e300, "ü": [None, True, 2**63, {"b": "\u2028"}]},
        created_by=by,
    )
    b = node()
    ab = edge(a, b)
    async with open_store(database_url) as store:
        await store.canvases.write(change(project_id, 0, a, b, ab))
        assert await store.canvases.read(project_id, 1) == (1, [a, b], [ab])
        version, nodes, _ = await store.canvases.read(project_id, 1)
        assert list(nodes[0].data) == ["z", "a", "ü"]
        assert isinstance(nodes[0].data["z"], float)
        assert isinstance(nodes[0].data["a"], float)
        assert version == 1
        row = await store.projects.get(project_id, OWNER)
        assert (row.canvas_version, row.metadata) == (1, {})


async def test_CV3_a_node_and_its_edges_go_in_one_statement(database_url: str) -> None:
    project_id = new_project()
    a, b, c = node(), node(), node()
    ab, bc = edge(a, b), edge(b, c)
    async with open_store(database_url) as store:
        await store.canvases.write(change(project_id, 0, a, b, c, ab, bc))
        with pytest.raises(Refused):  # an edge would be left without its node
            await store.canvases.write(change(project_id, 1, gone=(a.id,)))
        assert await counts(database_url) == (3, 2, 1)
        await store.canvases.write(change(project_id, 1, gone=(a.id,), gone_edges=(ab.id,)))
        assert await store.canvases.read(project_id, 1) == (2, [b, c], [bc])


async def test_CV1_a_change_that_the_database_refuses_leaves_nothing(database_url: str) -> None:
    project_id = new_project()
    a, b = node(), node()
    async with open_store(database_url) as store:
        with pytest.raises(Refused):
            await store.canvases.write(change(project_id, 0, a, edge(a, b), request_id="r"))
        assert await counts(database_url) == (0, 0, 0)
        assert await store.canvases.find_request(project_id, "r") is None
        await store.canvases.write(change(project_id, 0, a, b, edge(a, b), request_id="r"))


async def test_ST4_a_request_is_carried_out_once(database_url: str) -> None:
    project_id = new_project()
    async with open_store(database_url) as store:
        await store.canvases.write(change(project_id, 0, node(), request_id="r"))
        with pytest.raises(DuplicateRequest) as duplicate:
            await store.canvases.write(change(project_id, 1, node(), request_id="r"))
        assert duplicate.value.record.kind == "canvas"
        other = new_project()
        await store.sessions.append(append(new_ulid(), 0, request_id="s"))
        await store.canvases.write(change(other, 0, node(), request_id="r"))
    assert await counts(database_url) == (2, 0, 2)


async def test_RU3_a_writer_without_the_fence_or_of_another_version_writes_nothing(database_url: str) -> None:
    project_id = new_project()
    async with open_store(database_url) as store:
        await store.canvases.write(change(project_id, 0, node()))
        for late in (
            change(project_id, 0, node()),  # a seed for what is there
            change(project_id, 2, node()),
            change(project_id, 1, node(), fence=2),
        ):
            with pytest.raises(Fenced):
                await store.canvases.write(late)
        claimed = await store.projects.claim(project_id, OWNER)
        assert claimed is not None
        assert (claimed.fence, claimed.row.canvas_version) == (2, 1)
        with pytest.raises(Fenced):
            await store.canvases.write(change(project_id, 1, node()))
        with pytest.raises(Fenced):
            await store.canvases.read(project_id, 1)
        await store.canvases.write(change(project_id, 1, node(), fence=2))
    assert await counts(database_url) == (2, 0, 2)


async def test_CV1_of_many_writers_of_one_version_one_wins(database_url: str) -> None:
    project_id = new_project()
    async with open_store(database_url) as store:
        await store.canvases.write(change(project_id, 0, node()))

        async def try_write() -> bool:
            try:
                await store.canvases.write(change(project_id, 1, node(), node(), node()))
            except Fenced:
                return False
            return True

        assert sum(await asyncio.gather(*(try_write() for _ in range(8)))) == 1
    assert await counts(database_url) == (4, 0, 2)


async def test_after_an_unknown_outcome_the_late_write_is_shut_out(database_url: str) -> None:
    project_id = new_project()
    async with open_store(database_url) as store:
        assert await store.projects.reclaim(project_id, 1) is None
        await store.canvases.write(change(project_id, 0, node()))
        again = await store.projects.reclaim(project_id, 1)
        assert again is not None
        assert (again.fence, again.row.canvas_version) == (2, 1)
        assert (
            await store.projects.reclaim(project_id, 1)
        ) is not None  # the first call's outcome was unknown
        with pytest.raises(Fenced):
            await store.canvases.write(change(project_id, 1, node()))
    async with open_store(database_url) as other:
        with pytest.raises(Fenced):
            await other.projects.reclaim(project_id, 1)


async def test_RU3_taking_a_project_over_takes_its_conversations_and_settles_what_ran(
    database_url: str,
) -> None:
    project_id, running, idle, own = new_project(), new_ulid(), new_ulid(), new_ulid()
    async with open_store(database_url) as store:
        await store.projects.open(ProjectSeed(project_id, OWNER), 1)
        for session_id in (running, idle):
            write = append(session_id, 0)
            seeded = SessionSeed(session_id, OWNER, project_id=project_id)
            await store.sessions.append(type(write)(session_id, 1, write.message, seeded))
        await store.sessions.append(append(own, 0))
        run = run_of(running)
        await store.runs.start(running, 1, None, request(project_id, "q", "request_completion"), run)
        store.runs.checkpoint(run.run_id, 1, new_ulid(), "partial", "")
        await store.checkpoints.flush()
        claimed = await store.projects.claim(project_id, OWNER)
        assert claimed is not None
        assert claimed.conversation_ids == (idle, running)  # the one used last at the end
        assert (await store.runs.get(run.run_id, OWNER)).status == "interrupted"
        messages = await store.sessions.messages(running, OWNER)
        assert [(m.role, m.content) for m in messages] == [
            (MessageRole.USER, "hello"),
            (MessageRole.ASSISTANT, "partial"),
        ]
        for session_id in (running, idle):
            with pytest.raises(Fenced):
                await store.sessions.append(append(session_id, 2 if session_id == running else 1, seed=False))
        await store.sessions.append(append(own, 1))
        taken = await store.sessions.claim(idle, OWNER, project=project_id)
        assert taken is not None
        assert taken.fence == 3


async def test_a_project_shows_the_ten_used_last_and_lists_all(database_url: str) -> None:
    project_id = new_project()
    async with open_store(database_url) as store:
        ids = [new_ulid() for _ in range(15)]
        for session_id in ids:
            await store.sessions.create(SessionSeed(session_id, OWNER, project_id=project_id))
        claimed = await store.projects.claim(project_id, OWNER)
        assert claimed is not None
        assert list(claimed.conversation_ids) == ids[5:]
        first, cursor = await store.projects.conversations(project_id, OWNER, limit=10)
        assert cursor is not None
        rest, end = await store.projects.conversations(project_id, OWNER, limit=10, cursor=cursor)
        assert end is None
        assert [row.conversation_id for row in (*first, *rest)] == ids[::-1]


async def test_another_principal_finds_nothing(database_url: str) -> None:
    project_id = new_project()
    async with open_store(database_url) as store:
        await store.canvases.write(change(project_id, 0, node()))
        for wrong in (
            store.projects.claim(project_id, "eve"),
            store.projects.get(project_id, "eve"),
            store.projects.delete(project_id, "eve"),
            store.canvases.page(project_id, "eve", limit=1),
            store.sessions.create(SessionSeed(new_ulid(), "eve", project_id=project_id)),
        ):
            with pytest.raises(Fault) as refused:
                await wrong
            assert refused.value.code == "not_found"
        with pytest.raises(Fault) as refused:
            await store.projects.create(ProjectSeed(project_id, "eve"))
        assert refused.value.code == "project_exists"
    assert not await rows(database_url, "select 1 from chat_session")


async def test_a_deleted_project_stays_deleted_with_all_that_was_in_it(database_url: str) -> None:
    project_id, conversation = new_project(), new_ulid()
    async with open_store(database_url) as store:
        a = node()
        await store.canvases.write(change(project_id, 0, a, edge(a, a), request_id="r"))
        await store.sessions.create(SessionSeed(conversation, OWNER, project_id=project_id))
        other, _ = await begun(store)
        await store.projects.delete(project_id, OWNER)
        with pytest.raises(Fault):
            await store.projects.claim(project_id, OWNER)
        with pytest.raises(Fault):
            await store.projects.create(ProjectSeed(project_id, OWNER))
        with pytest.raises(Fenced):
            await store.canvases.write(change(project_id, 1, node()))
        with pytest.raises(Fault):
            await store.sessions.get(conversation, OWNER)
        assert (await store.sessions.get(other, OWNER)).message_count == 1
    assert (await counts(database_url))[:2] == (0, 0)
    assert not await rows(database_url, "select 1 from client_request where resource_id = $1", project_id)


async def test_pages_are_whole_and_in_order(database_url: str) -> None:
    project_id = new_project()
    nodes = [node(id=new_uuid()) for _ in range(7)]
    edges = [edge(nodes[0], other) for other in nodes[1:6]]
    async with open_store(database_url) as store:
        await store.canvases.write(change(project_id, 0, *nodes, *edges))
        for limit in range(1, 14):
            seen, cursor, pages = [], None, 0
            while True:
                page = await store.canvases.page(project_id, OWNER, limit=limit, cursor=cursor)
                seen += [*page.nodes, *page.edges]
                pages += 1
                assert page.version == 1
                assert len(page.nodes) + len(page.edges) <= limit
                if (cursor := page.next_cursor) is None:
                    break
            assert seen == [*nodes, *edges]
            assert pages == -(-12 // limit)
        for foreign in ("x", "bm8", "bm9kZQ"):
            with pytest.raises(Fault) as refused:
                await store.canvases.page(project_id, OWNER, limit=1, cursor=foreign)
            assert refused.value.code == "invalid_request"
