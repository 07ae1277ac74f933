"""``turnwire scenario run``: the black-box suite against a running server."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["run"]


def run(
    files: Annotated[list[Path], typer.Argument(help="Scenario files, or folders of them.", exists=True)],
    *,
    url: Annotated[str, typer.Option("--url", help="The server.")] = "ws://127.0.0.1:8080",
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="Scenarios side by side.")] = 1,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Times each is run.")] = 1,
    clients: Annotated[int, typer.Option("--clients", min=1, help="Copies of each at the same time.")] = 1,
    strict: Annotated[bool, typer.Option("--strict", help="One that cannot run here fails.")] = False,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Write JUnit XML to this file.", dir_okay=False)
    ] = None,
    token: Annotated[str | None, typer.Option("--token", help="Bearer token.")] = None,
    restart_command: Annotated[
        str | None,
        typer.Option("--restart-command", help="Restarts the server; SCENARIO_RESTART says term or kill."),
    ] = None,
    http_url: Annotated[
        str | None, typer.Option("--http-url", help="REST, if not at the same host and port.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("-k", "--filter", help="Part of the ids, or a pattern for them.")
    ] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show the steps of all.")] = False,
    patience: Annotated[float, typer.Option("--patience", min=0.1, help="Stretches all time-outs.")] = 1.0,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another value of a scenario's variable."),
    ] = None,
) -> None:
    """Run scenarios; exit with 0 only if all passed."""
    import anyio

    from scenarios.runner import run_scenarios
    from server.cli.failures import Refused

    work = partial(
        run_scenarios,
        files,
        url=url,
        jobs=jobs,
        repeat=repeat,
        clients=clients,
        strict=strict,
        junit=junit,
        token=token,
        restart_command=restart_command,
        http_url=http_url,
        filter=name,
        verbose=verbose,
        patience=patience,
        values=_values(assignments or []),
    )
    result = anyio.run(work)
    if result:
        raise Refused("not all scenarios passed" if result == 1 else "the scenarios could not be run")


def _values(assignments: list[str]) -> dict[str, str]:
    values = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        if not sign:
            raise typer.BadParameter(f"NAME=VALUE, not {text!r}", param_hint="--set")
        values[name] = value
    return values
