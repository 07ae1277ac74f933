"""The HTTP side of the gate: uvicorn's protocol with the limits that it lacks.

uvicorn has no time limit before the first request, none for a half-sent later one, none for a client that
does not read its answer, and on httptools no limit on a request's head. This module knows bytes and time, not
routes.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
import orjson
import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope

    from server.metrics import Metrics

__all__ = ["HEAD_BYTES", "HttpLimits", "HttpProtocol", "HttpSide", "canned"]

HEAD_BYTES: Final = 32768
"""Largest head of a request, as sent; more is 431."""
HEAD_FIELDS: Final = 100
FIELD_BYTES: Final = 8000
"""Largest field of a WebSocket handshake: below the line limit of the library that reads it again."""
BODY_BYTES_PER_S: Final = 16384
"""A body that comes at this pace or faster is never too slow."""

_LOGGER: Final = logging.getLogger("turnwire.http")


class HttpLimits(Struct, frozen=True, kw_only=True):
    """Time limits, in seconds."""

    request_s: float
    """For a request's head; for its body beyond what the pace allows; for the rest of a body nobody reads."""
    keep_alive_s: int
    """How long an idle connection is kept."""
    stall_s: float
    """How long a client may take none of the bytes that wait for it."""


def canned(status: str, code: str, message: str) -> bytes:
    """A whole answer for what reaches no route; the connection is closed after it."""
    body = orjson.dumps({"success": False, "error": {"code": code, "message": message, "details": {}}})
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


_BAD: Final = canned("400 Bad Request", "invalid_request", "This is not a valid HTTP request.")
_SLOW: Final = canned("408 Request Timeout", "invalid_request", "The request was not complete in time.")
_LARGE: Final = canned("431 Request Header Fields Too Large", "too_large", "The request's head is too large.")


class Phase(Enum):
    """Whose turn it is on a connection."""

    HEAD = auto()
    """The client owes a request's head; so also before its first byte."""
    BODY = auto()
    """The client owes the rest of a body."""
    ANSWER = auto()
    """The server owes an answer."""
    REST = auto()
    """The answer is out; the rest of the body is still coming and is thrown away."""
    IDLE = auto()
    """Between two requests."""
    GONE = auto()
    """Closed, closing or upgraded: reading is over."""


