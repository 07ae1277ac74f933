"""The gate: one listening socket for HTTP and WebSocket.

Every connection begins as HTTP, on uvicorn's protocol (:mod:`server.gate_http`), and becomes a plain
``websockets`` connection when the client asks for an upgrade; from then on nothing lies between the socket
and its connection object. The gate bounds how many connections there are, how long they may take, and how
much the kernel buffers for each. It knows neither routes nor resources.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed, NegotiationError
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from protocol.codes import CloseCode
from server.gate_http import HttpLimits, HttpProtocol, HttpSide, canned
from server.logs import get_logger

if TYPE_CHECKING:
    import ssl as ssl_module

    from server.metrics import Metrics
    from server.settings import Settings

__all__ = ["SUBPROTOCOL", "Gate", "serve_gate"]

SUBPROTOCOL: Final = Subprotocol("turnwire.v1")

Handler = Callable[[Any], Awaitable[None]]
ProcessRequest = Callable[[Any, Request], Awaitable[Response | None] | Response | None]

_QUEUE_FRAMES: Final = 64
"""Received frames that wait for the connection's reader before reading from the socket pauses."""
_BACKLOG: Final = 1024
_REFUSALS: Final = 256
"""Refused connections that are kept for a moment so that they can read why; beyond, they are dropped."""
_REFUSAL_S: Final = 1.0
_OTHER_DESCRIPTORS: Final = 128
"""Descriptors kept for everything that is no client."""
_FULL: Final = canned("503 Service Unavailable", "overloaded", "The server has too many connections.")
_LIBRARY_LOGGER: Final = logging.getLogger("turnwire.websocket")

_log = get_logger("gate")


class Gate:
    """The open gate; made by :func:`serve_gate`."""

    def __init__(self, http: HttpSide, limit: int, metrics: Metrics | None) -> None:
        self.http: Final = http
        self.websockets: Final[set[ServerConnection]] = set()
        """Every upgraded connection that is not lost yet; those in their opening handshake too."""
        self.refused = 0
        """Connections refused because there were too many."""
        self.close_s: float | None = None
        """How long leaving may take, seconds, for requests and then for sockets; if unset, the settings
        say."""
        self.limit: Final = limit
        """Connections in all; more are refused."""
        self._metrics: Final = metrics
        self._refusals: Final[set[_Refusal]] = set()
        self._server: Server
        """Set once, by :func:`serve_gate`, before the first connection can come."""
        self._address: tuple[str, int] = ("", 0)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on."""
        return self._address

    @property
    def connections(self) -> set[ServerConnection]:
        """The WebSocket connections that are open: opening handshake done, closing handshake not begun."""
        return self._server.connections

    @property
    def accepting(self) -> bool:
        """Whether new connections are let in."""
        return self._server.is_serving()

    def stop_accepting(self) -> None:
        """Close the listening socket; handshakes that come on a kept-alive connection get 503. Idempotent."""
        self._server.server.close()

    def opened(self, server: Server, address: tuple[str, int]) -> None:
        """Take the server that listens; called once."""
        self._server, self._address = server, address

    def admit(self, connection: asyncio.Protocol, transport: asyncio.Transport) -> None:
        """Give a new connection to the HTTP side, or refuse it."""
        if len(self.http.connections) + len(self.websockets) < self.limit:
            protocol: asyncio.Protocol = HttpProtocol(self.http, connection)
        elif len(self._refusals) < _REFUSALS:
            self._count_refusal()
            protocol = _Refusal(self._refusals)
        else:
            self._count_refusal()
            transport.abort()
            return
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    def upgraded(self, connection: ServerConnection) -> None:
        """A connection has become a WebSocket."""
        self.websockets.add(connection)
        if self._metrics is not None:
            self._metrics.connections.labels("websocket").inc()

    def lost(self, connection: ServerConnection) -> None:
        """A WebSocket's transport is gone."""
        self.websockets.discard(connection)
        if self._metrics is not None:
            self._metrics.connections.labels("websocket").dec()

    def _count_refusal(self) -> None:
        self.refused += 1
        if self._metrics is not None:
            self._metrics.refused.inc()


class _HttpFirst(ServerConnection):
    """A connection that speaks HTTP until it is upgraded; mixed in before the class that the caller gave."""

    _gate: Gate
    """Set on the class made for one gate."""
    _accepted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not self._accepted:
            self._accepted = True
            self._gate.admit(self, cast("asyncio.Transport", transport))
        else:
            self._gate.upgraded(self)
            super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._gate.websockets:  # a refused one was aborted before it was anything
            self._gate.lost(self)
            super().connection_lost(exc)


