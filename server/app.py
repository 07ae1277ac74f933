"""The server: opens everything bottom up, serves until it is told to stop, and closes top down.

Storage, models, actors, then the gate; on SIGTERM or SIGINT the other way round, with a grace for what runs
(CN10).
"""

from __future__ import annotations

import gc
import signal
from contextlib import AsyncExitStack, suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from protocol.ids import new_ulid
from server.access import Access
from server.actors.attachment import Flusher
from server.actors.base import Services
from server.actors.outbox import Budget
from server.actors.registry import Registry
from server.agents import resolve_agent
from server.connection import Connections
from server.gate import serve_gate
from server.llm.catalog import open_catalog
from server.metrics import Metrics
from server.rest.app import RestContext, create_app
from server.sockets import Socket
from server.tools.registry import open_toolbox
from storage.embedded import EmbeddedPostgres
from storage.errors import StorageUnavailable
from storage.migrate import upgrade
from storage.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskStatus

    from server.gate import Gate
    from server.llm.catalog import Catalog
    from server.settings import Settings
    from server.tools.registry import Toolbox
    from storage.store import Store

log = structlog.get_logger(__name__)

_CLOSING_S: Final = 0.5
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
    async with anyio.create_task_group() as group:
        told = anyio.Event()
        server = Server(settings)

        def signalled() -> None:
            if not server.opened:
                group.cancel_scope.cancel()
            elif told.is_set():
                server.hurry()
            told.set()

        await group.start(_listen_for_the_end, signalled)
        async with AsyncExitStack() as stack:
            await server.open(stack, progress or (lambda _text: None))
            gc.collect()
            gc.freeze()
            log.info("ready", address=server.address)
            if ready is not None:
                ready(server.address)
            await told.wait()
            log.info("draining", grace_ms=settings.drain_grace_ms, hint="a second signal ends the grace")
            await server.drain()
        group.cancel_scope.cancel()
    log.info("stopped")


async def _listen_for_the_end(
    signalled: Callable[[], None], *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Say when a signal came that ends the server."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _signal in signals:
            signalled()


def make_services(
    settings: Settings, store: Store, catalog: Catalog, toolbox: Toolbox, metrics: Metrics
) -> Services:
    """What actors need, put together."""
    return Services(
        settings,
        store,
        catalog,
        metrics,
        Flusher(metrics),
        Budget(settings.outbox_total_bytes),
        toolbox,
        lru_cache(maxsize=256)(partial(resolve_agent, settings)),
    )


class Server:
    """Everything of one process, open."""

    def __init__(self, settings: Settings) -> None:
        self._settings: Final = settings
        self._metrics: Final = Metrics()
        self._registry: Registry
        self._gate: Gate
        self._grace: Final = anyio.CancelScope()
        self.opened = False
        """Whether it serves; a start that is told to end before is given up."""

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
        toolbox = await stack.enter_async_context(open_toolbox(settings))
        services = make_services(settings, store, catalog, toolbox, metrics)
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
            with suppress(StorageUnavailable):  # it is said when the database is back
                await store.node.announce(self.address)
        self.opened = True

    def hurry(self) -> None:
        """End the grace of a drain: what still runs becomes interrupted now."""
        self._grace.cancel()

    async def drain(self) -> None:
        """Stop accepting, tell everybody, let completions finish within the grace, interrupt the rest, close
        (CN10)."""
        registry, gate = self._registry, self._gate
        gate.stop_accepting()
        gate.close_s = _CLOSING_S
        registry.drain(_RECONNECT_AFTER_MS)
        with self._grace:
            await registry.wait_quiet(self._settings.drain_grace_ms / 1000)
        await registry.finish_all(jitter_s=min(_CLOSING_S, len(registry.live) * 0.002))
        with anyio.move_on_after(_CLOSING_S):
            while gate.websockets:  # noqa: ASYNC110 - many connections, no one event
                await anyio.sleep(0.01)
        for connection in tuple(gate.websockets):
            connection.transport.abort()
