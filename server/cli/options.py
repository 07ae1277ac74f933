"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

__all__ = ["Config", "Host", "Port", "StateDir"]

Config: TypeAlias = Annotated[
    Path | None, typer.Option("--config", help="TOML file with settings.", dir_okay=False)
]
StateDir: TypeAlias = Annotated[
    Path | None, typer.Option("--state-dir", help="Folder of the embedded database.", file_okay=False)
]
Host: TypeAlias = Annotated[str | None, typer.Option("--host", help="Address to listen on.")]
Port: TypeAlias = Annotated[int | None, typer.Option("--port", min=0, max=65535, help="Port; 0 for any.")]
