"""Tools from outside: MCP servers named in the settings.

Each server has a task of its own, which connects, keeps the list of tools and connects again, ever more
slowly, when the server is gone. Nothing waits for that task but a call, and a call only for a moment: while a
server is away its tools fail clearly. The SDK is imported only when a server is configured.
"""

from __future__ import annotations

import hashlib
import importlib.util
import random
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import structlog
from jsonschema import Draft202012Validator
from msgspec import Struct
from referencing import Registry

from protocol.codes import ErrorCode
from server.settings import SettingsError
from server.tools.arguments import InvalidArguments, read_object
from server.tools.base import Policy, Tool, ToolFault, ToolResult, bounded_words
from storage.tasks import background_tasks

if TYPE_CHECKING:
    from types import ModuleType

    from mcp import Client

    from server.settings import McpServer
    from server.tools.base import ToolContext
    from server.tools.mcp_client import Reason, RemoteTool

log = structlog.get_logger(__name__)

SEPARATOR: Final = "__"
"""Between a server's name and a tool's; a server's name has none."""

_NAME_CHARACTERS: Final = 64

_START_S: Final = 2.0
"""How long the start of processes is waited for when the toolbox closes."""


class Pace(Struct, frozen=True):
    """How a server that is away is sought, and how one that is there is looked after; seconds."""

    first_s: float = 0.5
    most_s: float = 30.0
    patience_s: float = 2.0
    """How long a call waits for a server that is away."""
    look_s: float = 60.0
    """Between two looks at what tools a server has, and whether it is there."""


class McpServers:
    """All configured servers; what a toolbox asks for tools."""

    def __init__(self, connections: Mapping[str, Connection]) -> None:
        self._connections = connections

    def tools(self) -> list[Tool]:
        """The tools that are known, of servers that are away too."""
        return [tool for one in self._connections.values() for tool in one.tools.values()]

    def get(self, name: str) -> Tool | None:
        """The tool of a name; of a server that never answered, one that says so when it is called."""
        server, separator, _tool = name.partition(SEPARATOR)
        connection = self._connections.get(server)
        if connection is None or not separator:
            return None
        return connection.find(name)


@asynccontextmanager
async def open_mcp_servers(
    servers: Mapping[str, McpServer], *, pace: Pace | None = None, show_stderr: bool = False
) -> AsyncIterator[McpServers]:
    """Begin to connect to the servers, without waiting; leaving ends those that were started.

    Raises:
        SettingsError: Servers are configured and the SDK is not installed.
    """
    if servers and importlib.util.find_spec("mcp") is None:
        raise SettingsError("mcp: MCP servers need the extra `mcp`: pip install 'turnwire[mcp]'")
    connections = {
        name: Connection(name, server, pace or Pace(), show_stderr=show_stderr)
        for name, server in servers.items()
    }
    async with background_tasks() as tasks:
        for name, connection in connections.items():
            tasks.start_soon(connection.run, name=f"mcp {name}")
        try:
            yield McpServers(connections)
        finally:
            with anyio.move_on_after(_START_S, shield=True):
                for connection in connections.values():
                    await connection.not_starting()


