"""Tools of MCP servers: real ones, over stdio and streamable HTTP, one of which nobody here wrote."""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import pytest

from server.settings import McpServer, Settings, SettingsError
from server.tools.base import Policy, Tool, ToolFault
from server.tools.mcp import Pace, full_name_of, open_mcp_servers
from server.tools.registry import Toolbox, execute, open_toolbox
from tests.tools.support import context

COMMAND = (sys.executable, "-m", "tests.tools.mcp_server")
PACE = Pace(first_s=0.02, most_s=0.2, patience_s=30)
HURRIED = Pace(first_s=0.02, most_s=0.2, patience_s=0.05)


@asynccontextmanager
async def toolbox(pace: Pace = PACE, **servers: McpServer) -> AsyncIterator[Toolbox]:
    async with open_mcp_servers(servers, pace=pace) as source:
        yield Toolbox(source=source)


async def call(tools: Toolbox, name: str, /, **arguments: Any) -> str:
    tool = found(tools, name)
    return (await execute(tool, json.dumps(arguments), context())).content


def found(tools: Toolbox, name: str) -> Tool:
    tool = tools.get(name)
    assert tool is not None
    return tool


@contextmanager
def serving(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Our test server over HTTP; whether it is ready yet is for the client to find out."""
    process = subprocess.Popen([*COMMAND, str(port)], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def test_tools_over_stdio_are_offered_and_called_with_the_policies_of_the_settings() -> None:
    server = McpServer(
        command=COMMAND, tools={"add": "immediate", "s*": "immediate"}, env={"OWN": "here"}, expires_s=60
    )
    async with toolbox(test=server) as tools:
        assert await call(tools, "test__add", a=2, b=3) == "5"
        add, fail = found(tools, "test__add"), found(tools, "test__fail")
        assert (add.policy, fail.policy) == (Policy.IMMEDIATE, Policy.CONFIRM)
        assert found(tools, "test__structured").policy is Policy.IMMEDIATE
        assert add.expires_s == 60
        (definition,) = tools.definitions(["test__add"])
        assert definition.description == "Add two numbers."
        assert set(definition.parameters["properties"]) == {"a", "b"}
        assert json.loads(await call(tools, "test__structured", word="x")) == {"word": "x"}
        assert await call(tools, "test__variable", name="OWN") == "here"
        with pytest.raises(ToolFault, match="invalid arguments: 'x' is not of type 'integer'"):
            add.check('{"a": "x", "b": 1}')
        with pytest.raises(ToolFault, match="a JSON object"):
            add.check("[]")
        with pytest.raises(ToolFault, match="has no such tool"):
            await execute(found_later(tools, "test__add"), "{}", context())
        assert tools.get("test__nothing") is None
        assert tools.get("other__add") is None


def found_later(tools: Toolbox, name: str) -> Tool:
    """The same tool as it would be if its server had taken it away meanwhile."""
    tool: Any = found(tools, name)
    return type(tool)(tool._connection, "test__gone", tool.remote)


async def test_secrets_of_our_environment_do_not_reach_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hush")
    async with toolbox(test=McpServer(command=COMMAND)) as tools:
        assert await call(tools, "test__variable", name="OPENAI_API_KEY") == "(not set)"


async def test_a_tool_that_fails_is_a_fault_and_other_content_is_named() -> None:
    async with toolbox(test=McpServer(command=COMMAND)) as tools:
        with pytest.raises(ToolFault) as caught:
            await call(tools, "test__fail")
        assert "secret" not in caught.value.message
        text = await call(tools, "test__hostile")
        assert text.startswith("before\ufffdafter")
        assert len(text.encode()) <= 65_536
        odd = [one.name for one in tools.tools if one.name.startswith("test__odd")]
        assert len(odd[0]) == 64
        assert await call(tools, odd[0]) == "odd"


async def test_a_call_that_takes_too_long_ends_and_the_connection_goes_on() -> None:
    async with toolbox(test=McpServer(command=COMMAND, timeout_ms=200)) as tools:
        await found(tools, "test__add").run('{"a": 1, "b": 1}', context())
        with pytest.raises(ToolFault) as caught:
            await call(tools, "test__slow")
        assert caught.value.code == "tool_timeout"
        assert await call(tools, "test__add", a=1, b=1) == "2"


async def test_many_calls_at_once_get_their_own_answers() -> None:
    async with toolbox(test=McpServer(command=COMMAND)) as tools:
        answers: dict[int, str] = {}

        async def one(number: int) -> None:
            answers[number] = await call(tools, "test__add", a=number, b=1)

        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(one, number)
        assert answers == {number: str(number + 1) for number in range(50)}


async def test_a_server_that_dies_fails_the_calls_under_way_and_is_started_again() -> None:
    async with toolbox(test=McpServer(command=COMMAND)) as tools:
        await call(tools, "test__add", a=1, b=1)
        for _ in range(2):
            faults: list[str] = []

            async def hang(faults: list[str] = faults) -> None:
                with pytest.raises(ToolFault) as caught:
                    await call(tools, "test__slow")
                faults.append(caught.value.message)

            async with anyio.create_task_group() as group:
                group.start_soon(hang)
                await anyio.wait_all_tasks_blocked()
                with pytest.raises(ToolFault, match="was lost during the call"):
                    await call(tools, "test__crash")
            assert "was lost during the call" in faults[0]
            assert [one.name for one in tools.tools], "offered while it is away"
            assert await call(tools, "test__add", a=2, b=2) == "4"


@pytest.mark.parametrize(
    "server",
    [
        McpServer(command=("/nowhere/at/all",)),
        McpServer(command=(sys.executable, "-c", "raise SystemExit(1)")),
        McpServer(command=(sys.executable, "-c", "import time; time.sleep(60)"), connect_timeout_ms=50),
        McpServer(command=(sys.executable, "-c", "print('no JSON')")),
        McpServer(url="http://127.0.0.1:9/mcp"),
    ],
    ids=["missing", "exits", "silent", "talks nonsense", "unreachable"],
)
async def test_a_server_that_is_not_there_neither_blocks_the_start_nor_hides_why(server: McpServer) -> None:
    with anyio.fail_after(20):
        began = time.monotonic()
        async with toolbox(HURRIED, away=server) as tools:
            assert time.monotonic() - began < 1
            assert tools.tools == ()
            assert tools.definitions() == ()
            with pytest.raises(ToolFault, match="the MCP server away is away; try again later"):
                await call(tools, "away__anything")
            assert found(tools, "away__anything").policy is Policy.CONFIRM
            with pytest.raises(ToolFault, match="is away"):
                await call(tools, "away__anything")


async def test_tools_over_streamable_http_survive_the_servers_restart() -> None:
    port = free_port()
    server = McpServer(url=f"http://127.0.0.1:{port}/mcp", headers={"X-Own": "here"})
    async with toolbox(http=server) as tools:
        with serving(port):
            assert await call(tools, "http__add", a=2, b=3) == "5"
            assert await call(tools, "http__header", name="x-own") == "here"
            assert found(tools, "http__add").policy is Policy.CONFIRM
        with pytest.raises(ToolFault):
            await call(tools, "http__add", a=2, b=3)
        with serving(port):
            assert await call(tools, "http__add", a=2, b=4) == "6"


async def test_an_mcp_server_that_nobody_here_wrote_offers_its_tools() -> None:
    command = (sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC")
    settings = Settings(mcp={"time": McpServer(command=command, policy="immediate")})
    async with open_toolbox(settings) as tools:
        with anyio.fail_after(30):
            while not tools.definitions(["time__*"]):
                try:
                    await call(tools, "time__get_current_time", timezone="UTC")
                except ToolFault as fault:
                    assert "is away" in fault.message  # noqa: PT017
        assert {one.name for one in tools.definitions(["time__*"])} >= {
            "time__get_current_time",
            "time__convert_time",
        }
        told = json.loads(await call(tools, "time__get_current_time", timezone="Asia/Tokyo"))
        assert told["timezone"] == "Asia/Tokyo"
        assert found(tools, "search").name == "search"


async def test_leaving_ends_a_server_that_was_started() -> None:
    async with toolbox(test=McpServer(command=COMMAND)) as tools:
        await call(tools, "test__add", a=1, b=1)
        assert any("tests.tools.mcp_server" in line for line in child_commands())
    assert not any("tests.tools.mcp_server" in line for line in child_commands())


def test_leaving_while_a_server_is_being_started_leaves_nothing_behind() -> None:
    server = McpServer(command=("cat", "/nowhere/at/all"))  # ends at once, so that there are many starts
    pace = Pace(first_s=0.002, most_s=0.002)

    async def leave_after(seconds: float) -> None:
        async with toolbox(pace, one=server, two=server, three=server):
            await anyio.sleep(seconds)  # no wait for anything: another moment to leave at

    for moment in range(20):
        anyio.run(leave_after, moment * 0.006)
        gc.collect()  # whatever was left open is a warning now, and so an error
    assert not any("/nowhere/at/all" in line for line in child_commands())


def child_commands() -> list[str]:
    """The command lines of this process's children."""
    listed = subprocess.run(["ps", "-A", "-o", "ppid=,args="], capture_output=True, text=True, check=True)
    lines = (line.split(maxsplit=1) for line in listed.stdout.splitlines())
    return [line[1] for line in lines if line[0] == str(os.getpid())]


def test_names_are_what_endpoints_take() -> None:
    assert full_name_of("time", "get.current time") == "time__get_current_time"
    long = [full_name_of("a", "x" * 100 + end) for end in "ab"]
    assert [len(name) for name in long] == [64, 64]
    assert long[0] != long[1]


def test_the_sdk_is_imported_only_when_a_server_is_configured() -> None:
    program = (
        "import anyio, sys\n"
        "from server.settings import Settings\n"
        "from server.tools.registry import open_toolbox\n"
        "async def main():\n"
        "    async with open_toolbox(Settings()): pass\n"
        "anyio.run(main)\n"
        "assert not {'mcp', 'mcp_types'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


async def test_without_the_extra_a_configured_server_is_refused_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(SettingsError, match=r"turnwire\[mcp\]"):
        async with open_mcp_servers({"a": McpServer(command=("x",))}):
            pass
