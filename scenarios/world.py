"""What one run of a scenario knows and holds: the server, variables, clients, lists, HTTP.

Everything in it is private to the run, so that any number of runs go side by side.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import anyio
import httpx2
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from scenarios.client import Client, Position, Received
from scenarios.format import Request
from scenarios.invariants import Ledger
from scenarios.values import Variables

_READY_POLL_S: Final = 0.05
_CLEAN_CLOSE_S: Final = 0.5


class StepFailed(Exception):
    """A step did not go as written; the text has one finding a line."""


class Server(Struct, frozen=True):
    """The server under test and how to reach it."""

    url: str
    http_url: str
    token: str | None = None
    restart_command: str | Sequence[str] | None = None
    patience: float = 1.0

    def headers(self) -> dict[str, str]:
        """Credentials for sockets and HTTP alike."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}


class Answer(Struct, frozen=True):
    """An HTTP answer; the body is decoded JSON, or text where it is none."""

    status: int
    body: Any


class Background(Struct):
    """Something that runs beside the steps; ``done`` is set at its end."""

    done: anyio.Event
    result: Any = None
    fault: str | None = None


class World:
    """The state of one run. Only the run's own task changes it."""

    def __init__(self, server: Server, tasks: TaskGroup, http: httpx2.AsyncClient) -> None:
        self.server = server
        self.tasks = tasks
        self.variables = Variables()
        self.lists: dict[str, list[Received]] = {}
        self.marks: dict[str, Position] = {}
        self.clients: dict[str, Client] = {}
        self.background: dict[str, Background] = {}
        self._ledger = Ledger()
        self._http = http
        self._sent = 0

    def client(self, name: str) -> Client:
        """The client of this name, made at its first mention."""
        return self.clients.setdefault(name, Client(name, self._ledger))

    def request_id(self) -> str:
        """A request id that no other frame of any run has."""
        self._sent += 1
        return f"{self.variables['run']}-{self._sent}"

    def position(self, name: str) -> Position:
        """The position of a mark or of a client.

        Raises:
            StepFailed: There is neither, or the client has none yet.
        """
        position = self.marks.get(name)
        if position is None and name in self.clients:
            position = self.clients[name].position
        if position is None:
            raise StepFailed(f"{name!r} is neither a mark nor a client with a position")
        return position

    def socket_url(self, path: str, query: dict[str, Any]) -> str:
        """The address of a socket; true and false become words as JSON has them."""
        texts = {
            key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in query.items()
        }
        return f"{self.server.url.rstrip('/')}{path}" + (f"?{urlencode(texts)}" if texts else "")

    def publish(self) -> None:
        """Make positions (of clients and marks) and the limits last told visible to ``${…}``."""
        for name, mark in self.marks.items():
            self.variables[name] = {"epoch": mark.epoch, "seq": mark.seq}
        for name, client in self.clients.items():
            if client.position is not None:
                known = {"epoch": client.position.epoch, "seq": client.position.seq}
                self.variables[name] = {**known, "attachment": client.connected.get("attachment")}
            if "limits" in client.connected:
                self.variables["limits"] = client.connected["limits"]

    def seconds(self, milliseconds: int) -> float:
        """A time-out in seconds, stretched by the server's patience."""
        return milliseconds / 1000 * self.server.patience

    async def call(self, request: Request) -> Answer:
        """Make one HTTP call.

        Raises:
            StepFailed: No answer.
        """
        content = None if request.body is None else msgspec.json.encode(request.body)
        headers = {**self.server.headers(), "Content-Type": "application/json", **request.headers}
        try:
            answer = await self._http.request(
                request.method,
                self.server.http_url.rstrip("/") + request.path,
                params={key: str(value) for key, value in request.query.items()} or None,
                content=content,
                headers=headers,
            )
        except httpx2.HTTPError as error:
            raise StepFailed(f"{request.method} {request.path}: {error!r}") from None
        try:
            body: Any = msgspec.json.decode(answer.content)
        except msgspec.DecodeError:
            body = answer.text
        return Answer(answer.status_code, body)

    def start(self, name: str, work: Callable[[], Awaitable[Any]]) -> None:
        """Run something beside the steps; its result or fault waits under ``name``."""
        entry = self.background[name] = Background(anyio.Event())

        async def run() -> None:
            try:
                entry.result = await work()
            except StepFailed as error:
                entry.fault = str(error)
            finally:
                entry.done.set()

        self.tasks.start_soon(run, name=f"background {name}")

    async def join(self, name: str) -> Any:
        """Wait for what was started, and return its result.

        Raises:
            StepFailed: Nothing of this name was started, or it failed.
        """
        if name not in self.background:
            raise StepFailed(f"nothing was started as {name!r}")
        entry = self.background[name]
        await entry.done.wait()
        if entry.fault is not None:
            raise StepFailed(entry.fault)
        return entry.result

    async def restart(self, how: str) -> None:
        """Run the restart command and wait until the server answers again.

        Raises:
            StepFailed: The command failed.
        """
        command = self.server.restart_command
        assert command is not None, "the runner has looked"
        began = time.monotonic()
        done = await anyio.run_process(command, check=False, env={**os.environ, "SCENARIO_RESTART": how})
        if done.returncode:
            text = (done.stderr or done.stdout).decode(errors="replace").strip()[-500:]
            raise StepFailed(f"the restart command ended with {done.returncode}: {text}")
        while not await self._is_ready():
            if time.monotonic() - began > self.seconds(60_000):
                raise StepFailed("the server is not ready again")
            await anyio.sleep(_READY_POLL_S)

    async def _is_ready(self) -> bool:
        try:
            answer = await self.call(Request(path="/readyz"))
        except StepFailed:
            return False
        return answer.status in (200, 404)

    async def close(self) -> None:
        """End what is still open: say goodbye, wait a moment, destroy."""
        open_ones = [client for client in self.clients.values() if client.is_open]
        with contextlib.suppress(ConnectionError), anyio.move_on_after(_CLEAN_CLOSE_S, shield=True):
            for client in open_ones:
                client.resume_reading()
                await client.wire.send_close(1000)
            for client in open_ones:
                await client.wait_closed()
        for client in open_ones:
            if client.is_open:
                await client.drop(reset=False)
