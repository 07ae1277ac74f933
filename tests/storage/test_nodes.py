"""Nodes: who serves, who is proved dead, and the sweep."""

from __future__ import annotations

import anyio

from protocol.ids import new_ulid
from protocol.run import RunStatus
from storage.store import Store, open_store
from tests.storage.support import OWNER, begun, message, rows


async def _leave_running(store: Store, node_id: str) -> tuple[str, str]:
    """A running run with streamed text, owned by ``node_id``."""
    session_id, run = await begun(store)
    store.runs.checkpoint(run.run_id, 1, message(1).message_id, "half", "")
    await store.checkpoints.flush()
    async with store.db.writing() as connection:
        await connection.execute(
            "update chat_session set owner_node = $2 where session_id = $1", session_id, node_id
        )
    return session_id, run.run_id


async def test_RU3_only_a_node_whose_lock_is_held_is_serving(database_url: str) -> None:
    async with open_store(database_url) as visitor:
        assert await visitor.nodes.serving() is None
        async with visitor.db.writing() as connection:
            await connection.execute("insert into node (node_id, address) values ('dead', 'http://dead')")
        assert await visitor.nodes.serving() is None
        async with open_store(database_url, node_id=new_ulid(), address="http://here:1"):
            assert await visitor.nodes.serving() == "http://here:1"
        assert await visitor.nodes.serving() is None


async def test_RU3_the_sweep_settles_what_a_dead_node_left(database_url: str) -> None:
    async with open_store(database_url, node_id=new_ulid(), sweep_s=600) as store:
        async with store.db.writing() as connection:
            await connection.execute("insert into node (node_id) values ('dead')")
        left = [await _leave_running(store, "dead") for _ in range(3)]
        mine = await _leave_running(store, store.node_id)
        assert store.node is not None
        assert await store.node.sweep(grace_s=60) == []
        assert set(await store.node.sweep(grace_s=0)) == {session_id for session_id, _ in left}
        for session_id, run_id in left:
            assert (await store.runs.get(run_id, OWNER)).status is RunStatus.INTERRUPTED
            assert (await store.sessions.messages(session_id, OWNER))[1].content == "half"
        assert (await store.runs.get(mine[1], OWNER)).status is RunStatus.RUNNING
    assert [r[0] for r in await rows(database_url, "select node_id from node")] == [store.node_id]


async def test_RU3_two_sweepers_settle_each_session_once(database_url: str) -> None:
    async with (
        open_store(database_url, node_id=new_ulid(), sweep_s=600) as left,
        open_store(database_url, node_id=new_ulid(), sweep_s=600) as right,
    ):
        async with left.db.writing() as connection:
            await connection.execute("insert into node (node_id) values ('dead')")
        sessions = {(await _leave_running(left, "dead"))[0] for _ in range(30)}
        swept: list[str] = []

        async def sweep(store: Store) -> None:
            assert store.node is not None
            swept.extend(await store.node.sweep(grace_s=0))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sweep, left)
            tasks.start_soon(sweep, right)
        await sweep(left)
    assert sorted(swept) == sorted(sessions)
    fences = await rows(database_url, "select distinct fence from chat_session")
    assert [r[0] for r in fences] == [2]


async def test_RU3_the_lock_is_taken_again_after_its_connection_was_lost(database_url: str) -> None:
    async with (
        open_store(database_url, node_id=new_ulid(), address="http://here:1") as store,
        open_store(database_url) as visitor,
    ):
        async with visitor.db.reading() as connection:
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_locks "
                "where locktype = 'advisory' and database = "
                "(select oid from pg_database where datname = current_database())"
            )
        assert store.node is not None
        with anyio.fail_after(5):
            while await visitor.nodes.serving() is None:
                await anyio.sleep(0.01)
