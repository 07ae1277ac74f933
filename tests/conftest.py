"""What tests share: one Postgres for the whole test run, and a fresh database for each test that asks."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from protocol.ids import new_ulid
from storage.embedded import EmbeddedPostgres
from storage.migrate import upgrade

pytest_plugins = ["tests.harness.fixtures"]

_FAST_INITDB = ("--no-sync",)
_FAST_SERVER = ("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=300")


def _statement(dsn: str, *statements: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run())


def _on(dsn: str, database: str) -> str:
    return dsn.replace("@/postgres?", f"@/{database}?")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], str]]:
    """Gives a function that makes a fresh, migrated database and returns its DSN.

    The server is our own embedded one, without fsync: what is tested of durability has its own server. One
    for each process of the test run.
    """
    with tempfile.TemporaryDirectory(prefix="tw-", ignore_cleanup_errors=True) as place:
        Path(place).chmod(0o755)
        with EmbeddedPostgres.attached(
            Path(place), initdb_options=_FAST_INITDB, server_options=_FAST_SERVER
        ) as dsn:
            _statement(dsn, "create database template_turnwire")
            asyncio.run(upgrade(_on(dsn, "template_turnwire")))

            def fresh() -> str:
                name = f"t{new_ulid().lower()}"
                _statement(dsn, f"create database {name} template template_turnwire")
                return _on(dsn, name)

            yield fresh


@pytest.fixture
def database_url(postgres: Callable[[], str]) -> str:
    """The DSN of a fresh, migrated database of this test's own."""
    return postgres()
