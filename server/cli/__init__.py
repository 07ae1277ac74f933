"""The command line, ``turnwire``: one module a command, put together here.

Exit codes: 0 done; 1 refused or failed, with one clear line on stderr; 2 wrong usage. What a command needs
beyond this package's own small modules is imported inside it, so that ``turnwire --help`` is quick.
"""

import sys

import typer

from server.cli.failures import one_line
from server.cli.root import app

__all__ = ["main"]


def main() -> None:
    """Run the command line; only a bug ends in a traceback."""
    try:
        app(prog_name="turnwire")
    except Exception as error:
        line = one_line(error)
        if line is None:
            raise
        typer.echo(f"turnwire: {line}", err=True)
        sys.exit(1)
