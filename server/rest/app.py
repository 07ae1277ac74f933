"""Puts the routes together into the application that the gate serves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from protocol.codes import ErrorCode
from protocol.errors import Fault
from server.rest import operations, pages, projects, sessions, tickets, tool_calls
from server.rest.context import RestContext
from server.rest.declare import Operation
from server.rest.envelope import failure, internal
from server.rest.guard import Guard
from server.rest.serving import serve_path

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["OPERATIONS", "RestContext", "create_app"]

OPERATIONS: Final[tuple[Operation, ...]] = (
    *operations.ROUTES,
    *sessions.ROUTES,
    *projects.ROUTES,
    *tool_calls.ROUTES,
    *tickets.ROUTES,
    *pages.ROUTES,
)
"""Every route of the server."""

_CORS_METHODS: Final = ("GET", "POST", "PATCH", "DELETE")
_CORS_HEADERS: Final = ("Authorization", "Content-Type", "Last-Event-ID")
_PREFLIGHT_AGE_S: Final = 600


def create_app(context: RestContext) -> Starlette:
    """The HTTP application of one server."""
    app = Starlette(
        routes=_routes(context, OPERATIONS),
        middleware=_middleware(context),
        exception_handlers={HTTPException: _framework_failure, Exception: _bug},
    )
    app.router.redirect_slashes = False
    return app


def _routes(context: RestContext, operations: Iterable[Operation]) -> list[Route]:
    by_path: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_path[operation.path].append(operation)
    return [serve_path(context, path, declared) for path, declared in by_path.items()]


def _middleware(context: RestContext) -> list[Middleware]:
    guard = Middleware(Guard, access=context.access)
    origins = context.settings.allowed_origins
    if not origins:
        return [guard]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=[origin.rstrip("/") for origin in origins],
        allow_methods=_CORS_METHODS,
        allow_headers=_CORS_HEADERS,
        max_age=_PREFLIGHT_AGE_S,
    )
    return [guard, cors]


async def _framework_failure(_request: Request, error: Exception) -> Response:
    """The framework's own refusals, in our envelope."""
    assert isinstance(error, HTTPException)
    code = ErrorCode.METHOD_NOT_ALLOWED if error.status_code == 405 else ErrorCode.NOT_FOUND
    message = "There is nothing at this address." if code is ErrorCode.NOT_FOUND else ""
    return failure(Fault(code, message), error.headers)


async def _bug(_request: Request, error: Exception) -> Response:
    """What gets past a route; nothing should."""
    return internal(error, "outside of a route")
