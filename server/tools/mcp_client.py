"""The MCP SDK, as far as tools need it: connecting, listing, calling.

The only module that imports the SDK, which takes a second: it is itself imported only when a server is
configured, in a thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, TypeAlias

import msgspec
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolListChangedNotification,
)
from msgspec import Struct
from pydantic import ValidationError

from server.tools.arguments import clean_json
from server.tools.base import ToolFault, bounded_words

if TYPE_CHECKING:
    from mcp.client import IncomingMessage, Transport

    from server.settings import McpServer

_PAGES: Final = 20
_TOOLS: Final = 256
"""How many tools of one server are offered; a model would choke on more."""

_DESCRIPTION_CHARACTERS: Final = 4000
_SCHEMA_BYTES: Final = 65_536

Reason: TypeAlias = Literal["starting", "started", "lost", "changed"]


class RemoteTool(Struct, frozen=True):
    """A tool as its server describes it; text is clean (ER2)."""

    name: str
    description: str
    parameters: dict[str, Any]


@asynccontextmanager
async def connected(
    server: McpServer, tell: Callable[[Reason], None], *, show_stderr: bool
) -> AsyncIterator[Client]:
    """Start or reach a server; leaving closes the connection, and ends a server that was started.

    Args:
        tell: Told ``starting`` and ``started`` around the start of a process, which is better not cancelled
            (its pipes would be left to the garbage collector), ``lost`` when the server has hung up,
            ``changed`` when it has other tools than before.
        show_stderr: Whether what the server writes there goes to ours; otherwise it is thrown away.

    Raises:
        Exception: Many kinds, also in groups.
    """

    async def hear(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            tell("changed")

    async with (
        _transport(server, show_stderr=show_stderr) as transport,
        Client(_watched(transport, tell), message_handler=hear, cache=None) as client,
    ):
        yield client


async def list_tools(client: Client) -> list[RemoteTool]:
    """All tools of a server, up to a bound; those whose schema is not an object's, or too large, are left
    out."""
    found: list[RemoteTool] = []
    cursor: str | None = None
    for _page in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            schema = clean_json(tool.input_schema)
            if schema.setdefault("type", "object") == "object" and len(msgspec.json.encode(schema)) <= (
                _SCHEMA_BYTES
            ):
                schema.setdefault("properties", {})
                description = clean_json(tool.description or tool.title or tool.name)
                found.append(
                    RemoteTool(tool.name, bounded_words(description, _DESCRIPTION_CHARACTERS), schema)
                )
        cursor = page.next_cursor
        if cursor is None or len(found) >= _TOOLS:
            break
    return found[:_TOOLS]


async def call_tool(client: Client, name: str, arguments: dict[str, Any]) -> str:
    """Call a tool and give what it says as text.

    Raises:
        ToolFault: The tool says that it failed.
        BadConnection: The server did not answer as it should; it may be gone.
    """
    try:
        result = await client.call_tool(name, arguments)
    except (MCPError, ValidationError, RuntimeError) as error:
        said = error.message if isinstance(error, MCPError) else "an answer that cannot be understood"
        raise BadConnection(bounded_words(said)) from error
    text = text_of(result)
    if result.is_error:
        raise ToolFault(text or "the tool failed and did not say why")
    return text


class BadConnection(Exception):
    """The server did not answer as it should; the text is what it said, or what is wrong."""


def text_of(result: CallToolResult) -> str:
    """What a model is shown of a result: its texts, and of anything else what it is."""
    parts = [_part(block) for block in result.content]
    if not parts and result.structured_content is not None:
        return msgspec.json.encode(result.structured_content).decode()
    return "\n".join(parts)


def _part(block: object) -> str:
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=kind, data=data) | AudioContent(mime_type=kind, data=data):
            return f"[{kind}, about {len(data) * 3 // 4} bytes, not shown]"
        case ResourceLink(uri=uri, name=name):
            return f"[{name}: {uri}]"
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
        case EmbeddedResource(resource=resource):
            return f"[{resource.uri}, not shown]"
        case _:
            return f"[{type(block).__name__}, not shown]"


@asynccontextmanager
async def _transport(server: McpServer, *, show_stderr: bool) -> AsyncIterator[Transport]:
    if server.url is not None:
        async with create_mcp_http_client(headers=dict(server.headers)) as http:
            yield streamable_http_client(server.url, http_client=http)
        return
    command, *arguments = server.command
    parameters = StdioServerParameters(command=command, args=arguments, env=dict(server.env))
    if show_stderr:
        yield stdio_client(parameters, errlog=sys.stderr)
        return
    with _nowhere() as nowhere:
        yield stdio_client(parameters, errlog=nowhere)


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w")


@asynccontextmanager
async def _watched(
    transport: AbstractAsyncContextManager[Any], tell: Callable[[Reason], None]
) -> AsyncIterator[Any]:
    """The same transport, whose start and end of reading are told."""
    tell("starting")
    async with transport as (read, write):
        tell("started")
        yield _Watched(read, tell), write


class _Watched:
    """A stream of what a server says; everything but its end is the other stream's."""

    def __init__(self, stream: Any, tell: Callable[[Reason], None]) -> None:
        self._stream = stream
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._tell("lost")
            raise

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)
