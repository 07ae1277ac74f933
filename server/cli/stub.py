"""``turnwire stub-llm``: an OpenAI-compatible endpoint that plays scripts."""

from pathlib import Path
from typing import Annotated

import typer

from server.cli.options import Host, Port

__all__ = ["stub_llm"]


def stub_llm(
    script: Annotated[
        Path, typer.Option("--script", help="A script, a scenario, or a folder of them.", exists=True)
    ],
    host: Host = None,
    port: Port = None,
) -> None:
    """Serve scripted models over the OpenAI wire format, until it is stopped."""
