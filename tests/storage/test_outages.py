"""The database away: dead, frozen, back again. With fsync on, and a server of each test's own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import anyio
import pytest

from protocol.ids import new_ulid
from storage.errors import Fenced, StorageUnavailable
from storage.store import Store, open_store
from tests.harness.postgres import HurtPostgres, hurt_postgres
from tests.storage.support import OWNER, append, begun, end_of, message, rows


@pytest.fixture
def server() -> Iterator[HurtPostgres]:
    with hurt_postgres() as postgres:
        yield postgres


async def _until_available(store: Store) -> None:
    with anyio.fail_after(10):
        while not store.available:
            await anyio.sleep(0.01)


async def _ask_for_ever(store: Store, session_id: str) -> None:
    while True:
        await store.sessions.get(session_id, OWNER)


async def test_ER5_no_acknowledged_row_is_lost_by_kill_9_of_the_database(server: HurtPostgres) -> None:
    acknowledged: dict[str, int] = {}
    async with open_store(server.dsn) as store:

        async def client(session_id: str) -> None:
            sequence = 0
            while True:
                try:
                    await store.sessions.append(append(session_id, sequence))
                except StorageUnavailable:
                    return
                sequence += 1
                acknowledged[session_id] = sequence
                if sum(acknowledged.values()) == 500:
                    os.kill(server.postmaster, signal.SIGKILL)

        async with anyio.create_task_group() as tasks:
            for _ in range(16):
                tasks.start_soon(client, new_ulid())
        await _until_available(store)
        for session_id, count in acknowledged.items():
            claimed = await store.sessions.claim(session_id, OWNER)
            assert claimed is not None
            assert claimed.next_sequence in {count, count + 1}
            assert [m.sequence for m in claimed.messages] == list(range(claimed.next_sequence))


async def test_ER5_a_frozen_database_costs_a_call_its_bound_and_then_nothing(server: HurtPostgres) -> None:
    async with open_store(server.dsn, command_timeout_s=1.5) as store:
        session_id, run = await begun(store)
        frozen = server.processes()
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            with pytest.raises(StorageUnavailable) as append_failed:
                await store.sessions.append(append(session_id, 1))
            assert 1.4 < time.monotonic() - began < 1.8
            assert append_failed.value.outcome_unknown
            began = time.monotonic()
            for call in (
                lambda: store.sessions.append(append(session_id, 1)),
                lambda: store.runs.finish(session_id, 1, end_of(run, 1)),
                lambda: store.sessions.get(session_id, OWNER),
                lambda: store.sessions.claim(session_id, OWNER),
            ):
                with pytest.raises(StorageUnavailable) as failed:
                    await call()
                assert not failed.value.outcome_unknown
            assert time.monotonic() - began < 0.1
            store.runs.checkpoint(run.run_id, 1, message(1).message_id, "while away", "")
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        thawed = time.monotonic()
        await _until_available(store)
        assert time.monotonic() - thawed < 0.6
        claimed = await store.sessions.reclaim(session_id, 1, run.run_id)
        assert claimed is not None
        with pytest.raises(Fenced):
            await store.sessions.append(append(session_id, claimed.next_sequence))
        await store.checkpoints.flush()
        await store.runs.finish(session_id, claimed.fence, end_of(run, claimed.next_sequence))


async def test_ER5_every_caller_of_a_full_pool_is_bounded(server: HurtPostgres) -> None:
    async with open_store(server.dsn, command_timeout_s=1.0, pool_size=2) as store:
        session_id, _ = await begun(store)
        frozen = server.processes()
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        took: list[float] = []

        async def read() -> None:
            began = time.monotonic()
            with pytest.raises(StorageUnavailable):
                await store.sessions.get(session_id, OWNER)
            took.append(time.monotonic() - began)

        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(read)
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        assert max(took) < 1.3


async def test_ER5_the_store_recovers_within_half_a_second_of_the_databases_return(
    server: HurtPostgres,
) -> None:
    async with open_store(server.dsn, node_id=new_ulid(), address="http://here:1") as store:
        session_id, _ = await begun(store)
        os.kill(server.postmaster, signal.SIGKILL)
        with pytest.raises(StorageUnavailable):
            await _ask_for_ever(store, session_id)
        with anyio.fail_after(10):
            while True:
                try:
                    await rows(server.dsn, "select 1")
                    break
                except Exception:
                    await anyio.sleep(0.005)
        back = time.monotonic()
        await _until_available(store)
        assert time.monotonic() - back < 0.5
        assert await store.sessions.get(session_id, OWNER)
        with anyio.fail_after(5):
            while await store.nodes.serving() is None:
                await anyio.sleep(0.01)


async def test_ST7_checkpoints_wait_while_the_database_is_away(server: HurtPostgres) -> None:
    async with open_store(server.dsn, checkpoint_s=0.05) as store:
        _, run = await begun(store)
        os.kill(server.postmaster, signal.SIGKILL)
        store.runs.checkpoint(run.run_id, 1, message(1).message_id, "kept", "")
        with anyio.fail_after(10):
            while True:
                try:
                    if (await rows(server.dsn, "select partial_text from diagnosis_run"))[0][0] == "kept":
                        break
                except Exception:
                    pass
                await anyio.sleep(0.02)


async def test_the_store_says_so_when_there_is_no_database() -> None:
    with pytest.raises(StorageUnavailable):
        async with open_store("postgresql://postgres@/x?host=/nonexistent", command_timeout_s=0.5):
            pass
