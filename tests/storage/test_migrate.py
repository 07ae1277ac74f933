"""The schema: migrated once, by anybody, at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

import storage.migrate
from protocol.ids import new_ulid
from storage.migrate import HEAD, UnsuitableDatabase, is_current, upgrade
from tests.storage.support import rows

_OLDER = (
    """
create table agent_step (id bigserial primary key, session_id varchar(128), step_index integer,
    content text, created_at timestamptz)
""",
    """
create table tool_invocation (id bigserial primary key, session_id varchar(128),
    tool_name varchar(128), arguments text, result text, success boolean, created_at timestamptz)
""",
    "insert into agent_step (session_id, step_index, content, created_at) values ('old-1', 0, 'x', now())",
    "insert into tool_invocation (session_id, tool_name, success) values ('old-1', 't', true)",
)


async def _empty(dsn: str, options: str = "") -> str:
    name = f"m{new_ulid().lower()}"
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"create database {name} template template0 {options}")
    await connection.close()
    return re.sub(r"@/[^?]*", f"@/{name}", dsn)


async def test_migrations_run_twice_and_the_second_does_nothing(database_url: str) -> None:
    empty = await _empty(database_url)
    assert not await is_current(empty)
    assert await upgrade(empty)
    assert not await upgrade(empty)
    assert await is_current(empty)


async def test_migrations_of_four_processes_at_once_are_one(database_url: str) -> None:
    empty = await _empty(database_url)
    program = (
        "import asyncio, sys; from storage.migrate import upgrade; print(asyncio.run(upgrade(sys.argv[1])))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, empty], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [process.communicate(timeout=60)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0, 0]
    assert sorted(said) == ["False", "False", "False", "True"]
    assert await is_current(empty)


async def test_migrations_keep_the_rows_of_the_older_schema(database_url: str) -> None:
    empty = await _empty(database_url)
    connection = await asyncpg.connect(empty)
    for statement in _OLDER:
        await connection.execute(statement)
    await connection.close()
    await upgrade(empty)
    (step,) = await rows(empty, "select session_id, run_id, content from agent_step")
    assert tuple(step) == ("old-1", None, "x")
    (tool,) = await rows(empty, "select session_id, run_id, success from tool_invocation")
    assert tuple(tool) == ("old-1", None, True)


async def test_a_database_that_is_not_utf8_is_refused_with_advice(database_url: str) -> None:
    latin = await _empty(
        database_url, "encoding 'SQL_ASCII' locale_provider libc lc_ctype 'C' lc_collate 'C'"
    )
    with pytest.raises(UnsuitableDatabase, match="lc_ctype"):
        await upgrade(latin)


def test_head_is_the_newest_revision() -> None:
    config = Config()
    place = Path(storage.migrate.__file__).parent / "migrations"
    config.set_main_option("script_location", str(place))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_alembic_is_imported_only_when_migrating(postgres: Callable[[], str]) -> None:
    program = (
        "import asyncio, sys, storage.store, storage.migrate\n"
        "assert asyncio.run(storage.migrate.is_current(sys.argv[1]))\n"
        "assert not {'alembic', 'sqlalchemy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, postgres()], check=True, env=os.environ, timeout=60)
