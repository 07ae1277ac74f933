"""What a server can do, found out by asking it: a scenario that needs more is not run, with the reason.

- ``scripts``: a completion with the file's first script does not end in ``unknown_model``;
- ``restart``: a restart command was given;
- ``rest``: ``GET /api/sessions`` answers;
- ``limits.NAME`` or ``limits.NAME <= 5000``: ``connected.limits`` has the number, and it is as said.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import anyio
import httpx2

from scenarios import format as fmt
from scenarios.steps import perform
from scenarios.wire import Closed
from scenarios.world import Server, StepFailed, World

_CONDITION: Final = re.compile(r"limits\.(\w+)(?:\s*(<=|>=|<|>|==)\s*(\d+))?")
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}
_FIRST_SIGN_MS: Final = 1_500
_AT_ONCE: Final = 8


class Capabilities:
    """Answers of one server, asked once each."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._limits: dict[str, Any] = {}
        self._unknown_scripts: set[str] = set()
        self._rest: str | None = None

    async def explore(self, scenarios: Iterable[fmt.Scenario]) -> None:
        """Ask all that these scenarios need to know.

        Raises:
            StepFailed: There is no server of this protocol.
        """
        wanted = list(scenarios)
        self._limits = await self._in_world(_read_limits, self._server)
        if any("rest" in scenario.requires for scenario in wanted):
            self._rest = await self._in_world(_ask_rest, self._server)
        limiter = anyio.CapacityLimiter(_AT_ONCE)

        async def ask(script: str) -> None:
            async with limiter:
                try:
                    known = await self._in_world(_knows_script, self._server, script)
                except StepFailed:
                    return  # the scenario will show what is wrong
                if not known:
                    self._unknown_scripts.add(script)

        async with anyio.create_task_group() as tasks:
            for scenario in wanted:
                if scenario.scripts:
                    tasks.start_soon(ask, scenario.scripts[0])

    async def _in_world(self, question: Callable[..., Any], server: Server, *arguments: Any) -> Any:
        fault: StepFailed | None = None
        answer = None
        async with httpx2.AsyncClient() as http, anyio.create_task_group() as tasks:
            world = World(server, tasks, http)
            try:
                answer = await question(world, *arguments)
            except StepFailed as error:
                fault = error
            await world.close()
            tasks.cancel_scope.cancel()
        if fault is not None:
            raise fault
        return answer

    def missing(self, scenario: fmt.Scenario) -> str | None:
        """Why this scenario cannot be run against the server; None when it can."""
        for need in scenario.requires:
            if reason := self._missing(need):
                return reason
        if scenario.scripts and scenario.scripts[0] in self._unknown_scripts:
            return f"the server has no model script/{scenario.scripts[0]}"
        return None

    def _missing(self, need: str) -> str | None:
        if need == "scripts":
            return None
        if need == "rest":
            return self._rest
        if need == "restart":
            return None if self._server.restart_command else "no restart command was given"
        condition = _CONDITION.fullmatch(need)
        if condition is None:
            return f"nobody knows how to find out {need!r}"
        name, sign, number = condition.groups()
        value = self._limits.get(name)
        if value is None:
            return f"connected.limits has no {name}"
        if sign is not None and not _OPERATORS[sign](value, int(number)):
            return f"needs {need}; here it is {value}"
        return None


async def _read_limits(world: World) -> dict[str, Any]:
    await perform(fmt.Connect(connect="/ws/conversations/${session}"), world)
    limits: dict[str, Any] = world.client("a").connected.get("limits") or {}
    return limits


async def _ask_rest(world: World) -> str | None:
    try:
        await perform(fmt.Http(http=fmt.Request(path="/api/sessions")), world)
    except StepFailed as error:
        return f"no REST interface at {world.server.http_url} ({str(error).splitlines()[0]})"
    return None


async def _knows_script(world: World, script: str) -> bool:
    await perform(fmt.Connect(connect="/ws/conversations/${session}"), world)
    await perform(fmt.Send(send={"type": "append_message", "role": "user", "content": "probe"}), world)
    await perform(
        fmt.Send(send={"type": "request_completion", "model": f"script/{script}"}, as_="probe"), world
    )
    known = True
    with anyio.move_on_after(world.seconds(_FIRST_SIGN_MS)):
        while not isinstance(received := await world.client("a").next(), Closed):
            if received.frame["type"] == "error":
                known = received.frame["code"] != "unknown_model"
                break
            if received.frame["type"] not in ("message_appended", "completion_queued", "completion_init"):
                break
    if world.client("a").is_open:
        await perform(fmt.Send(send={"type": "stop_completion"}), world)
    return known
