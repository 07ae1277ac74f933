"""Run the scenarios against a server that is really started, its model behind ``turnwire stub-llm``.

    python tools/scenarios.py [options of `turnwire scenario run`]

Everything listens on free loopback ports and keeps its data in a temporary folder; logs are left in
``.cache/scenarios``. The server's time limits for models are short, so that scenarios about them are.
"""

import argparse
import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Final

HERE: Final = Path(__file__).resolve().parent.parent
LOGS: Final = HERE / ".cache" / "scenarios"
TURNWIRE: Final = (sys.executable, "-m", "server")
READY_S: Final = 120.0
STOP_S: Final = 30.0
POLL_S: Final = 0.05
LIMITS: Final[Mapping[str, str]] = {
    "TURNWIRE_LLM_FIRST_TOKEN_TIMEOUT_MS": "3000",
    "TURNWIRE_LLM_GAP_TIMEOUT_MS": "3000",
    "TURNWIRE_DRAIN_GRACE_MS": "2000",
}


class Failed(Exception):
    """What was to be started does not run."""


class Program:
    """One process of ours that answers HTTP; restarted only by the thread that holds its lock."""

    def __init__(self, name: str, arguments: list[str], variables: Mapping[str, str], ready_url: str) -> None:
        self._name = name
        self._arguments = arguments
        self._variables = {**os.environ, **variables}
        self._ready_url = ready_url
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        LOGS.mkdir(parents=True, exist_ok=True)
        (LOGS / f"{name}.log").unlink(missing_ok=True)

    def start(self) -> None:
        """Start it and wait until it is ready."""
        with self._lock:
            self._start()

    def restart(self, how: str) -> None:
        """Stop it, with time to finish (``term``) or without (``kill``), and start it again."""
        with self._lock:
            self._stop(signal.SIGKILL if how == "kill" else signal.SIGTERM)
            self._start()

    def stop(self) -> None:
        """Stop it for good."""
        with self._lock:
            self._stop(signal.SIGTERM)

    def _start(self) -> None:
        with (LOGS / f"{self._name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*TURNWIRE, *self._arguments],
                cwd=HERE,
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + READY_S
        while not is_ready(self._ready_url):
            if self._process.poll() is not None:
                raise Failed(f"{self._name} ended with {self._process.returncode}; see {self._log_place()}")
            if time.monotonic() > deadline:
                raise Failed(f"{self._name} is not ready after {READY_S:.0f} s; see {self._log_place()}")
            time.sleep(POLL_S)

    def _stop(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise Failed(f"{self._name} did not stop within {STOP_S:.0f} s") from None
        finally:
            self._process = None

    def _log_place(self) -> Path:
        return (LOGS / f"{self._name}.log").relative_to(HERE)


def main() -> int:
    """Start both, run the scenarios, stop both; the exit code is the runner's."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--restart", metavar="SOCKET", help=argparse.SUPPRESS)
    own, options = parser.parse_known_args()
    if own.restart:
        return ask_for_restart(own.restart, os.environ.get("SCENARIO_RESTART", "term"))
    signal.signal(signal.SIGTERM, _leave)
    try:
        with tempfile.TemporaryDirectory(prefix="turnwire-") as folder:
            return run(Path(folder), options)
    except Failed as error:
        print(f"scenarios: {error}", file=sys.stderr)
        return 1


def _leave(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(1)


def run(folder: Path, options: list[str]) -> int:
    """One whole run with its data in ``folder``."""
    folder.chmod(0o755)
    stub_port, port = free_ports()
    loopback = ["--host", "127.0.0.1", "--port"]
    stub = Program(
        "stub-llm",
        ["stub-llm", "--script", "scenarios", *loopback, str(stub_port)],
        {},
        f"http://127.0.0.1:{stub_port}/v1/models",
    )
    server = Program(
        "server",
        ["serve", *loopback, str(port), "--state-dir", str(folder / "state")],
        {**LIMITS, "OPENAI_BASE_URL": f"http://127.0.0.1:{stub_port}/v1", "OPENAI_API_KEY": "none"},
        f"http://127.0.0.1:{port}/readyz",
    )
    with running(stub), running(server), restarts(server, folder / "restart") as command:
        arguments = ["--url", f"ws://127.0.0.1:{port}", "--restart-command", command, *options]
        runner = subprocess.run(
            [*TURNWIRE, "scenario", "run", "scenarios", *arguments], cwd=HERE, check=False
        )
    return runner.returncode


@contextlib.contextmanager
def running(program: Program) -> Iterator[None]:
    """Keep it running."""
    try:
        program.start()
        yield
    finally:
        program.stop()


@contextlib.contextmanager
def restarts(program: Program, path: Path) -> Iterator[str]:
    """Restart on request; gives the command that requests it and waits for the end."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    threading.Thread(target=_serve_restarts, args=(listener, program), daemon=True).start()
    try:
        yield shlex.join([sys.executable, str(Path(__file__).resolve()), "--restart", str(path)])
    finally:
        listener.close()


def _serve_restarts(listener: socket.socket, program: Program) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            try:
                program.restart(connection.recv(16).decode())
                connection.sendall(b"ready")
            except Failed as error:
                connection.sendall(str(error).encode())


def ask_for_restart(path: str, how: str) -> int:
    """What the restart command does."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(how.encode())
        answer = connection.recv(1024).decode()
    if answer != "ready":
        print(answer or "the restart was given up", file=sys.stderr)
    return 0 if answer == "ready" else 1


def is_ready(url: str) -> bool:
    """Whether it answers with success."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def free_ports() -> tuple[int, int]:
    """Two ports that nobody uses now."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
