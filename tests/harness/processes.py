"""Real processes for tests: the server and the scripted endpoint, each ended by the test that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Self

ROOT = Path(__file__).parents[2]
_START_S = 60.0
_STOP_S = 20.0


class Process:
    """A child process that says on standard output when it is ready."""

    def __init__(self, arguments: list[str], env: dict[str, str], ready: str) -> None:
        self._arguments = arguments
        self._env = env
        self._ready = ready
        self.url = ""
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._child: subprocess.Popen[bytes] | None = None
        self._lines: SimpleQueue[str | None] = SimpleQueue()

    def start(self) -> Self:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TURNWIRE_", "OPENAI_"))}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "server", *self._arguments],
            cwd=ROOT,
            env={**inherited, **self._env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        assert self._child.stdout is not None
        self._lines = SimpleQueue()
        threading.Thread(target=_pump, args=(self._child.stdout, self._lines), daemon=True).start()
        try:
            while (line := self._lines.get(timeout=_START_S)) is not None:
                if self._ready in line:
                    self.url = line.split()[-1]
                    return self
        except Empty:
            self.kill()
        raise AssertionError(f"did not start:\n{self.read_log()}")

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def kill(self) -> None:
        """End it as the power going out would: SIGKILL."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def terminate(self) -> int:
        """Ask it to end (SIGTERM) and give its exit code."""
        assert self._child is not None
        self._child.send_signal(signal.SIGTERM)
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self._child is not None
        self._child.send_signal(number)

    def wait(self) -> int:
        assert self._child is not None
        try:
            return self._child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"did not stop:\n{self.read_log()}") from None

    def read_log(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def close(self) -> None:
        """End it, however it is."""
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self.log.close()


def _pump(stream: IO[bytes], lines: SimpleQueue[str | None]) -> None:
    with stream:
        for line in stream:
            lines.put(line.decode())
    lines.put(None)


class ServerProcess(Process):
    """``turnwire serve`` on a free loopback port."""

    def __init__(self, database_url: str, stub_url: str | None = None, **settings: object) -> None:
        env = {"TURNWIRE_PORT": "0", "DATABASE_URL": database_url, "TURNWIRE_LOG_JSON": "true"}
        if stub_url is not None:
            env |= {"OPENAI_BASE_URL": f"{stub_url}/v1", "OPENAI_API_KEY": "unused"}
        env |= {f"TURNWIRE_{name.upper()}": str(value) for name, value in settings.items()}
        super().__init__(["serve"], env, "ready")

    def set(self, **settings: object) -> None:
        """Other settings, from the next start on."""
        self._env |= {f"TURNWIRE_{name.upper()}": str(value) for name, value in settings.items()}

    @property
    def ws_url(self) -> str:
        return self.url.replace("http", "ws", 1)


class StubProcess(Process):
    """``turnwire stub-llm`` on a free loopback port."""

    def __init__(self, scripts: Path) -> None:
        super().__init__(["stub-llm", "--script", str(scripts), "--port", "0"], {}, "ready")
