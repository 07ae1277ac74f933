"""Node's ``ws`` as a foreign client whose sockets are destroyed at random moments in mid-stream."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.foreign import outside

if TYPE_CHECKING:
    from tests.harness.processes import ServerProcess

HERE = Path(__file__).parent
ROUNDS = int(os.environ.get("TURNWIRE_TEST_ROUNDS", "25"))


async def test_CN6_a_foreign_client_loses_and_doubles_nothing(server: ServerProcess) -> None:
    program = outside.node()
    arguments = ["--http", server.url, "--model", "script/foreign", "--rounds", str(ROUNDS)]
    process = await asyncio.create_subprocess_exec(
        program,
        HERE / "converse.mjs",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TURNWIRE_TEST_NODE_MODULES": outside.node_modules()},
    )
    output, errors = await process.communicate()
    assert output, errors.decode()
    summary = json.loads(output)
    assert summary["problems"] == []
    assert process.returncode == 0, errors.decode()
    assert summary["rounds"] == ROUNDS
    assert summary["drops"] >= ROUNDS
    assert summary["replayed"] > 0
