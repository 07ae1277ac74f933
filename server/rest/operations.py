"""What operators and tools ask: health, readiness, metrics, and the documents about the interfaces."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from starlette.responses import Response

from protocol.codes import ErrorCode
from protocol.errors import Fault
from server.metrics import CONTENT_TYPE
from server.rest import schemas
from server.rest.context import Call, RestContext
from server.rest.declare import Ownership, Routes
from server.rest.envelope import JSON
from server.rest.schemas import NoBody, NoQuery

__all__ = ["ROUTES"]

ROUTES: Final = Routes()


@ROUTES.declare("GET", "/healthz", ownership=Ownership.PUBLIC, response=schemas.Health)
async def healthz(_call: Call[NoQuery, NoBody]) -> schemas.Health:
    """That the process answers."""
    return schemas.Health("ok")


@ROUTES.declare(
    "GET",
    "/readyz",
    ownership=Ownership.PUBLIC,
    response=schemas.Health,
    errors=(ErrorCode.STORAGE_UNAVAILABLE, ErrorCode.DRAINING),
)
async def readyz(call: Call[NoQuery, NoBody]) -> schemas.Health:
    """That the server can do its work: the store answers, and no shutdown has begun."""
    await (call.context.ready or _Ready(call.context))()
    return schemas.Health("ready")


class _Ready:
    """Asks the registry and the store."""

    def __init__(self, context: RestContext) -> None:
        self._context: Final = context

    async def __call__(self) -> None:
        if self._context.registry.draining:
            raise Fault(ErrorCode.DRAINING)
        # Any statement will do; nothing has this id.
        await self._context.store.sessions.find_request("readyz", "readyz")


@ROUTES.declare("GET", "/metrics", ownership=Ownership.PUBLIC, response=None, media="text/plain")
async def metrics(call: Call[NoQuery, NoBody]) -> Response:
    """Metrics for Prometheus."""
    return Response(call.context.metrics.render(), media_type=CONTENT_TYPE)


@ROUTES.declare("GET", "/openapi.json", ownership=Ownership.PUBLIC, response=None)
async def openapi_json(_call: Call[NoQuery, NoBody]) -> Response:
    """The OpenAPI document of the HTTP interface."""
    from server.rest.openapi import document_bytes  # it describes this module too

    return Response(document_bytes(), media_type=JSON)


@ROUTES.declare(
    "GET", "/asyncapi.json", ownership=Ownership.PUBLIC, response=None, errors=(ErrorCode.NOT_FOUND,)
)
async def asyncapi_json(_call: Call[NoQuery, NoBody]) -> Response:
    """The AsyncAPI document of the WebSocket protocol."""
    return Response(_asyncapi(), media_type=JSON)


@cache
def _asyncapi() -> bytes:
    return files("protocol").joinpath("asyncapi.json").read_bytes()
