"""Fixtures of real processes; a pytest plug-in named in the top conftest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.client import abort_all
from tests.harness.processes import ServerProcess, StubProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "scripts"

QUICK = {
    "llm_first_token_timeout_ms": 1500,
    "llm_gap_timeout_ms": 1500,
    "checkpoint_ms": 1000,
    "drain_grace_ms": 1500,
}
"""Settings of the tests' servers that make waiting short."""


@pytest.fixture(autouse=True)
async def clients() -> AsyncIterator[None]:
    """No client outlives its test."""
    yield
    await abort_all()


@pytest.fixture(scope="session")
def stub() -> Iterator[StubProcess]:
    """``turnwire stub-llm`` with the tests' scripts."""
    process = StubProcess(SCRIPTS).start()
    yield process
    process.close()


@pytest.fixture(scope="session")
def server(postgres: Callable[[], str], stub: StubProcess) -> Iterator[ServerProcess]:
    """One server for all tests that do not end it, its model behind the scripted endpoint."""
    process = ServerProcess(postgres(), stub.url, **QUICK).start()
    yield process
    process.close()


@pytest.fixture
def own_server(database_url: str, stub: StubProcess) -> Iterator[ServerProcess]:
    """A server of the test's own, which may kill it and start it again; not started yet."""
    process = ServerProcess(database_url, stub.url, **QUICK)
    yield process
    process.close()
