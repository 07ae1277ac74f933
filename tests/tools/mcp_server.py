"""An MCP server to test with: ``python -m tests.tools.mcp_server [PORT]``, without a port over stdio."""

from __future__ import annotations

import os
import sys

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import ImageContent, TextContent

server = MCPServer("test")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def structured(word: str) -> dict[str, str]:
    """Give an object."""
    return {"word": word}


@server.tool()
def fail() -> str:
    """Always fail."""
    raise ValueError("a secret of the server's")


@server.tool()
async def slow() -> str:
    """Never end."""
    await anyio.sleep_forever()
    return ""


@server.tool()
def crash() -> str:
    """End the server."""
    os._exit(1)


@server.tool()
def variable(name: str) -> str:
    """Tell a variable of the environment."""
    return os.environ.get(name, "(not set)")


@server.tool()
def header(name: str, ctx: Context) -> str:
    """Tell a header of the request."""
    return (ctx.headers or {}).get(name, "(not set)")


@server.tool()
def hostile() -> list[TextContent | ImageContent]:
    """Give more than text, and text that cannot be stored."""
    return [
        TextContent(type="text", text="before\0after" + "x" * 100_000),
        ImageContent(type="image", data="AAAA", mime_type="image/png"),
    ]


@server.tool(name="odd name/with.dots" + "x" * 80)
def odd() -> str:
    """Have a name that endpoints do not take."""
    return "odd"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
