"""``turnwire serve``: run the server until SIGTERM or SIGINT."""

import importlib.util
from functools import partial
from typing import TYPE_CHECKING

import typer

from server.cli.options import Config, Host, Port, StateDir

if TYPE_CHECKING:
    from server.settings import Settings

__all__ = ["serve"]


def serve(host: Host = None, port: Port = None, state_dir: StateDir = None, config: Config = None) -> None:
    """Run the server.

    With no settings at all it listens on 127.0.0.1:8080, starts a database of its own and answers with a
    small local model, or a scripted one where that is not installed. `turnwire settings` lists all settings.
    """
    from server.logs import configure_logs
    from server.settings import load_settings, require_authentication, unknown_variables

    settings = load_settings(config, host=host, port=port, state_dir=state_dir)
    require_authentication(settings)
    configure_logs(settings.log_level, as_json=settings.log_json)
    for name in unknown_variables():
        _say(f"Not a setting, ignored: {name}")
    _run(settings)


def _run(settings: "Settings") -> None:
    import anyio

    from server.app import run_server

    serving = partial(run_server, settings, ready=_announce, progress=_say)
    with_uvloop = importlib.util.find_spec("uvloop") is not None
    anyio.run(serving, backend="asyncio", backend_options={"use_uvloop": with_uvloop})


def _announce(url: str) -> None:
    typer.echo(f"Turnwire is ready: {url}")


def _say(line: str) -> None:
    typer.echo(line, err=True)
