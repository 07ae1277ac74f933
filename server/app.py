"""The server: opens everything bottom up, serves until it is told to stop, and closes top down.

Storage, models, actors, then the gate; on SIGTERM or SIGINT the other way round, with a grace for what runs
(CN10).
"""

from __future__ import annotations

import gc
import random
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from protocol.ids import new_ulid
from server.access import Access
from server.actors.attachment import Flusher
from server.actors.base import Services
from server.actors.outbox import Budget
from server.actors.registry import Registry
from server.connection import Connections
from server.gate import serve_gate
from server.llm.catalog import open_catalog
from server.metrics import Metrics
from server.rest.app import RestContext, create_app
from server.sockets import Socket
from storage.embedded import EmbeddedPostgres
from storage.migrate import upgrade
from storage.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.gate import Gate
    from server.settings import Settings

log = structlog.get_logger(__name__)

_CLOSING_S: Final = 1.0
"""How long the closing handshakes at a shutdown are waited for, and how far apart their batches may lie."""
_RECONNECT_AFTER_MS: Final = 1000


async def run_server(
    settings: Settings,
    *,
    ready: Callable[[str], None] | None = None,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        ready: Told the address of the page once everything answers.
        progress: Told, in words for people, what a slow start is doing.
    """
    progress = progress or (lambda _text: None)
    async with AsyncExitStack() as stack:
        signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT))
        server = Server(settings)
        await server.open(stack, progress)
        gc.collect()
        gc.freeze()
        log.info("ready", address=server.address)
        if ready is not None:
            ready(server.address)
        async for _signal in signals:
            break
        log.info("draining")
        await server.drain()
    log.info("stopped")


class Server:
    """Everything of one process, open."""

    def __init__(self, settings: Settings) -> None:
        self._settings: Final = settings
        self._metrics: Final = Metrics()
        self._registry: Registry
        self._gate: Gate

    @property
    def address(self) -> str:
        """Where the page is."""
        host, port = self._gate.address
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}"

    async def open(self, stack: AsyncExitStack, progress: Callable[[str], None]) -> None:
        """Open storage, models, actors and the gate; the stack closes them in the opposite order."""
        settings, metrics = self._settings, self._metrics
        access = Access.from_settings(settings)
        dsn = settings.database_url
        if dsn is None:
            dsn = await stack.enter_async_context(EmbeddedPostgres.open(settings.state_dir, progress))
        await upgrade(dsn)
        store = await stack.enter_async_context(
            open_store(
                dsn,
                node_id=new_ulid(),
                pool_size=settings.database_pool,
                command_timeout_s=settings.database_timeout_ms / 1000,
                checkpoint_s=settings.checkpoint_ms * 0.6 / 1000,
            )
        )
        catalog = await stack.enter_async_context(open_catalog(settings))
        services = Services(
            settings, store, catalog, metrics, Flusher(metrics), Budget(settings.outbox_total_bytes)
        )
        self._registry = await stack.enter_async_context(Registry(services).running())
        connections = Connections(settings, access, self._registry, metrics)
        context = RestContext(settings, access, store, self._registry, catalog, metrics)
        self._gate = await stack.enter_async_context(
            serve_gate(
                app=create_app(context),
                handler=connections.serve,
                host=settings.host,
                port=settings.port,
                settings=settings,
                process_request=connections.check_handshake,
                connection_class=Socket,
                metrics=metrics,
            )
        )
        if store.node is not None:
            await store.node.announce(self.address)

    async def drain(self) -> None:
        """Stop accepting, tell everybody, let completions finish within the grace, interrupt the rest, close
        (CN10)."""
        registry, gate = self._registry, self._gate
        gate.stop_accepting()
        registry.drain(_RECONNECT_AFTER_MS + random.randrange(_RECONNECT_AFTER_MS))
        await registry.wait_quiet(self._settings.drain_grace_ms / 1000)
        await registry.finish_all(jitter_s=min(_CLOSING_S, len(registry.live) * 0.002))
        with anyio.move_on_after(_CLOSING_S):
            while gate.websockets:  # noqa: ASYNC110 - many connections, no one event
                await anyio.sleep(0.01)
