"""All scenario files against a really started server with the scripted endpoint, restarts included.

They run side by side once for the module; each has a test of its own that says how it went.
"""

from __future__ import annotations

import io
import json
import signal
import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import anyio
import pytest
from rich.console import Console

import scenarios
from scenarios.format import read_scenarios
from scenarios.runner import run_scenarios
from tests.harness.processes import StubProcess
from tests.scenarios.supervisor import Supervised

_HERE = Path(scenarios.__file__).parent
_IDS = [scenario.id for scenario in read_scenarios([_HERE])]
_START_S = 60.0
_SETTINGS = {
    "TURNWIRE_LLM_FIRST_TOKEN_TIMEOUT_MS": "8000",
    "TURNWIRE_LLM_GAP_TIMEOUT_MS": "1500",
    "TURNWIRE_HEARTBEAT_MS": "1500",
    "TURNWIRE_HEARTBEAT_TIMEOUT_MS": "1500",
    "TURNWIRE_DRAIN_GRACE_MS": "3000",
}

pytestmark = pytest.mark.timeout(300)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_ready(url: str, server: Supervised) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=1) as answer:
                if answer.status == 200:
                    return
        except OSError:
            if time.monotonic() > deadline:
                pytest.fail(f"the server did not start:\n{server.log.read_text()[-3000:]}")
        time.sleep(0.05)


@pytest.fixture(scope="module")
def results(postgres: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, ET.Element]:
    """Every scenario's case of the JUnit report."""
    folder = tmp_path_factory.mktemp("suite")
    stub, server = StubProcess(_HERE).start(), Supervised(folder)
    try:
        port = _free_port()
        env = {
            "TURNWIRE_PORT": str(port),
            "DATABASE_URL": postgres(),
            "OPENAI_API_KEY": "unused",
            **_SETTINGS,
        }
        env |= {"OPENAI_BASE_URL": f"{stub.url.removesuffix('/v1')}/v1", "TURNWIRE_STATE_DIR": str(folder)}
        (folder / "server.json").write_text(json.dumps(env))
        server.start()
        _wait_ready(f"http://127.0.0.1:{port}", server)
        anyio.run(_run_all, f"ws://127.0.0.1:{port}", server.restart_command, folder / "junit.xml")
    finally:
        server.end(signal.SIGTERM)
        stub.close()
    return {str(case.get("name")): case for case in ET.parse(folder / "junit.xml").iter("testcase")}


async def _run_all(url: str, restart_command: list[str], junit: Path) -> None:
    await run_scenarios(
        [_HERE],
        url=url,
        jobs=8,
        patience=2.0,
        junit=junit,
        restart_command=restart_command,
        console=Console(file=io.StringIO()),
    )


@pytest.mark.parametrize("scenario", _IDS)
def test_the_server_passes(scenario: str, results: dict[str, ET.Element]) -> None:
    case = results[scenario]
    failure, skipped = case.find("failure"), case.find("skipped")
    assert failure is None, failure.text
    assert skipped is None, skipped.get("message")