class Connection:
    """One server: its task, its tools, and calls to it.

    Attributes change only inside :meth:`run`, but for :attr:`_calls`, of which each call has its own entry.
    """

    def __init__(self, name: str, server: McpServer, pace: Pace, *, show_stderr: bool) -> None:
        self.name: Final = name
        self.server: Final = server
        self.tools: dict[str, McpTool] = {}
        """By the full name; kept while the server is away."""
        self._pace: Final = pace
        self._show_stderr: Final = show_stderr
        self._client: Client | None = None
        self._ready = anyio.Event()
        self._wake = anyio.Event()
        self._starting: anyio.Event | None = None
        """Set once the process is there; ``None`` when none is being started."""
        self._closing = False
        self._lost = False
        self._served = False
        """Whether the present connection, or the last one, came as far as offering tools."""
        self._calls: set[anyio.CancelScope] = set()

    @property
    def longest_s(self) -> float:
        """How long a call may take, with the time that it waits for the server to be there."""
        return self.server.timeout_ms / 1000 + self._pace.patience_s

    def find(self, full_name: str) -> Tool | None:
        """The tool; while the server has never answered, a stand-in for whatever it will be."""
        tool = self.tools.get(full_name)
        if tool is None and not self.tools:
            return McpTool(self, full_name, None)
        return tool

    def policy_of(self, tool_name: str) -> Policy:
        """The settings' policy for a tool, by the server's own name of it."""
        for pattern, policy in self.server.tools.items():
            if fnmatchcase(tool_name, pattern):
                return Policy(policy)
        return Policy(self.server.policy)

    # -- the task ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Connect, and connect again, for as long as the toolbox is open."""
        sdk: ModuleType = await anyio.to_thread.run_sync(_import_client)
        delay = self._pace.first_s
        told = False
        while not self._closing:
            self._served = False
            kinds: list[str] = []
            try:
                await self._attend(sdk)
            except Exception as error:  # noqa: BLE001 (whatever it is, it is tried again)
                kinds = _kinds(error)
            finally:
                self._let_go()
            if self._served or not told:
                log.warning("mcp server away", server=self.name, error_types=kinds)
            told = True
            if self._served:
                delay = self._pace.first_s
            await self._pause(delay)
            delay = min(delay * 2, self._pace.most_s)

    async def _attend(self, sdk: ModuleType) -> None:
        """One connection, from its beginning until the server has hung up."""
        self._lost, self._wake = False, anyio.Event()
        limit_s = self.server.connect_timeout_ms / 1000
        with anyio.CancelScope() as scope:

            def hear(reason: Reason) -> None:
                if reason == "started":
                    scope.deadline = anyio.current_time() + limit_s
                self._hear(reason)

            async with sdk.connected(self.server, hear, show_stderr=self._show_stderr) as client:
                self._take(await sdk.list_tools(client))
                scope.deadline = float("inf")
                self._client = client
                self._served = True
                self._ready.set()
                log.info("mcp server ready", server=self.name, tools=len(self.tools))
                while not self._lost:
                    with anyio.move_on_after(self._pace.look_s):
                        await self._wake.wait()
                    if self._lost:
                        break
                    self._wake = anyio.Event()
                    scope.deadline = anyio.current_time() + limit_s
                    self._take(await sdk.list_tools(client))
                    scope.deadline = float("inf")
        if scope.cancelled_caught:
            raise TimeoutError

    def _hear(self, reason: Reason) -> None:
        """Something happened to the connection."""
        match reason:
            case "starting":
                self._starting = anyio.Event()
            case "started":
                self._end_start()
            case "lost":
                self._let_go()
                self._wake.set()
            case "changed":
                self._wake.set()

    def _end_start(self) -> None:
        if self._starting is not None:
            self._starting.set()
            self._starting = None

    async def not_starting(self) -> None:
        """No process is being started any more, and none will be."""
        self._closing = True
        if self._starting is not None:
            await self._starting.wait()

    def _take(self, remote: list[RemoteTool]) -> None:
        """Take over the server's list of tools."""
        tools: dict[str, McpTool] = {}
        for one in remote:
            full_name = full_name_of(self.name, one.name)
            if full_name in tools:
                log.warning("mcp tool left out: its name is taken", server=self.name, tool=full_name)
                continue
            known = self.tools.get(full_name)
            tools[full_name] = (
                known if known is not None and known.remote == one else McpTool(self, full_name, one)
            )
        self.tools = tools

    def _let_go(self) -> None:
        """The connection is of no use any more: end the calls that wait for it."""
        self._end_start()
        if self._client is not None:
            self._client = None
            self._ready = anyio.Event()
        self._lost = True
        for scope in self._calls:
            scope.cancel()

    async def _pause(self, delay_s: float) -> None:
        """Wait before the next attempt; a call that wants the server makes the wait short."""
        self._wake = anyio.Event()
        least_s = min(delay_s, self._pace.first_s)
        await anyio.sleep(least_s * random.uniform(0.75, 1.25))
        with anyio.move_on_after((delay_s - least_s) * random.uniform(0.75, 1.25)):
            await self._wake.wait()

    # -- calls ---------------------------------------------------------------------------------------------

    async def call(self, full_name: str, arguments: dict[str, Any]) -> str:
        """Call a tool; raises ToolFault, also while the server is away."""
        client = await self._there()
        tool = self.tools.get(full_name)
        if tool is None or tool.remote is None:
            raise ToolFault(f"the MCP server {self.name} has no such tool")
        from server.tools import mcp_client as sdk

        limit_s = self.server.timeout_ms / 1000
        with anyio.CancelScope(deadline=anyio.current_time() + limit_s) as scope:
            self._calls.add(scope)
            try:
                return await sdk.call_tool(client, tool.remote.name, arguments)
            except sdk.BadConnection as error:
                self._wake.set()  # look whether it is still there
                raise ToolFault(f"the MCP server {self.name} answered: {error}") from None
            finally:
                self._calls.discard(scope)
        if anyio.current_time() >= scope.deadline:
            raise ToolFault(f"{full_name} took longer than {limit_s:g} s", ErrorCode.TOOL_TIMEOUT)
        raise ToolFault(
            f"the MCP server {self.name} was lost during the call; whether it took effect is not known"
        )

    async def _there(self) -> Client:
        if self._client is None:
            self._wake.set()
            with anyio.move_on_after(self._pace.patience_s):
                await self._ready.wait()
        if self._client is None:
            raise ToolFault(f"the MCP server {self.name} is away; try again later")
        return self._client


