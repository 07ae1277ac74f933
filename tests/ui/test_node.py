"""The browser client's tests that need no browser: its state, its requests, its connection."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from protocol import server_frames
from protocol.codes import CLOSES, ERRORS
from tests.foreign import outside

HERE = Path(__file__).parent
UI = HERE.parents[1] / "server" / "ui"


async def run_node(*arguments: str | Path) -> str:
    process = await asyncio.create_subprocess_exec(
        outside.node(), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


@pytest.mark.parametrize(
    "name", ["state.test.mjs", "connection.test.mjs", "outgoing.test.mjs", "text.test.mjs", "canvas.test.mjs"]
)
async def test_the_client_holds_its_own_rules(name: str) -> None:
    report = await run_node("--test", "--test-reporter=tap", HERE / name)
    assert re.search(r"^# fail 0$", report, re.MULTILINE), report
    assert not re.search(r"^# pass 0$", report, re.MULTILINE), report


async def test_the_clients_codes_are_the_servers() -> None:
    program = (
        "import(process.argv[1]).then(({CLOSES, ERRORS}) => console.log(JSON.stringify({CLOSES, ERRORS})))"
    )
    tables = json.loads(await run_node("--eval", program, (UI / "turnwire-codes.js").as_uri()))
    assert tables["ERRORS"] == {str(code): info.retryable for code, info in ERRORS.items()}
    assert tables["CLOSES"].keys() == {str(int(code)) for code in CLOSES}
    for code, advice in tables["CLOSES"].items():
        expected = CLOSES[next(known for known in CLOSES if int(known) == int(code))].client_should
        assert advice in _ADVICE[expected], f"{code}: {expected}"


_ADVICE = {
    "nothing": {"stop", "back-off"},
    "be fixed": {"stop"},
    "stop": {"stop"},
    "sign in again": {"sign-in"},
    "tell the user; retry later or take over": {"ask"},
    "reconnect at once": {"at-once"},
    "reconnect and resume": {"at-once"},
    "reconnect with back-off": {"back-off"},
    "reconnect with jitter": {"back-off"},
    "back off": {"back-off"},
}
"""What the server's table says, in the words of the client's."""


def test_the_clients_frames_are_the_servers() -> None:
    """Every conversation frame is declared in turnwire-frames.d.ts, with all its fields."""
    declared = (UI / "turnwire-frames.d.ts").read_text(encoding="utf-8")
    for frame in get_args(server_frames.AnyServerFrame):
        info = msgspec.inspect.type_info(frame)
        assert isinstance(info, msgspec.inspect.StructType)
        if str(info.tag).startswith("canvas_") or info.tag == "conversation_listed":
            continue
        assert f'"{info.tag}"' in declared, info.tag
        project_only = {"domain", "conversation_id", "project", "canvas_version", "conversations"}
        for field in info.fields:
            if field.encode_name not in project_only:
                assert re.search(rf"\b{field.encode_name}\??:", declared), f"{info.tag}.{field.encode_name}"
