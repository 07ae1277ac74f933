"""The application on a real store, real actors and a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from protocol.ids import new_ulid
from server.access import Access
from server.actors.registry import Registry
from server.app import make_services
from server.gate import serve_gate
from server.llm.catalog import open_catalog
from server.metrics import Metrics
from server.rest.app import RestContext, create_app
from server.settings import Settings
from server.tools.registry import open_toolbox
from storage.store import Store, open_store

TOKENS = "token-a alice\ntoken-b bob\n"


class Rest:
    """A running application and its parts."""

    def __init__(self, client: httpx.AsyncClient, store: Store, registry: Registry, metrics: Metrics) -> None:
        self.client = client
        self.store = store
        self.registry = registry
        self.metrics = metrics

    async def call(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """One call; status and decoded body."""
        answer = await self.client.request(method, path, **options)
        return answer.status_code, answer.json()

    async def data(self, method: str, path: str, **options: Any) -> Any:
        """The data of a call that must work."""
        status, body = await self.call(method, path, **options)
        assert (status, body["success"]) == (200, True), body
        return body["data"]

    async def new_session(self, **fields: Any) -> str:
        return (await self.data("POST", "/api/sessions", json=fields))["sessionId"]


@asynccontextmanager
async def serving(database_url: str, **settings: Any) -> AsyncIterator[Rest]:
    """Open everything that REST needs, and close it."""
    chosen = Settings(database_url=database_url, **settings)
    metrics, node_id = Metrics(), new_ulid()
    access = Access.from_settings(chosen)
    async with (
        open_store(database_url, node_id=node_id) as store,
        open_catalog(chosen) as catalog,
        open_toolbox(chosen) as toolbox,
    ):
        services = make_services(chosen, store, catalog, toolbox, metrics)
        async with Registry(services).running() as registry:
            app = create_app(RestContext(chosen, access, store, registry, catalog, metrics))
            async with serve_gate(
                app=app, handler=_no_socket, host="127.0.0.1", port=0, settings=chosen, metrics=metrics
            ) as gate:
                url = f"http://127.0.0.1:{gate.address[1]}"
                async with httpx.AsyncClient(base_url=url, timeout=10, trust_env=False) as client:
                    yield Rest(client, store, registry, metrics)


async def _no_socket(_connection: Any) -> None:
    """These tests have no WebSocket."""


@pytest.fixture
def tokens_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    return path


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
