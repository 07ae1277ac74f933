"""An MCP server whose tools write down that they ran: ``python -m tests.harness.recorder_server FILE``."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from mcp.server import MCPServer

server = MCPServer("rec")


def _write(kind: str, tag: str) -> str:
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{kind} {tag}\n")
    return f"done {tag}"


@server.tool()
async def now(tag: str) -> str:
    """Do it."""
    done = _write("now", tag)
    await anyio.sleep(0.05)
    return done


@server.tool()
async def change(tag: str) -> str:
    """Change it."""
    done = _write("change", tag)
    await anyio.sleep(0.05)
    return done


if __name__ == "__main__":
    server.run("stdio")
