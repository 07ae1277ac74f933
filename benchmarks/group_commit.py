"""What sharing commits gives: appends a second of 64 sessions at once, durably, with and without grouping.

Run ``python benchmarks/group_commit.py``; it starts its own Postgres, with fsync, in a temporary directory.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import anyio
import uvloop

from protocol.ids import new_message_id, new_ulid
from protocol.session import MessageRole, SessionMessage
from storage.database import Database
from storage.embedded import EmbeddedPostgres
from storage.group_commit import GroupCommit
from storage.migrate import upgrade
from storage.records import AppendWrite, RequestKey, SessionSeed


def _write(session_id: str, sequence: int) -> AppendWrite:
    return AppendWrite(
        session_id,
        1,
        SessionMessage(
            message_id=new_message_id(), sequence=sequence, role=MessageRole.USER, content="word " * 40
        ),
        SessionSeed(session_id, "local") if sequence == 0 else None,
        RequestKey(session_id, f"r{sequence}", "append_message", "0" * 64),
    )


async def measure(dsn: str, *, sessions: int, seconds: float, in_flight: int, batch: int) -> str:
    """Every session appends one message after another for so long."""
    latencies: list[float] = []
    async with (
        Database.open(dsn, pool_size=8, command_timeout_s=30) as db,
        anyio.create_task_group() as tasks,
    ):
        commits = GroupCommit(db, tasks, node_id="bench", in_flight=in_flight, batch_limit=batch)
        end = 0.0

        async def one(session_id: str) -> None:
            sequence = 1
            while (began := time.perf_counter()) < end:
                await commits.append(_write(session_id, sequence))
                latencies.append(time.perf_counter() - began)
                sequence += 1

        ids = [new_ulid() for _ in range(sessions)]
        for session_id in ids:
            await commits.append(_write(session_id, 0))
        start = time.perf_counter()
        end = start + seconds
        async with anyio.create_task_group() as clients:
            for session_id in ids:
                clients.start_soon(one, session_id)
        rate = len(latencies) / (time.perf_counter() - start)
    cuts = statistics.quantiles(latencies, n=100)
    return f"{rate:8.0f} appends/s   p50 {cuts[49] * 1000:6.2f} ms   p99 {cuts[98] * 1000:6.2f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    kinds = {
        "one by one, one connection": (1, 1),
        "one by one, 8 connections": (8, 1),
        "grouped, 1 batch in flight": (1, 128),
        "grouped, 2 batches in flight": (2, 128),
    }
    with tempfile.TemporaryDirectory(prefix="tw-", ignore_cleanup_errors=True) as place:
        Path(place).chmod(0o755)
        with EmbeddedPostgres.attached(Path(place)) as dsn:
            asyncio.run(upgrade(dsn))
            for name, (in_flight, batch) in kinds.items():
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    line = runner.run(
                        measure(
                            dsn,
                            sessions=options.sessions,
                            seconds=options.seconds,
                            in_flight=in_flight,
                            batch=batch,
                        )
                    )
                print(f"{name:32}{line}")


if __name__ == "__main__":
    main()
