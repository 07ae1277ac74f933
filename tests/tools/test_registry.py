"""Running tools within their limits, and the toolbox."""

from __future__ import annotations

import asyncio
import json

import anyio
import pytest
import structlog
from msgspec import Struct

from protocol.codes import ErrorCode
from protocol.errors import Fault
from server.settings import Settings
from server.tools.base import Policy, Tool, ToolContext, ToolFault, tool
from server.tools.builtin import BUILT_IN
from server.tools.registry import Toolbox, bounded, execute, open_toolbox
from tests.tools.support import context


class How(Struct, frozen=True):
    """What to do."""

    how: str = ""


@tool(policy=Policy.IMMEDIATE, timeout_s=0.05)
async def behave(arguments: How, context: ToolContext) -> str:
    """Behave."""
    match arguments.how:
        case "sleep":
            await anyio.sleep_forever()
        case "stubborn":
            for _ in range(3):
                try:
                    await anyio.sleep_forever()
                except asyncio.CancelledError:
                    continue
        case "raise":
            raise LookupError("a secret")
        case "group":
            raise ExceptionGroup("a secret", [ValueError("a secret")])
        case "timeout":
            raise TimeoutError("its own")
        case "cancel":
            raise asyncio.CancelledError
        case "fault":
            raise Fault(ErrorCode.STORAGE_UNAVAILABLE, "the database is away")
        case "say":
            raise ToolFault("no such thing")
        case "hostile":
            return "a\0b\ud800"
        case "much":
            return "ü" * 100_000
    return "good"


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("sleep", ErrorCode.TOOL_TIMEOUT, "behave took longer than 0.05 s"),
        ("say", ErrorCode.TOOL_FAILED, "no such thing"),
        ("fault", ErrorCode.TOOL_FAILED, "the database is away"),
        ("raise", ErrorCode.TOOL_FAILED, "behave failed: internal error "),
        ("group", ErrorCode.TOOL_FAILED, "behave failed: internal error "),
        ("timeout", ErrorCode.TOOL_FAILED, "behave failed: internal error "),
        ("cancel", ErrorCode.TOOL_FAILED, "behave failed: internal error "),
    ],
)
async def test_whatever_goes_wrong_is_a_fault_without_internals(
    how: str, code: ErrorCode, message: str
) -> None:
    with structlog.testing.capture_logs() as logs, pytest.raises(ToolFault) as caught:
        await execute(behave, json.dumps({"how": how}), context())
    assert caught.value.code is code
    assert caught.value.message.startswith(message)
    assert "secret" not in caught.value.message
    internal = "internal error" in message
    assert len(logs) == internal
    if internal:
        assert logs[0]["correlation_id"] in caught.value.message
        assert logs[0]["tool"] == "behave"


async def test_what_goes_well_is_clean_and_bounded() -> None:
    assert (await execute(behave, "{}", context())).content == "good"
    assert (await execute(behave, '{"how": "hostile"}', context())).content == "a\ufffdb\ufffd"
    much = (await execute(behave, '{"how": "much"}', context(), output_bytes=1025)).content
    assert len(much.encode()) <= 1025
    assert much.startswith("üüü")
    assert much.endswith("\n[cut: the first part of 200000 bytes]")


def test_a_text_is_cut_at_a_character() -> None:
    for limit in range(60, 120):
        text = bounded("a" + "😀" * 100, limit)
        assert len(text.encode()) <= limit
        assert "\ufffd" not in text
    assert bounded("ü" * 30, 60) == "ü" * 30


async def test_ST3_cancellation_passes_through() -> None:
    with anyio.move_on_after(0.01) as scope:
        await execute(_forever, "{}", context())
    assert scope.cancelled_caught


async def test_a_tool_that_ignores_cancellation_once_is_ended_all_the_same() -> None:
    with anyio.fail_after(5):
        await execute(behave, '{"how": "stubborn"}', context())


@tool(policy=Policy.IMMEDIATE, timeout_s=60)
async def _forever(arguments: How, context: ToolContext) -> str:
    """Never end."""
    await anyio.sleep_forever()
    return ""


async def test_the_toolbox_has_the_built_in_tools_and_offers_what_is_allowed() -> None:
    async with open_toolbox(Settings(tool_output_bytes=2048)) as toolbox:
        assert toolbox.tools == BUILT_IN
        assert toolbox.get("search") is BUILT_IN[0]
        assert toolbox.get("nothing") is None
        assert [one.name for one in toolbox.definitions(["s*", "current_time"])] == ["search", "current_time"]
        assert [one.name for one in toolbox.definitions(lambda name: name == "ask_user")] == ["ask_user"]
        assert len(toolbox.definitions()) == len(BUILT_IN)
        result = await toolbox.execute(behave, '{"how": "much"}', context())
        assert len(result.content.encode()) <= 2048


def test_a_name_is_taken_once() -> None:
    toolbox = Toolbox([behave])
    with pytest.raises(ValueError, match="two tools named behave"):
        toolbox.add(behave)


def test_a_source_does_not_hide_a_lasting_tool() -> None:
    class Source:
        def tools(self) -> list[Tool]:
            return [behave, _forever]

        def get(self, name: str) -> Tool | None:
            return {"behave": None, "_forever": _forever}.get(name)

    toolbox = Toolbox([behave], source=Source())
    assert toolbox.tools == (behave, _forever)
    assert toolbox.get("behave") is behave
    assert toolbox.get("_forever") is _forever
