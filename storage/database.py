"""The way to Postgres: bounded calls, one translation of errors, and a circuit.

Nothing here knows a table. Our own small pool instead of asyncpg's: a connection whose call failed in any way
is terminated, never waited for, so that a frozen server costs each caller at most ``command_timeout_s``, and
no round trip is spent on resetting a connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import asyncpg
import msgspec
from anyio.abc import TaskGroup

from storage.errors import Refused, StorageUnavailable
from storage.tasks import background_tasks

if TYPE_CHECKING:
    from asyncpg import Record

    Connection: TypeAlias = asyncpg.Connection[Record]

_PROBE_S: Final = 0.2
"""Between the starts of two attempts to connect while the database is away."""

BREAKING: Final = (
    OSError,  # TimeoutError too
    EOFError,
    asyncpg.PostgresConnectionError,  # class 08
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,  # class 57: shutdown, crash, starting up
)
_LATER: Final = (
    asyncpg.QueryCanceledError,  # the server's own time limit
    asyncpg.TransactionRollbackError,  # deadlock
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
_AWAY: Final = (
    asyncpg.ReadOnlySQLTransactionError,  # a standby after a failover
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)


class Database:
    """A bounded pool of connections with a circuit.

    After a failure of the connection every call fails at once, until a background probe has connected again.

    Attributes:
        available: False while the circuit is open.
        command_timeout_s: What one call may take in all: waiting for a connection, connecting, statements.
    """

    def __init__(self, dsn: str, *, command_timeout_s: float, pool_size: int, tasks: TaskGroup) -> None:
        self.dsn = dsn
        self.available = True
        self.command_timeout_s = command_timeout_s
        self._tasks = tasks
        self._idle: list[Connection] = []
        self._free = pool_size
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._probing = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls, dsn: str, *, command_timeout_s: float = 1.5, pool_size: int = 8
    ) -> AsyncIterator[Database]:
        """Connect once, to see that it works; leaving closes all connections.

        Raises:
            StorageUnavailable: It does not answer.
        """
        async with background_tasks() as tasks:
            db = cls(dsn, command_timeout_s=command_timeout_s, pool_size=pool_size, tasks=tasks)
            try:
                async with db.reading():
                    pass
                yield db
            finally:
                with anyio.CancelScope(shield=True):
                    await db._close()

    def reading(self, *, timeout_s: float | None = None) -> _Use:
        """A connection for reads; lost ones are never of unknown outcome."""
        return _Use(self, writes=False, timeout_s=timeout_s)

    def writing(self, *, timeout_s: float | None = None) -> _Use:
        """A connection for writes: one statement, or a transaction that the caller opens on it."""
        return _Use(self, writes=True, timeout_s=timeout_s)

    async def connect(self, *, timeout_s: float | None = None) -> Connection:
        """A connection outside the pool, the caller's to close. Raises asyncpg's and the OS's errors."""
        # Below our own limit: a statement that waits for a lock is told so and does not open the circuit.
        limit_ms = str(int(self.command_timeout_s * 800))
        connection: Connection = await asyncpg.connect(
            self.dsn,
            timeout=timeout_s or self.command_timeout_s,
            server_settings={
                "application_name": "turnwire",
                "statement_timeout": limit_ms,
                "idle_in_transaction_session_timeout": limit_ms,
                "timezone": "UTC",
            },
        )
        await connection.set_type_codec(
            "jsonb", schema="pg_catalog", encoder=_to_jsonb, decoder=_from_jsonb, format="binary"
        )
        return connection

    # -- used by _Use --------------------------------------------------------------------------------------

    async def _take(self) -> Connection:
        """An idle connection or a new one; the caller has a permit."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self.connect()

    async def _permit(self) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._give_back()
            raise

    def _give_back(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _put(self, connection: Connection, *, healthy: bool) -> None:
        if healthy and not connection.is_closed() and not connection.is_in_transaction():
            self._idle.append(connection)
        else:
            connection.terminate()

    def _trip(self) -> None:
        """Open the circuit: whoever waits or comes fails at once; a probe closes it again."""
        self.available = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(StorageUnavailable())
        for connection in self._idle:
            connection.terminate()
        self._idle.clear()
        if not self._probing:
            self._probing = True
            self._tasks.start_soon(self._probe, name="storage probe")

    async def _probe(self) -> None:
        """Try to connect until it works. An attempt that hangs does not hold up the next.

        At most ``command_timeout_s / _PROBE_S`` attempts are under way.
        """
        async with anyio.create_task_group() as attempts:
            while not self.available:
                attempts.start_soon(self._attempt, attempts, name="storage probe attempt")
                await anyio.sleep(_PROBE_S)

    async def _attempt(self, attempts: TaskGroup) -> None:
        connection: Connection | None = None
        try:
            async with asyncio.timeout(self.command_timeout_s):
                connection = await self.connect()
                writable = not await connection.fetchval("select pg_is_in_recovery()")
        except (*BREAKING, asyncpg.PostgresError):
            writable = False
        if not writable or self.available:
            if connection is not None:
                connection.terminate()
            return
        assert connection is not None
        self._idle.append(connection)
        self._probing = False
        self.available = True
        attempts.cancel_scope.cancel()

    async def _close(self) -> None:
        for connection in self._idle:
            with suppress(*BREAKING):
                await connection.close(timeout=0.5)
        self._idle.clear()


class _Use:
    """One bounded use of a connection: ``async with db.writing() as connection``.

    A class, not a generator: it is entered thousands of times a second.
    """

    __slots__ = ("_connection", "_db", "_limit", "_permitted", "_timeout_s", "_writes")

    def __init__(self, db: Database, *, writes: bool, timeout_s: float | None) -> None:
        self._db = db
        self._writes = writes
        self._timeout_s = timeout_s
        self._limit = asyncio.timeout(timeout_s or db.command_timeout_s)
        self._connection: Connection | None = None
        self._permitted = False

    async def __aenter__(self) -> Connection:
        if not self._db.available:
            raise StorageUnavailable
        await self._limit.__aenter__()
        try:
            await self._db._permit()  # noqa: SLF001
            self._permitted = True
            connection = await self._db._take()  # noqa: SLF001
        except BaseException as error:
            await self._leave(error)
            raise
        self._connection = connection
        if self._timeout_s is not None:
            try:
                await connection.execute(f"set statement_timeout = {int(self._timeout_s * 1000)}")
            except BaseException as error:
                await self._leave(error)
                raise
        return connection

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._timeout_s is not None and self._connection is not None:
            self._connection.terminate()  # its time limit is not the usual one
        await self._leave(error)

    async def _leave(self, error: BaseException | None) -> None:
        """Give the connection back or end it, and raise what callers may see in place of ``error``."""
        under_way = self._connection is not None
        starved = not self._permitted
        if self._connection is not None:
            healthy = error is None or (isinstance(error, Exception) and not isinstance(error, BREAKING))
            self._db._put(self._connection, healthy=healthy)  # noqa: SLF001
            self._connection = None
        if self._permitted:
            self._permitted = False
            self._db._give_back()  # noqa: SLF001
        try:
            await self._limit.__aexit__(type(error) if error is not None else None, error, None)
        except TimeoutError as late:
            error = late
            if starved:
                raise StorageUnavailable("all connections are busy") from late
        if error is None:
            return
        seen, away = _translate(error, unknown=self._writes and under_way)
        if away:
            self._db._trip()  # noqa: SLF001
        if seen is not None:
            raise seen from error


def _translate(error: BaseException, *, unknown: bool) -> tuple[Exception | None, bool]:
    """What callers see instead of ``error`` (None: the error itself), and whether the database is away."""
    match error:
        case asyncpg.exceptions._base.DataError():  # noqa: SLF001 (a value that the client side cannot send)
            return Refused(str(error)), False
        case asyncpg.IntegrityConstraintViolationError() | asyncpg.DataError():
            return Refused(str(error)), False
        case _ if isinstance(error, _LATER):
            return StorageUnavailable(str(error)), False
        case _ if isinstance(error, _AWAY):
            return StorageUnavailable(str(error)), True
        case _ if isinstance(error, BREAKING):
            return StorageUnavailable(outcome_unknown=unknown), True
    return None, False


def _to_jsonb(value: Any) -> bytes:
    return b"\x01" + msgspec.json.encode(value)


def _from_jsonb(data: bytes) -> Any:
    return msgspec.json.decode(memoryview(data)[1:])
