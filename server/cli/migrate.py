"""``turnwire migrate``: bring the database's schema up to date, or say whether it is."""

import contextlib
from collections.abc import AsyncIterator
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
    from functools import partial

    import anyio

    from server.settings import load_settings

    anyio.run(partial(_migrate, load_settings(config, state_dir=state_dir), check=check))


async def _migrate(settings: "Settings", *, check: bool) -> None:
    from server.cli.failures import Refused
    from storage.migrate import is_current, upgrade

    async with _database(settings) as dsn:
        if check and not await is_current(dsn):
            raise Refused("the schema is not current; run `turnwire migrate`")
        changed = not check and await upgrade(dsn)
    typer.echo("The schema was brought up to date." if changed else "The schema is current.")


@contextlib.asynccontextmanager
async def _database(settings: "Settings") -> AsyncIterator[str]:
    from storage.embedded import EmbeddedPostgres

    if settings.database_url is not None:
        yield settings.database_url
    else:
        async with EmbeddedPostgres.open(settings.state_dir, _say) as dsn:
            yield dsn


def _say(line: str) -> None:
    typer.echo(line, err=True)
