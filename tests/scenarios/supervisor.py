"""A server that a shell command can restart: ``python -m tests.scenarios.supervisor FOLDER``.

``FOLDER/server.json`` has the environment; the command ends the server as ``SCENARIO_RESTART`` says
(``term``, ``kill``) and starts the next one on the same port.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_END_S = 30.0


class Supervised:
    """The server of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.log = folder / "server.log"

    @property
    def restart_command(self) -> list[str]:
        """What restarts it."""
        return [sys.executable, "-m", "tests.scenarios.supervisor", str(self._folder)]

    def start(self) -> None:
        """Start it, on its own: it outlives the process that starts it."""
        env = {**os.environ, **json.loads((self._folder / "server.json").read_text())}
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "server", "serve"],
                cwd=_ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        threading.Thread(target=child.wait, daemon=True).start()  # one that has ended is to be gone
        (self._folder / "pid").write_text(str(child.pid))

    def end(self, number: signal.Signals) -> None:
        """Send it a signal and wait for its end."""
        pid = int((self._folder / "pid").read_text())
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + _END_S
        while _is_running(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    """Restart."""
    server = Supervised(Path(sys.argv[1]))
    server.end(signal.SIGKILL if os.environ["SCENARIO_RESTART"] == "kill" else signal.SIGTERM)
    server.start()


if __name__ == "__main__":
    main()
