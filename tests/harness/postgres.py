"""A Postgres of the test's own that it may kill or freeze, with fsync on."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from storage.embedded import EmbeddedPostgres
from storage.migrate import upgrade


class HurtPostgres:
    """An embedded server that a test may hurt."""

    def __init__(self, place: Path, dsn: str) -> None:
        self.dsn = dsn
        self.data = place / "postgres" / "data"

    @property
    def postmaster(self) -> int:
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def processes(self) -> list[int]:
        """The postmaster's children and itself."""
        children = Path(f"/proc/{self.postmaster}/task/{self.postmaster}/children")
        if children.exists():
            return [*map(int, children.read_text().split()), self.postmaster]
        found = os.popen(f"pgrep -P {self.postmaster}").read().split()
        return [*map(int, found), self.postmaster]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        for pid in self.processes():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


@contextmanager
def hurt_postgres() -> Iterator[HurtPostgres]:
    """Open one, migrated."""
    with tempfile.TemporaryDirectory(prefix="tw-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o755)
        with EmbeddedPostgres.attached(place, initdb_options=("--no-sync",)) as dsn:
            anyio.run(upgrade, dsn)
            yield HurtPostgres(place, dsn)
