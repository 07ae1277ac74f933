"""The tools of this process, and running one of them within its limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import structlog

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import new_ulid
from protocol.strict import clean_text
from server.llm.base import ToolDefinition
from server.tools.base import Tool, ToolContext, ToolFault, ToolResult, bounded_words
from server.tools.builtin import BUILT_IN

if TYPE_CHECKING:
    from server.settings import Settings

log = structlog.get_logger(__name__)

OUTPUT_BYTES: Final = 65_536
"""The most that a model is told of one call, if the settings say nothing else."""

_FAULT_CHARACTERS: Final = 2000


class ToolSource(Protocol):
    """Where tools come from that are not there all the time."""

    def tools(self) -> Iterable[Tool]:
        """Those known now."""
        ...

    def get(self, name: str) -> Tool | None:
        """The tool of a name, if it is this source's."""
        ...


class Toolbox:
    """The tools there are, by name: some for good, some from a source, where they come and go."""

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        source: ToolSource | None = None,
        output_bytes: int = OUTPUT_BYTES,
    ) -> None:
        self._tools: dict[str, Tool] = {}
        self._source = source
        self._output_bytes = output_bytes
        for one in tools:
            self.add(one)

    def add(self, one: Tool) -> None:
        """Add a tool; raises ValueError for a name that is taken."""
        if one.name in self._tools:
            raise ValueError(f"there are two tools named {one.name}")
        self._tools[one.name] = one

    def get(self, name: str) -> Tool | None:
        """The tool of a name, if there is one."""
        found = self._tools.get(name)
        if found is None and self._source is not None:
            return self._source.get(name)
        return found

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All that are known now: the lasting ones first."""
        others = () if self._source is None else self._source.tools()
        return (*self._tools.values(), *(one for one in others if one.name not in self._tools))

    def definitions(
        self, allowed: Iterable[str] | Callable[[str], bool] = ("*",)
    ) -> tuple[ToolDefinition, ...]:
        """What a model is told of the tools that it may call.

        Args:
            allowed: Names and globs, or a predicate of a name.
        """
        is_allowed = allowed if callable(allowed) else _globs(tuple(allowed))
        return tuple(
            ToolDefinition(one.name, one.description, one.parameters)
            for one in self.tools
            if is_allowed(one.name)
        )

    async def execute(self, one: Tool, arguments: str, context: ToolContext) -> ToolResult:
        """As :func:`execute`, with the bound of the settings."""
        return await execute(one, arguments, context, output_bytes=self._output_bytes)


def _globs(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    return lambda name: any(fnmatchcase(name, pattern) for pattern in patterns)


async def execute(
    one: Tool, arguments: str, context: ToolContext, *, output_bytes: int = OUTPUT_BYTES
) -> ToolResult:
    """Run one call within its time limit and bound what it says; cancellation passes through.

    Raises:
        ToolFault: It failed, in any way, or took too long; in words for the model and the client.
    """
    result: ToolResult | None = None
    try:
        with anyio.move_on_after(one.timeout_s):
            result = await one.run(arguments, context)
        if result is None:
            raise ToolFault(f"{one.name} took longer than {one.timeout_s:g} s", ErrorCode.TOOL_TIMEOUT)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise _internal(one, context, "it cancelled itself") from None
    except Fault as fault:
        code = fault.code if isinstance(fault, ToolFault) else ErrorCode.TOOL_FAILED
        raise ToolFault(bounded_words(clean_text(fault.message), _FAULT_CHARACTERS), code) from None
    except Exception:  # noqa: BLE001 (a tool may raise anything)
        raise _internal(one, context, "an exception") from None
    return ToolResult(bounded(clean_text(result.content), output_bytes))


def _internal(one: Tool, context: ToolContext, what: str) -> ToolFault:
    """Log once, without content, and say no more than where to look."""
    correlation_id = new_ulid()
    log.exception(
        "tool failed",
        what=what,
        tool=one.name,
        session_id=context.session_id,
        run_id=context.run_id,
        tool_call_id=context.tool_call_id,
        correlation_id=correlation_id,
    )
    return ToolFault(f"{one.name} failed: internal error {correlation_id}")


def bounded(text: str, limit_bytes: int) -> str:
    """Cut a text at a character, with a note, so that it has at most ``limit_bytes`` as UTF-8.

    The note itself needs about a hundred bytes.
    """
    encoded = text.encode()
    if len(encoded) <= limit_bytes:
        return text
    note = f"\n[cut: the first part of {len(encoded)} bytes]"
    kept = max(0, limit_bytes - len(note.encode()))
    return encoded[:kept].decode(errors="ignore") + note


@asynccontextmanager
async def open_toolbox(settings: Settings) -> AsyncIterator[Toolbox]:
    """Open the built-in tools and those of MCP servers; leaving ends the servers.

    Never waits for an MCP server.

    Raises:
        SettingsError: MCP servers are configured and the extra `mcp` is not installed.
    """
    if not settings.mcp:
        yield Toolbox(BUILT_IN, output_bytes=settings.tool_output_bytes)
        return
    from server.tools.mcp import open_mcp_servers

    show_stderr = settings.log_level == "debug"
    async with open_mcp_servers(settings.mcp, show_stderr=show_stderr) as servers:
        yield Toolbox(BUILT_IN, source=servers, output_bytes=settings.tool_output_bytes)