class McpTool(Tool):
    """A server's tool; ``remote`` is None as long as the server never said what it has."""

    def __init__(self, connection: Connection, full_name: str, remote: RemoteTool | None) -> None:
        self.name = full_name
        self.remote = remote
        own_name = full_name.partition(SEPARATOR)[2] if remote is None else remote.name
        self.description = "" if remote is None else remote.description
        self.parameters = {"type": "object", "properties": {}} if remote is None else remote.parameters
        self.policy = connection.policy_of(own_name)
        self.timeout_s = connection.longest_s
        self.expires_s = connection.server.expires_s
        self._connection = connection
        self._validator: Any = (
            None if remote is None else Draft202012Validator(remote.parameters, registry=Registry())
        )

    def check(self, arguments: str) -> None:
        """As :meth:`Tool.check`, by the server's schema; the server checks again."""
        value = _read(arguments)
        if self._validator is None:
            return
        try:
            complaint = next(self._validator.iter_errors(value), None)
        except Exception:  # noqa: BLE001 (a schema that is none, or refers to what is not there)
            return
        if complaint is not None:
            raise ToolFault(f"invalid arguments: {bounded_words(complaint.message)}")

    async def run(self, arguments: str, context: ToolContext) -> ToolResult:
        """As :meth:`Tool.run`."""
        del context
        return ToolResult(await self._connection.call(self.name, _read(arguments)))


def full_name_of(server: str, tool: str) -> str:
    """``server__tool``, in the characters and the length that endpoints take for a function's name."""
    name = f"{server}{SEPARATOR}{re.sub('[^A-Za-z0-9_-]', '_', tool)}"
    if len(name) <= _NAME_CHARACTERS:
        return name
    mark = hashlib.sha256(tool.encode()).hexdigest()[:8]
    return f"{name[: _NAME_CHARACTERS - 9]}_{mark}"


def _read(arguments: str) -> dict[str, Any]:
    try:
        return read_object(arguments)
    except InvalidArguments as error:
        raise ToolFault(f"invalid arguments: {error}") from None


def _import_client() -> ModuleType:
    from server.tools import mcp_client

    return mcp_client


def _kinds(error: BaseException) -> list[str]:
    """The types of an exception, or of those in a group of them."""
    if isinstance(error, BaseExceptionGroup):
        return [kind for part in error.exceptions for kind in _kinds(part)]
    return [type(error).__qualname__]
