"""``turnwire migrate``: bring the database's schema up to date, or say whether it is."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from server.cli.options import Config, StateDir

if TYPE_CHECKING:
    from server.settings import Settings

__all__ = ["migrate"]


def migrate(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 1 when the schema is not current.")
    ] = False,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Bring the database's schema up to date (`serve` does so too when it starts).

    The database is `database_url`, or else the embedded one in the state directory.
    """
    from server.cli.failures import Refused
    from server.settings import load_settings
    from storage.migrate import is_current, upgrade

    with _database(load_settings(config, state_dir=state_dir)) as dsn:
        if not check:
            upgrade(dsn)
        elif not is_current(dsn):
            raise Refused("the schema is not current; run `turnwire migrate`")
    typer.echo("The schema is current.")


@contextlib.contextmanager
def _database(settings: "Settings") -> Iterator[str]:
    from storage.embedded import EmbeddedPostgres

    if settings.database_url is not None:
        yield settings.database_url
    else:
        with EmbeddedPostgres.attached(settings.state_dir, _say) as dsn:
            yield dsn


def _say(line: str) -> None:
    typer.echo(line, err=True)