class _Refusal(asyncio.Protocol):
    """Says 503, then reads on for a moment, so that the answer is not lost in a reset."""

    def __init__(self, refusals: set[_Refusal]) -> None:
        self._refusals: Final = refusals
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._refusals.add(self)
        peer = cast("asyncio.Transport", transport)
        peer.write(_FULL)
        if peer.can_write_eof():
            peer.write_eof()
        self._timer = asyncio.get_running_loop().call_later(_REFUSAL_S, peer.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._refusals.discard(self)
        if self._timer is not None:
            self._timer.cancel()


@asynccontextmanager
async def serve_gate(
    *,
    app: Any,
    handler: Handler,
    host: str,
    port: int,
    settings: Settings,
    process_request: ProcessRequest | None = None,
    connection_class: type[ServerConnection] = ServerConnection,
    metrics: Metrics | None = None,
    ssl: ssl_module.SSLContext | None = None,
) -> AsyncIterator[Gate]:
    """Listen, and give the open gate; leaving closes it in order.

    On leaving: no new connections, idle HTTP connections closed, busy requests finished within
    ``close_timeout_ms``, WebSocket connections that are still there closed with 1012. Telling the sockets
    before, and waiting for completions, is the caller's.

    Args:
        app: The ASGI application for everything that is no WebSocket; it must not raise.
        handler: Runs one WebSocket connection; may let ``ConnectionClosed`` through.
        host: An address or a name; one socket is opened, for the first address of the name.
        port: 0 takes a free one.
        process_request: As ``websockets`` has it: refuses a handshake by an HTTP answer.
        connection_class: What connections are; its callbacks run only after the upgrade.
        ssl: Serve TLS.

    Raises:
        OSError: The address cannot be listened on.
    """
    stall_s = settings.heartbeat_timeout_ms / 1000
    limits = HttpLimits(
        request_s=settings.http_request_timeout_s, keep_alive_s=settings.http_keep_alive_s, stall_s=stall_s
    )
    gate = Gate(HttpSide(app, limits, metrics), _affordable(settings.max_connections), metrics)
    listener = await _listen(host, port, settings.send_buffer_bytes)
    close_s = settings.close_timeout_ms / 1000
    server = serve(
        _quiet(handler),
        sock=listener,
        backlog=_BACKLOG,
        ssl=ssl,
        create_connection=cast(
            "type[ServerConnection]", type("GateConnection", (_HttpFirst, connection_class), {"_gate": gate})
        ),
        process_request=process_request,
        select_subprotocol=_select_subprotocol,
        compression=None,
        server_header=None,
        open_timeout=settings.http_request_timeout_s,
        ping_interval=settings.heartbeat_ms / 1000,
        ping_timeout=settings.heartbeat_timeout_ms / 1000,
        close_timeout=close_s,
        max_size=settings.max_frame_bytes,
        max_queue=_QUEUE_FRAMES,
        logger=_LIBRARY_LOGGER,
        start_serving=False,
    )
    await server
    gate.opened(server, listener.getsockname()[:2])
    await server.start_serving()
    try:
        yield gate
    finally:
        gate.stop_accepting()
        grace_s = close_s if gate.close_s is None else gate.close_s
        await gate.http.close(grace_s)
        server.close(code=CloseCode.RESTARTING, reason="restarting")
        await _wait_closed(server, grace_s if gate.close_s is not None else close_s + 1)


def _quiet(handler: Handler) -> Handler:
    """A handler that ends without a word when its client is gone."""

    async def run(connection: Any) -> None:
        try:
            await handler(connection)
        except ConnectionClosed:
            pass

    return run


def _select_subprotocol(_connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Ours if it is offered, none if nothing is; only others is a refusal (400)."""
    if not offered:
        return None
    if SUBPROTOCOL in offered:
        return SUBPROTOCOL
    raise NegotiationError(f"the subprotocol here is {SUBPROTOCOL}")


def _affordable(connections: int) -> int:
    """How many connections the process has descriptors for; its soft limit is raised if need be.

    A refusal that says 503 is better than running out of descriptors, of which the store needs some too.
    """
    wanted = connections + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = raised
    except (ValueError, OSError):
        pass  # some systems allow less than they say
    affordable = min(connections, max(1, soft - _OTHER_DESCRIPTORS))
    if affordable < connections:
        _log.warning("too few descriptors for max_connections", allowed=affordable, wanted=connections)
    return affordable


async def _listen(host: str, port: int, send_buffer_bytes: int) -> socket.socket:
    """Open the listening socket; accepted ones inherit its options.

    TCP_NODELAY too: asyncio sets it only on sockets that were made for TCP by name.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, address = found[0]
    listener = socket.create_server(cast("tuple[str, int]", address[:2]), family=family, backlog=_BACKLOG)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


async def _wait_closed(server: Server, limit_s: float) -> None:
    """Wait for the connections' handlers; those that do not end in time are cancelled."""
    try:
        async with asyncio.timeout(limit_s):
            await server.wait_closed()
    except TimeoutError:
        for task in tuple(server.handler_tasks):
            task.cancel()
        await server.wait_closed()
