"""Which processes serve this database, and what to do with what a dead one left.

A node is alive as long as the advisory lock of its id is held: Postgres lets it go with the connection. No
clock and no heartbeat is asked.
"""

# ruff: noqa: S608 (statements are put together from constants only)

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import anyio
import asyncpg
import structlog
from anyio.abc import TaskStatus

from storage import interruption
from storage.database import BREAKING, Database
from storage.errors import StorageUnavailable

if TYPE_CHECKING:
    from storage.database import Connection

log = structlog.get_logger(__name__)

_RETRY_S: Final = 0.1
_LOOK_S: Final = 2.0
"""How often the lock's connection is asked whether it is still there."""

_BATCH: Final = 20

# A client that vanished without a word keeps its lock until the server's TCP notices.
_KEEPALIVE: Final = (
    "set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 2; set tcp_keepalives_count = 3"
)

_REGISTER: Final = """
insert into node (node_id, address) values ($1, $2)
on conflict (node_id) do update set address = excluded.address
"""
_LOCK: Final = "select pg_advisory_lock(hashtextextended($1, 0))"
_ALIVE: Final = """
exists (select from pg_locks l
         where l.locktype = 'advisory' and l.granted and l.objsubid = 1
           and l.database = (select oid from pg_database where datname = current_database())
           and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended(n.node_id, 0))
"""
_SERVING: Final = f"""
select n.address from node n where n.address is not null and {_ALIVE} order by n.started_at desc limit 1
"""
_DEAD: Final = f"""
select n.node_id from node n
 where n.node_id <> $1 and not {_ALIVE}
   and now() - pg_postmaster_start_time() >= make_interval(secs => $2)
"""
_PROVE_DEAD: Final = "select pg_try_advisory_xact_lock(hashtextextended($1, 0))"
_TAKE: Final = """
update chat_session set fence = fence + 1, owner_node = null
 where session_id in (
    select c.session_id from chat_session c join diagnosis_run r on r.session_id = c.session_id
     where c.owner_node = $1 and c.status = 'active' and r.status = 'running'
     order by c.session_id limit $2 for no key update of c skip locked)
returning session_id, next_sequence
"""
_FORGET: Final = """
delete from node
 where node_id = $1
   and not exists (select from chat_session c join diagnosis_run r on r.session_id = c.session_id
                    where c.owner_node = $1 and c.status = 'active' and r.status = 'running')
"""


class Nodes:
    """Reading who is there."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def serving(self) -> str | None:
        """The address of a node that is proved alive, the one started last; None if there is none."""
        async with self._db.reading() as connection:
            address: str | None = await connection.fetchval(_SERVING)
        return address


class Node:
    """This process among the nodes.

    Attributes:
        held: Whether the lock is held now; it is taken again after the database was away.
    """

    def __init__(self, db: Database, node_id: str, address: str | None) -> None:
        self.node_id = node_id
        self.address = address
        self.held = False
        self._db = db
        self._connection: Connection | None = None
        self._suspects: dict[str, float] = {}

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Register and hold the lock until cancelled; storage's task. Started means registered."""
        started = False
        while True:
            try:
                await self._take_lock()
                if not started:
                    started = True
                    task_status.started()
                await self._keep()
            except (*BREAKING, asyncpg.PostgresError):
                pass  # away; registered again when it is back
            finally:
                self.held = False
                if self._connection is not None:
                    self._connection.terminate()
            await anyio.sleep(_RETRY_S)

    async def announce(self, address: str) -> None:
        """Say where this process serves, once it listens, so that command lines find it.

        Raises:
            StorageUnavailable: It is then said when the lock is taken again.
        """
        self.address = address
        async with self._db.writing() as connection:
            await connection.execute(_REGISTER, self.node_id, address)

    async def _take_lock(self) -> None:
        async with asyncio.timeout(2 * self._db.command_timeout_s):
            self._connection = await self._db.connect()
            await self._connection.execute(_KEEPALIVE)
            # Our own lost connection, or a sweeper, may still have it: the statement's limit ends the wait.
            await self._connection.execute(_LOCK, self.node_id)
            await self._connection.execute(_REGISTER, self.node_id, self.address)
        self.held = True

    async def _keep(self) -> None:
        """Return when the connection is lost."""
        connection = self._connection
        assert connection is not None
        lost = anyio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        while not connection.is_closed():
            with anyio.move_on_after(_LOOK_S):
                await lost.wait()
                return
            async with asyncio.timeout(self._db.command_timeout_s):
                await connection.execute("select 1")

    async def leave(self) -> None:
        """Take our row away, unless runs of ours are left for the others to settle."""
        async with self._db.writing() as connection:
            await connection.execute(_FORGET, self.node_id)

    async def sweep(self, *, grace_s: float = 3.0) -> list[str]:
        """Settle what runs of proved-dead nodes left (RU3); returns the sessions concerned.

        A node counts as dead when its lock has been free for ``grace_s``, seen at two calls at least (at one,
        with 0), and the database has been up for as long: after its restart everybody comes back first.
        Two sweepers never work on the same node.

        Raises:
            StorageUnavailable: Call again later; what was settled stays so.
        """
        async with self._db.reading() as connection:
            rows = await connection.fetch(_DEAD, self.node_id, grace_s)
        now = time.monotonic()
        self._suspects = {row[0]: self._suspects.get(row[0], now) for row in rows}
        swept: list[str] = []
        for node_id, since in list(self._suspects.items()):
            if now - since >= grace_s:
                while batch := await self._sweep_node(node_id):
                    swept += batch
        return swept

    async def _sweep_node(self, node_id: str) -> list[str]:
        """Settle some sessions of a dead node in one transaction; none left: forget the node."""
        async with self._db.writing() as connection, connection.transaction():
            if not await connection.fetchval(_PROVE_DEAD, node_id):
                return []  # alive after all, or another sweeper has it
            rows = await connection.fetch(_TAKE, node_id, _BATCH)
            for row in rows:
                await interruption.settle(connection, row["session_id"], row["next_sequence"])
            if not rows:
                await connection.execute(_FORGET, node_id)
        return [row["session_id"] for row in rows]

    async def sweep_for_ever(self, interval_s: float) -> None:
        """Sweep once an interval; storage's task, until cancelled."""
        while True:
            await anyio.sleep(interval_s)
            try:
                await self.sweep()
            except StorageUnavailable:
                continue
            except Exception:  # the sweeper lives on
                log.exception("sweep failed", node_id=self.node_id)
