"""``turnwire settings``: what can be set, made from the struct itself."""

from typing import Annotated, Final

import typer

__all__ = ["markdown_table", "settings"]

PIPE_WIDTH: Final = 260
"""A pipe has no width of its own: no row is cut or wrapped there."""


def settings(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a Markdown table.")] = False,
) -> None:
    """List every setting with its type, default and meaning.

    A flag wins over the environment, the environment over the TOML file, whose keys are the
    names shown.
    """
    if markdown:
        typer.echo(markdown_table())
    else:
        _print_table()


def markdown_table() -> str:
    """The table of the README."""
    from server.settings import describe_settings

    rows = [
        "| setting | environment | type | default | meaning |",
        "|---|---|---|---|---|",
    ]
    for info in describe_settings():
        variables = ", ".join(f"`{name}`" for name in info.variables)
        default = f"`{info.default}`" if info.default else ""
        rows.append(f"| `{info.name}` | {variables} | {info.type} | {default} | {info.meaning} |")
    return "\n".join(rows)


def _print_table() -> None:
    from rich.console import Console
    from rich.table import Table

    from server.settings import describe_settings

    table = Table(box=None, pad_edge=False, expand=False)
    table.add_column("setting", no_wrap=True)
    table.add_column("type")
    table.add_column("default", overflow="fold")
    table.add_column("meaning", min_width=30)
    table.add_column("environment", overflow="fold")
    for info in describe_settings():
        table.add_row(
            info.name, info.type, info.default, info.meaning.replace("`", ""), "\n".join(info.variables)
        )
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print(table)
