"""Runs scenarios side by side against one server, and reports."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import anyio
import httpx2
from msgspec.structs import replace
from rich.console import Console
from rich.markup import escape

from scenarios import format as fmt
from scenarios.capabilities import Capabilities
from scenarios.report import Outcome, Report, Status, StepOutcome, describe
from scenarios.steps import perform
from scenarios.world import Server, StepFailed, World

_HTTP_S: Final = 120.0
_FILE_WIDTH: Final = 160


async def run_scenarios(
    paths: Sequence[Path | str],
    *,
    url: str,
    jobs: int = 1,
    repeat: int = 1,
    clients: int = 1,
    strict: bool = False,
    junit: Path | None = None,
    token: str | None = None,
    restart_command: str | Sequence[str] | None = None,
    http_url: str | None = None,
    filter: str | None = None,  # noqa: A002 - the word of the command line
    verbose: bool = False,
    patience: float = 1.0,
    values: Mapping[str, str] | None = None,
    console: Console | None = None,
) -> int:
    """Run scenario files, and all in folders, against the server at ``url``.

    Args:
        paths: Files and folders.
        url: ``ws://host:port`` or ``wss://…``, without a path.
        jobs: How many scenarios run at the same time.
        repeat: How often each is run.
        clients: How many copies of a scenario start together, each with ids of its own.
        strict: A scenario that cannot be run against this server counts as failed.
        junit: Where to write JUnit XML.
        token: Bearer token for sockets and HTTP.
        restart_command: Restarts the server; ``SCENARIO_RESTART`` in its environment is ``term`` or ``kill``.
        http_url: The REST interface; by default the same host and port as ``url``.
        filter: Part of the ids to run, or a pattern for them (``WS-CONN-*``).
        verbose: Show the steps of what passed, too.
        patience: Stretches all time-outs, for a slow machine or a loaded server.
        values: Values in place of those that files give their variables; numbers stay numbers.
        console: Where to report; standard output by default.

    Returns:
        0 if all passed, 1 if something failed, 2 if the files or the server are not usable.
    """
    console = console or _console()
    if url.startswith("http"):  # as a server prints its address
        url = url.replace("http", "ws", 1)
    http_url = http_url or url.replace("ws", "http", 1)
    server = Server(
        url=url, http_url=http_url, token=token, restart_command=restart_command, patience=patience
    )
    report = Report(console, verbose=verbose, many=repeat * clients > 1)
    capabilities = Capabilities(server)
    try:
        scenarios = [one for one in fmt.read_scenarios(map(Path, paths)) if _is_wanted(one, filter)]
        scenarios = [_with_values(one, values or {}) for one in scenarios]
        if not scenarios:
            raise fmt.FormatError("there is no such scenario")
        await capabilities.explore(scenarios)
    except fmt.FormatError as error:
        console.print(f"[red]{escape(str(error))}[/]", soft_wrap=True)
        return 2
    except StepFailed as error:
        console.print(f"[red]no server of this protocol at {url}: {escape(str(error))}[/]", soft_wrap=True)
        return 2
    runnable = []
    for scenario in scenarios:
        if reason := capabilities.missing(scenario):
            report.add(Outcome(scenario, Status.NOT_RUN, text=reason))
        else:
            runnable.append(scenario)
    await _run_all(runnable, server, report, jobs=jobs, repeat=repeat, clients=clients)
    report.summarise()
    if junit is not None:
        report.write_junit(junit)
    return report.exit_code(strict=strict)


def _console() -> Console:
    """Standard output; in a file or a pipe wide enough for the table."""
    console = Console()
    return console if console.is_terminal else Console(width=_FILE_WIDTH)


def _is_wanted(scenario: fmt.Scenario, wanted: str | None) -> bool:
    return wanted is None or wanted.lower() in scenario.id.lower() or fnmatchcase(scenario.id, wanted)


def _with_values(scenario: fmt.Scenario, values: Mapping[str, str]) -> fmt.Scenario:
    """A scenario with other values of its own variables; a number takes a number.

    Raises:
        FormatError: A number was expected.
    """
    changed = dict(scenario.vars)
    for name in changed.keys() & values.keys():
        text = values[name]
        if isinstance(changed[name], int) and not text.isdecimal():
            raise fmt.FormatError(f"{scenario.id}: {name} is a number, not {text!r}")
        changed[name] = int(text) if isinstance(changed[name], int) else text
    return replace(scenario, vars=changed)


async def _run_all(
    scenarios: Sequence[fmt.Scenario], server: Server, report: Report, *, jobs: int, repeat: int, clients: int
) -> None:
    """Run side by side what can be, then one by one what needs the server for itself."""
    limiter = anyio.CapacityLimiter(jobs)

    async def copies(scenario: fmt.Scenario, number: int, count: int) -> None:
        async with limiter, anyio.create_task_group() as tasks:
            for copy in range(count):
                parts = [f"#{number + 1}"] * (repeat > 1) + [f"client {copy + 1}"] * (count > 1)
                tasks.start_soon(_run_into, scenario, server, report, " ".join(parts))

    async with anyio.create_task_group() as tasks:
        for number in range(repeat):
            for scenario in scenarios:
                if not scenario.exclusive:
                    tasks.start_soon(copies, scenario, number, clients)
    for number in range(repeat):
        for scenario in scenarios:
            if scenario.exclusive:
                await copies(scenario, number, 1)


async def _run_into(scenario: fmt.Scenario, server: Server, report: Report, label: str) -> None:
    report.add(await run_one(scenario, server, label))


async def run_one(scenario: fmt.Scenario, server: Server, label: str = "") -> Outcome:
    """Run one scenario once."""
    began = time.monotonic()
    done: list[StepOutcome] = []
    fault: str | None = None
    async with httpx2.AsyncClient(timeout=_HTTP_S) as http, anyio.create_task_group() as tasks:
        world = World(server, tasks, http)
        with anyio.move_on_after(world.seconds(scenario.timeout_ms)) as scope:
            fault = await _play(scenario, world, done)
        if scope.cancelled_caught:
            fault = f"the scenario took more than {scenario.timeout_ms} ms"
            done.append(StepOutcome(describe(scenario.steps[len(done)]), passed=False))
        await world.close()
        tasks.cancel_scope.cancel()
    rest = [StepOutcome(describe(step), passed=None) for step in scenario.steps[len(done) :]]
    status = Status.PASSED if fault is None else Status.FAILED
    return Outcome(scenario, status, time.monotonic() - began, fault or "", (*done, *rest), label)


async def _play(scenario: fmt.Scenario, world: World, done: list[StepOutcome]) -> str | None:
    for name, value in scenario.vars.items():
        world.variables[name] = world.variables.expand(value)
    for step in scenario.steps:
        began = time.monotonic()
        try:
            await perform(step, world)
        except StepFailed as error:
            done.append(StepOutcome(describe(step), passed=False, seconds=time.monotonic() - began))
            return str(error)
        done.append(StepOutcome(describe(step), passed=True, seconds=time.monotonic() - began))
    return None
