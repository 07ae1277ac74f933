"""``turnwire scenario run``: the black-box suite against a running server."""

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
    token: Annotated[
        str | None, typer.Option("--token", help="Bearer token.", envvar="TURNWIRE_TEST_TOKEN")
    ] = None,
    restart_command: Annotated[
        str | None,
        typer.Option("--restart-command", help="Restarts the server and returns when it is ready again."),
    ] = None,
) -> None:
    """Run scenarios; exit with 0 only if all passed."""
    from scenarios.runner import RunOptions, run_files

    options = RunOptions(
        url=url,
        jobs=jobs,
        repeat=repeat,
        clients=clients,
        strict=strict,
        junit=junit,
        token=token,
        restart_command=restart_command,
    )
    if not run_files(files, options):
        raise typer.Exit(1)