class HttpProtocol(HttpToolsProtocol):
    """One connection while it speaks HTTP.

    - ``_phase`` is set by :meth:`_begin` alone.
    - The reading timer runs in HEAD, BODY and REST; IDLE has uvicorn's own, ANSWER none.
    - The writing timer runs while the transport's buffer is over its limit, and while the connection closes.
    """

    def __init__(self, side: HttpSide, connection: asyncio.Protocol) -> None:
        super().__init__(config=side.config, server_state=side.state, app_state={})
        self.logger = _LOGGER
        # What uvicorn makes when it sees an upgrade: the connection that waits behind this one.
        self.ws_protocol_class = cast("type[asyncio.Protocol]", lambda **_: connection)
        self._parser: Final[Any] = self.parser
        self._side: Final = side
        self._connection: Final = connection
        self._phase = Phase.HEAD
        self._since = self.loop.time()
        """When the phase began, loop time."""
        self._bytes = 0
        """Bytes received since then, or since the last request of the phase began."""
        self._head_bytes = 0
        self._head_fields = 0
        self._head_too_large = False
        self._owes_body = False
        """Whether the request that was begun last is not at its end."""
        self._may_upgrade = False
        self._upgraded = False
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._unsent = 0
        """Bytes in the transport's buffer when the writing timer was set."""

    # The transport's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self._side.arrived()
        self._begin(Phase.HEAD)

    def data_received(self, data: bytes) -> None:
        if self._phase is Phase.GONE:
            return
        self._unset_keepalive_if_required()
        if self._phase is Phase.IDLE:
            self._begin(Phase.HEAD)
        self._bytes += len(data)
        before = self.cycle
        rest = self._feed(data)
        if self._upgraded:
            if rest:
                self._connection.data_received(rest)
            return
        if self.cycle is not before:
            self._bytes = 0
            self._look()
        elif self._phase in {Phase.BODY, Phase.REST}:
            self._look()
        elif self._bytes > HEAD_BYTES and self._phase in {Phase.HEAD, Phase.ANSWER}:
            self.refuse(_LARGE)

    def _feed(self, data: bytes) -> bytes:
        """Give bytes to the parser; returns those behind an upgrade."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
                return data[upgrade.args[0] :]
            # Some other protocol, which we do not speak: answered as plain HTTP. The parser stops here.
            if self.cycle is not None:
                self.cycle.keep_alive = False
        except httptools.HttpParserError:
            self.refuse(_LARGE if self._head_too_large else _BAD)
        return b""

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None and self._phase is not Phase.GONE:
            self._writing.cancel()
            self._writing = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_timers()
        self._phase = Phase.GONE
        super().connection_lost(exc)
        self._side.left()

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = self._head_fields = 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url), 0)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4, 1)
        super().on_header(name, value)

    def _count(self, size: int, fields: int) -> None:
        self._head_bytes += size
        self._head_fields += fields
        if self._head_bytes > HEAD_BYTES or self._head_fields > HEAD_FIELDS:
            self._head_too_large = True
            raise ValueError("head too large")  # the parser stops, and data_received refuses

    def on_headers_complete(self) -> None:
        # Only a request that is alone on the wire and has no body can turn into a WebSocket.
        self._may_upgrade = (
            self._parser.get_method() == b"GET"
            and (self.cycle is None or self.cycle.response_complete)
            and all(len(name) + len(value) <= FIELD_BYTES for name, value in self.headers)
            and not any(
                name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
                for name, value in self.headers
            )
        )
        self._owes_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._owes_body = False
        super().on_message_complete()

    # uvicorn's own.

    def _should_upgrade(self) -> bool:
        return self._may_upgrade and super()._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        self._upgraded = True
        self._phase = Phase.GONE
        self._end_timers()
        super().handle_websocket_upgrade()
        self._side.left()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._look()

    def shutdown(self) -> None:
        super().shutdown()
        self._look()

    # Phases and timers.

    def _look(self) -> None:
        """Find the phase after something happened."""
        if self.transport.is_closing():
            phase = Phase.GONE
        elif self.cycle is None:
            phase = Phase.HEAD
        elif self.cycle.response_complete:
            phase = Phase.REST if self._owes_body else Phase.IDLE
        else:
            phase = Phase.BODY if self._owes_body else Phase.ANSWER
        if phase is not self._phase:
            self._begin(phase)

    def _begin(self, phase: Phase) -> None:
        self._phase = phase
        self._since = self.loop.time()
        self._bytes = 0
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if phase in {Phase.HEAD, Phase.BODY, Phase.REST}:
            self._reading = self.loop.call_later(self._side.limits.request_s, self._too_slow)
        elif phase is Phase.GONE:
            self._watch_writing()

    def _too_slow(self) -> None:
        """The reading timer: end the connection, unless the client is not to blame."""
        self._reading = None
        limit = self._side.limits.request_s
        if self._phase is Phase.BODY:
            left = self._since + limit + self._bytes / BODY_BYTES_PER_S - self.loop.time()
            if self.flow.read_paused:  # it is the application that does not read
                left = limit
            if left > 0:
                self._reading = self.loop.call_later(left, self._too_slow)
                return
        self._side.count_timeout()
        if self._phase is Phase.HEAD and self._bytes == 0:
            self.transport.abort()  # it never asked anything
        else:
            self.refuse(_SLOW)

    def refuse(self, answer: bytes) -> None:
        """Send a canned answer and close; only close when that would land within another answer."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and (self.pipeline or self.cycle.response_started or not self._owes_body):
            self.transport.abort()
        elif not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()
        self._begin(Phase.GONE)

    def _watch_writing(self) -> None:
        """Start the writing timer, or start it anew because bytes went out since."""
        if self._writing is not None:
            self._writing.cancel()
        self._unsent = self.transport.get_write_buffer_size()
        self._writing = self.loop.call_later(self._side.limits.stall_s, self._stalled)

    def _stalled(self) -> None:
        if 0 < self.transport.get_write_buffer_size() < self._unsent:
            self._watch_writing()
        else:
            self.transport.abort()

    def _end_timers(self) -> None:
        self._unset_keepalive_if_required()
        for timer in (self._reading, self._writing):
            if timer is not None:
                timer.cancel()
        self._reading = self._writing = None


class HttpSide:
    """What uvicorn's server would do for its HTTP protocols, without its socket, signals and lifespan."""

    def __init__(self, app: Any, limits: HttpLimits, metrics: Metrics | None = None) -> None:
        self._app: Final[ASGI3Application] = app
        self.limits: Final = limits
        self.config: Final = uvicorn.Config(
            self._run,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            ws="none",
            timeout_keep_alive=limits.keep_alive_s,
        )
        self.config.load()
        self.state: Final = ServerState()
        self._metrics: Final = metrics
        self._closing = False
        self._changed: Final = asyncio.Event()
        """Set whenever a connection has left."""

    @property
    def connections(self) -> set[HttpProtocol]:
        """Those that speak HTTP now; uvicorn's protocol adds and removes itself."""
        return cast("set[HttpProtocol]", self.state.connections)

    def arrived(self) -> None:
        """A connection has come."""
        if self._metrics is not None:
            self._metrics.connections.labels("http").inc()

    def left(self) -> None:
        """A connection has gone or been upgraded."""
        self._changed.set()
        if self._metrics is not None:
            self._metrics.connections.labels("http").dec()

    def count_timeout(self) -> None:
        """A client was too slow."""
        if self._metrics is not None:
            self._metrics.timed_out.inc()

    async def _run(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """The application as uvicorn sees it: that it is cut off at the end is no error to be logged."""
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._closing:
                raise

    async def close(self, grace_s: float) -> None:
        """Close the idle connections, let the busy ones finish within the grace, cut off the rest."""
        self._closing = True
        for protocol in tuple(self.connections):
            protocol.shutdown()
        try:
            async with asyncio.timeout(grace_s):
                await self._finished()
        except TimeoutError:
            for protocol in tuple(self.connections):
                protocol.transport.abort()
            await asyncio.sleep(0)  # connection_lost comes first: a disconnected task that ends is silent
            for task in tuple(self.state.tasks):
                task.cancel()
            await self._finished()

    async def _finished(self) -> None:
        while self.state.tasks or self.state.connections:
            if self.state.tasks:
                await asyncio.wait(self.state.tasks)
            else:
                self._changed.clear()
                await self._changed.wait()
