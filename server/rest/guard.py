"""Looks at every HTTP request before any route does.

Refuses names that are not ours (DNS rebinding) and changes that a foreign page asks for; adds the headers
that every answer has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import Headers, MutableHeaders

from protocol.codes import ErrorCode
from protocol.errors import Fault
from server.rest.envelope import failure

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from server.access import Access

__all__ = ["Guard"]

_HARMLESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app: Final = app
        self._access: Final = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # lifespan is not used; websockets never come here
            return
        headers = Headers(scope=scope)
        host, origin = headers.get("host"), headers.get("origin")

        async def send_with_headers(message: Message) -> Any:
            if message["type"] == "http.response.start":
                fields = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    fields.setdefault(name, value)
            await send(message)

        allowed = (
            self._access.host_allowed(host)
            if scope["method"] in _HARMLESS
            else self._access.origin_allowed(origin, host)
        )
        if allowed:
            await self._app(scope, receive, send_with_headers)
        else:
            refusal = failure(Fault(ErrorCode.FORBIDDEN_ORIGIN))
            await refusal(scope, receive, send_with_headers)
