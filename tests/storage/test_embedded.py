"""Our own Postgres: one server whatever happens to its users, its processes and its files."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import asyncpg
import pytest

from storage.embedded import EmbeddedPostgres
from storage.errors import EmbeddedError

_NO_SYNC = ("--no-sync",)

_USER = """
import sys
from pathlib import Path
from storage.embedded import EmbeddedPostgres
with EmbeddedPostgres.attached(Path(sys.argv[1]), initdb_options=("--no-sync",)) as dsn:
    print(dsn, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tw-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


class User:
    """A process that uses the server until it is told to leave."""

    def __init__(self, place: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _USER, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def dsn(self) -> str:
        return self._output.readline().strip()

    def leave(self) -> None:
        self._process.communicate(timeout=60)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=60)


def _value(dsn: str, query: str) -> object:
    async def run() -> object:
        connection = await asyncpg.connect(dsn, timeout=5)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(run())


def _wait_for(condition: object, seconds: float = 20) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def _pid(place: Path) -> int:
    return int((place / "postgres/data/postmaster.pid").read_text().splitlines()[0])


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


async def test_the_first_start_tells_its_progress_and_makes_utf8(place: Path) -> None:
    said: list[str] = []
    async with EmbeddedPostgres.open(place, said.append, initdb_options=_NO_SYNC) as dsn:
        connection = await asyncpg.connect(dsn)
        ctype = await connection.fetchval("select datctype from pg_database where datname = 'postgres'")
        assert ctype.endswith("UTF-8")
        await connection.execute("create extension pg_trgm")
        assert await connection.fetchval("select cardinality(show_trgm('数据库'))") > 0
        assert await connection.fetchval("show listen_addresses") == ""
        assert await connection.fetchval("show synchronous_commit") == "on"
        await connection.close()
        assert ((place / "postgres/run").stat().st_mode & 0o777) == 0o700
    assert said
    assert not (place / "postgres/data/postmaster.pid").exists()
    said.clear()
    async with EmbeddedPostgres.open(place, said.append):
        pass
    assert said == []


def test_processes_that_open_at_once_share_one_server(place: Path) -> None:
    users = [User(place) for _ in range(4)]
    starts = {str(_value(user.dsn(), "select pg_postmaster_start_time()")) for user in users}
    assert len(starts) == 1
    pid = _pid(place)
    for user in users[:-1]:
        user.leave()
        assert _alive(pid)
    users[-1].leave()
    assert not _alive(pid)


def test_the_server_stops_when_its_last_user_is_killed(place: Path) -> None:
    first, second = User(place), User(place)
    first.dsn()
    dsn = second.dsn()
    pid = _pid(place)
    first.kill()
    assert _value(dsn, "select 1") == 1
    second.kill()
    _wait_for(lambda: not _alive(pid))
    third = User(place)
    assert _value(third.dsn(), "select 1") == 1
    third.leave()


def test_a_killed_server_comes_back_whatever_files_it_left(place: Path) -> None:
    with EmbeddedPostgres.attached(place, initdb_options=_NO_SYNC) as dsn:
        pid = _pid(place)
        os.kill(pid, signal.SIGKILL)

        def back() -> bool:
            try:
                return _value(dsn, "select 1") == 1
            except (OSError, asyncpg.PostgresError):
                return False

        _wait_for(back, 20)
        assert _pid(place) != pid


def test_a_pid_file_that_names_a_living_stranger_is_not_believed(place: Path) -> None:
    with EmbeddedPostgres.attached(place, initdb_options=_NO_SYNC):
        data = place / "postgres/data"
        content = (data / "postmaster.pid").read_text()
    lines = [str(os.getpid()), *content.splitlines()[1:]]
    (data / "postmaster.pid").write_text("\n".join(lines) + "\n")
    (place / "postgres/run/.s.PGSQL.5432").touch()
    (place / "postgres/run/.s.PGSQL.5432.lock").write_text("\n".join(lines))
    with EmbeddedPostgres.attached(place) as dsn:
        assert _value(dsn, "select 1") == 1


def test_data_of_another_major_version_is_refused_with_advice(place: Path) -> None:
    with EmbeddedPostgres.attached(place, initdb_options=_NO_SYNC):
        pass
    (place / "postgres/data/PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedError, match=r"Postgres 12.*pg_dumpall"), EmbeddedPostgres.attached(place):
        pass
    (place / "postgres/data/PG_VERSION").write_text("18\n")
    with EmbeddedPostgres.attached(place) as dsn:
        assert _value(dsn, "select 1") == 1


def test_an_unfinished_data_directory_is_made_anew_and_nothing_is_deleted(place: Path) -> None:
    base = place / "postgres"
    (base / "data.new-left").mkdir(parents=True)
    (base / "data").mkdir()
    (base / "data" / "PG_VERSION").write_text("18\n")
    said: list[str] = []
    with EmbeddedPostgres.attached(place, said.append, initdb_options=_NO_SYNC) as dsn:
        assert _value(dsn, "select 1") == 1
    assert any("unfinished" in line for line in said)
    assert len(list(base.glob("data.unfinished-*"))) == 1
    assert not (base / "data.new-left").exists()


def test_a_long_state_directory_gets_a_short_private_socket(place: Path) -> None:
    deep = place / ("d" * 60) / ("e" * 60)
    with EmbeddedPostgres.attached(deep, initdb_options=_NO_SYNC) as dsn:
        assert _value(dsn, "select 1") == 1
        socket = Path((deep / "postgres/socket_dir").read_text())
        assert (socket.stat().st_mode & 0o777) == 0o700
    shutil.rmtree(socket)


@pytest.mark.skipif(os.geteuid() != 0 or not sys.platform.startswith("linux"), reason="needs root on Linux")
def test_root_may_keep_its_data_where_only_root_may_enter(place: Path) -> None:
    place.chmod(0o700)
    with EmbeddedPostgres.attached(place, initdb_options=_NO_SYNC) as dsn:
        assert _value(dsn, "select 1") == 1
        os.kill(_pid(place), signal.SIGKILL)
        socket = Path((place / "postgres/socket_dir").read_text())
    with EmbeddedPostgres.attached(place) as dsn:
        assert _value(dsn, "select 1") == 1
    shutil.rmtree(socket)
    assert (place.stat().st_mode & 0o777) == 0o700
