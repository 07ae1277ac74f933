"""Bring a database's schema up to date.

Alembic and SQLAlchemy are imported only when there is something to do. Any number of processes may call
:func:`upgrade` at once: they take turns by an advisory lock of the database.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from protocol.errors import Fault
from storage.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HEAD: Final = "0003"
"""The newest revision in ``migrations/versions``; a test compares."""

_LOCK: Final = 0x7475726E_77697265
"""The advisory lock of migrations, any number that nobody else uses."""

_CONNECT_S: Final = 5.0

_CTYPE: Final = """
select datctype, pg_encoding_to_char(encoding) from pg_database where datname = current_database()
"""


class UnsuitableDatabase(Exception):
    """The database cannot be used as it was made; the message says how to make it."""


async def is_current(dsn: str) -> bool:
    """Whether the schema is the newest one that this version knows. Raises StorageUnavailable."""
    async with _connected(dsn) as connection:
        return await _revision(connection) == HEAD


async def upgrade(dsn: str) -> bool:
    """Migrate to the newest schema; True if there was something to do.

    Waits for as long as another process migrates.

    Raises:
        UnsuitableDatabase: Its character type is not UTF-8 (text search would find nothing), or its schema is
            newer than this version.
        StorageUnavailable: It does not answer.
    """
    async with _connected(dsn) as connection:
        await _check(connection)
        await connection.execute("select pg_advisory_lock($1)", _LOCK)
        found = await _revision(connection)
        if found == HEAD:
            return False
        if found is not None and found > HEAD:
            raise UnsuitableDatabase(f"the database's schema {found} is newer than this version's {HEAD}")
        await _run_alembic(dsn)
        return True


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[Any]:
    """A connection of one's own; its advisory locks end with it."""
    try:
        connection = await asyncpg.connect(dsn, timeout=_CONNECT_S)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StorageUnavailable(f"the database does not answer: {error}") from error
    try:
        yield connection
    except (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError) as error:
        if isinstance(error, Fault):
            raise
        raise StorageUnavailable(f"the database was lost: {error}", outcome_unknown=True) from error
    finally:
        connection.terminate()


async def _check(connection: Any) -> None:
    ctype, encoding = await connection.fetchrow(_CTYPE)
    if encoding != "UTF8" or not ctype.lower().replace("-", "").endswith("utf8"):
        raise UnsuitableDatabase(
            f"the database has encoding {encoding} and lc_ctype {ctype}; it must be UTF-8: create database "
            "turnwire template template0 encoding 'UTF8' lc_ctype 'C.UTF-8'"
        )


async def _revision(connection: Any) -> str | None:
    try:
        found: str | None = await connection.fetchval("select version_num from alembic_version")
    except asyncpg.UndefinedTableError:
        return None
    return found


async def _run_alembic(dsn: str) -> None:
    from alembic import command
    from alembic.config import Config
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    def run(connection: Any) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    # SQLAlchemy need not understand the DSN: asyncpg does.
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=lambda: asyncpg.connect(dsn, timeout=_CONNECT_S),
        poolclass=NullPool,
    )
    try:
        async with engine.connect() as connection:
            await connection.run_sync(run)
            await connection.commit()
    finally:
        await engine.dispose()
