"""The commands by name."""

from typing import Annotated

import typer

from server.cli import migrate, scenario, serve, settings, stub

__all__ = ["app"]

app = typer.Typer(
    help="A server for real-time AI conversations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"turnwire {version('turnwire')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """A server for real-time AI conversations."""


app.command("serve")(serve.serve)
app.command("migrate")(migrate.migrate)
app.command("settings")(settings.settings)
app.command("stub-llm")(stub.stub_llm)
scenarios_app = typer.Typer(help="Black-box scenarios for a running server.", no_args_is_help=True)
scenarios_app.command("run")(scenario.run)
app.add_typer(scenarios_app, name="scenario")
