"""A connection from its handshake to its close: who calls, what it holds, what it says.

Knows sockets, the router and the registry; of a resource it knows only that there is an actor.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import anyio
import orjson
import structlog
from msgspec import UNSET, UnsetType
from websockets.exceptions import ConnectionClosed

from protocol.client_frames import Ack, Ping
from protocol.codec import FrameLimits, decode_client_frame, decode_project_frame
from protocol.codes import CloseCode, ErrorCode
from protocol.errors import BadFrame, Fault
from protocol.ids import new_ulid, utc_now
from protocol.server_frames import Pong, error_frame
from server.actors.holding import Held
from server.actors.kinds import Kind
from server.actors.project import Addressed
from server.rate import TokenBucket
from server.router import is_socket_path, parse_target

if TYPE_CHECKING:
    from websockets.http11 import Request, Response

    from protocol.client_frames import ClientFrame
    from server.access import Access, Principal
    from server.actors.attachment import Attachment
    from server.actors.base import Actor
    from server.actors.registry import Registry
    from server.metrics import Metrics
    from server.router import Route
    from server.settings import Settings
    from server.sockets import Socket

log = structlog.get_logger(__name__)

_REQUEST_ID_CHARACTERS: Final = 128
_SINGLE: Final = ("Host", "Origin", "Authorization")
"""Headers of a handshake that must not come twice: each reader could take another one."""


class Connections:
    """Serves all WebSocket connections of the process."""

    def __init__(self, settings: Settings, access: Access, registry: Registry, metrics: Metrics) -> None:
        self._settings: Final = settings
        self._access: Final = access
        self._registry: Final = registry
        self._metrics: Final = metrics
        self._by_principal: Counter[str] = Counter()
        self._limits: Final = FrameLimits(max_depth=settings.max_depth)

    def check_handshake(self, socket: Any, request: Request) -> Response | None:
        """Refuse what a browser need not be able to read: an unknown path, a foreign Origin (403)."""
        if not is_socket_path(request.path):
            return cast("Response", socket.respond(HTTPStatus.NOT_FOUND, "not a WebSocket resource\n"))
        if any(len(request.headers.get_all(name)) > 1 for name in _SINGLE):
            return cast("Response", socket.respond(HTTPStatus.BAD_REQUEST, "a header is repeated\n"))
        if not self._access.origin_allowed(request.headers.get("Origin"), request.headers.get("Host")):
            return cast("Response", socket.respond(HTTPStatus.FORBIDDEN, "foreign origin\n"))
        return None

    async def serve(self, socket: Socket) -> None:
        """Serve one connection to its end; never raises."""
        try:
            assert socket.request is not None
            route = parse_target(socket.request.path)
            principal = self._access.authenticate(socket.request.headers, route.query)
        except Fault as fault:
            _refuse(socket, fault)
            await self._close(socket)
            return
        self._by_principal[principal.name] += 1
        try:
            await self._attempt(socket, route, principal)
            await self._close(socket)
        finally:
            self._by_principal[principal.name] -= 1
            if not self._by_principal[principal.name]:
                del self._by_principal[principal.name]

    async def _attempt(self, socket: Socket, route: Route, principal: Principal) -> None:
        """Hold the resource as long as the client and the server want; what goes wrong is told before the
        close."""
        try:
            if self._by_principal[principal.name] > self._settings.max_connections_per_principal:
                raise Fault(ErrorCode.TOO_MANY_CONNECTIONS, "too many connections of this caller")
            await self._hold(socket, route, principal)
        except Fault as fault:
            _refuse(socket, fault)
        except ConnectionClosed:
            pass
        except Exception:
            correlation_id = new_ulid()
            log.exception("connection failed", correlation_id=correlation_id)
            _refuse(socket, Fault(ErrorCode.INTERNAL, details={"correlation_id": correlation_id}))

    async def _close(self, socket: Socket) -> None:
        await socket.finish()
        sent = socket.protocol.close_sent
        if sent is not None and not socket.protocol.close_rcvd_then_sent:
            self._metrics.closes.labels(str(int(sent.code))).inc()
            if sent.code == CloseCode.SLOW_CONSUMER:
                self._metrics.slow_closes.inc()

    async def _hold(self, socket: Socket, route: Route, principal: Principal) -> None:
        async with self._registry.use(route.resource_id, principal.name, kind=route.kind) as actor:
            socket.lost = partial(_detach, socket, actor)
            admitted = await actor.admit(socket, route.wish)
            if isinstance(admitted, Held):
                raise Fault(
                    ErrorCode.RESOURCE_BUSY,
                    details={"holder_since_ms": admitted.since_ms, "retry_after_ms": 1000},
                    retry_after_ms=1000,
                )
            timer = _expiry_timer(socket, principal)
            try:
                await self._read(socket, actor, admitted, _DECODERS[route.kind])
            finally:
                _detach(socket, actor)
                if timer is not None:
                    timer.cancel()

    async def _read(self, socket: Socket, actor: Actor, attachment: Attachment, decode: _Decode) -> None:
        loop = asyncio.get_running_loop()
        settings = self._settings
        bucket = TokenBucket(settings.rate_burst, settings.rate_per_s, loop.time())
        bad_in_a_row = 0
        with anyio.CancelScope() as socket.scope:
            while not socket.gone:
                message = await socket.recv()
                self._metrics.frames_received.inc()
                if isinstance(message, bytes):
                    socket.close_soon(CloseCode.UNSUPPORTED_DATA, "frames are text")
                    return
                try:
                    frame = decode(message.encode(), self._limits)
                except BadFrame as bad:
                    fault: Fault = bad
                    asked_by = _request_id_of(message)
                    self._metrics.bad_frames.inc()
                    bad_in_a_row += 1
                    wait_ms = bucket.take(loop.time())
                    if wait_ms:
                        fault = Fault(ErrorCode.RATE_LIMITED, retry_after_ms=wait_ms)
                    socket.tell(error_frame(fault, request_id=asked_by))
                    if bad_in_a_row >= settings.max_bad_frames:
                        socket.close_soon(CloseCode.BAD_RESOURCE, f"{bad_in_a_row} bad frames in a row")
                        return
                    continue
                bad_in_a_row = 0
                if isinstance(frame, Ack):
                    actor.acknowledge(attachment, frame.seq)
                else:
                    self._take(socket, actor, attachment, frame, bucket.take(loop.time()))

    @staticmethod
    def _take(
        socket: Socket, actor: Actor, attachment: Attachment, frame: ClientFrame | Addressed, wait_ms: int
    ) -> None:
        """Answer a frame of the connection itself, or hand one of the resource to its actor."""
        if wait_ms:
            actor.refuse(attachment, frame, Fault(ErrorCode.RATE_LIMITED, retry_after_ms=wait_ms))
        elif isinstance(frame, Ping):
            socket.tell(Pong(t=frame.t))
        else:
            actor.submit(attachment, frame)


def _from_conversation(data: bytes, limits: FrameLimits) -> ClientFrame:
    return decode_client_frame(data, limits=limits)


def _from_project(data: bytes, limits: FrameLimits) -> ClientFrame | Addressed:
    address, frame = decode_project_frame(data, limits=limits)
    return frame if address is None else Addressed(address, frame)


_Decode: TypeAlias = Callable[[bytes, FrameLimits], "ClientFrame | Addressed"]
_DECODERS: Final[Mapping[Kind, _Decode]] = {
    Kind.CONVERSATION: _from_conversation,
    Kind.PROJECT: _from_project,
}


def _detach(socket: Socket, actor: Actor) -> None:
    """The connection is over, or about to close: the resource is free from this turn on."""
    if socket.attachment is not None:
        actor.detach(socket.attachment)
        socket.attachment = None


def _request_id_of(message: str) -> str | UnsetType:
    """The request id of a frame that is otherwise bad, so that its sender knows which one it was."""
    try:
        request_id = orjson.loads(message)["request_id"]
    except (ValueError, TypeError, LookupError):
        return UNSET
    if isinstance(request_id, str) and 1 <= len(request_id) <= _REQUEST_ID_CHARACTERS:
        return request_id
    return UNSET


def _refuse(socket: Socket, fault: Fault) -> None:
    """Say why, then close with the code that the table gives."""
    if not socket.gone:
        socket.tell(error_frame(fault))
    socket.close_soon(fault.close_code or CloseCode.INTERNAL, fault.code.value)


def _expiry_timer(socket: Socket, principal: Principal) -> asyncio.TimerHandle | None:
    """Close with 4401 when the caller's token expires."""
    if principal.expires_at is None:
        return None
    left = max(0.0, (principal.expires_at - utc_now()).total_seconds())
    loop = asyncio.get_running_loop()
    return loop.call_later(left, socket.close_soon, CloseCode.UNAUTHENTICATED, "the token expired")
