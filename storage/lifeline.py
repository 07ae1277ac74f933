"""A child process that stops the embedded server when its parent was killed.

Run as a program by :mod:`storage.embedded`, with the standard library only. It waits for the end of a pipe
whose other end only the parent has. A byte before the end means that the parent left in good order. Else, if
nobody else uses the server (the ``users`` lock is free), it stops it, under the same lock as everybody.

Arguments: the base directory; user and group to run the next as, or ``-`` twice; the command that stops
the server.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

_ATTEMPTS: Final = 40
_PAUSE_S: Final = 0.05
"""A killed parent's pipe ends before the kernel lets go of its locks; after two seconds they are others'."""


def main(base: Path, user: str, group: str, stop: list[str]) -> None:
    """Wait for the parent's end; see the module."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.read(0, 1):
        return
    for _attempt in range(_ATTEMPTS):
        if _stop_unless_used(base, user, group, stop):
            return
        time.sleep(_PAUSE_S)


def _stop_unless_used(base: Path, user: str, group: str, stop: list[str]) -> bool:
    """Stop the server if nobody uses it; false while somebody does."""
    with (base / "lock").open("a") as attaching, (base / "users.lock").open("a") as users:
        fcntl.flock(attaching, fcntl.LOCK_EX)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        with (base / "server.lock").open("a") as server:
            try:
                fcntl.flock(server, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                drop = {"user": int(user), "group": int(group), "extra_groups": []} if user != "-" else {}
                subprocess.run(stop, check=False, stdin=subprocess.DEVNULL, cwd=base / "data", **drop)  # type: ignore[call-overload] # noqa: S603
        return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
