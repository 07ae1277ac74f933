"""Runs a declared route: authenticates, decodes, calls the handler, writes the answer.

The one place where exceptions become answers; nothing gets past it to the framework.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from protocol.codes import ErrorCode
from protocol.errors import BadFrame, Fault
from protocol.ids import is_ulid
from protocol.strict import bad_frame, is_plain, parse
from server.access import LOCAL
from server.rest.context import Call, RestContext
from server.rest.declare import Operation, Ownership
from server.rest.envelope import failure, internal, success
from server.rest.schemas import NoBody, NoQuery

__all__ = ["serve_path"]

_LONGEST_ID: Final = 128
_NOT_FOUND: Final = "There is no such {}."
"""The same words for every id, so that another's is answered like one that is not there."""


def serve_path(context: RestContext, path: str, operations: Sequence[Operation]) -> Route:
    """One route of the framework for all methods of a path."""
    by_method = {operation.method: operation for operation in operations}

    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await _timed(context, by_method[method], request)

    return Route(path, endpoint, methods=list(by_method))


async def _timed(context: RestContext, operation: Operation, request: Request) -> Response:
    started = time.perf_counter()
    response = await _answer(context, operation, request)
    context.metrics.requests.labels(operation.path, str(response.status_code)).inc()
    context.metrics.request_seconds.labels(operation.path).observe(time.perf_counter() - started)
    return response


async def _answer(context: RestContext, operation: Operation, request: Request) -> Response:
    try:
        result = await operation.handler(await _call(context, operation, request))
    except ClientDisconnect:
        return Response(status_code=400)  # nobody reads it
    except Fault as fault:
        if fault.code is ErrorCode.NOT_FOUND and operation.ownership.parameter is not None:
            fault = Fault(ErrorCode.NOT_FOUND, _NOT_FOUND.format(operation.ownership.value))
        return failure(fault)
    except Exception as error:  # noqa: BLE001 - the one place where bugs end
        return internal(error, f"{operation.method} {operation.path}")
    return result if isinstance(result, Response) else success(result)


async def _call(context: RestContext, operation: Operation, request: Request) -> Call[Any, Any]:
    """Authenticate and decode; in this order, so that a stranger learns nothing about what is valid."""
    principal = LOCAL
    if operation.ownership is not Ownership.PUBLIC:
        principal = context.access.authenticate(request.headers, {})
    path: Mapping[str, str] = request.path_params
    if operation.ownership is Ownership.SESSION:
        _check_id(path["sessionId"])
    elif operation.ownership is Ownership.PROJECT and not is_ulid(path["projectId"]):
        raise Fault(ErrorCode.NOT_FOUND)
    query = NoQuery() if operation.query is NoQuery else _query(request, operation.query)
    body: Struct = NoBody()
    if operation.has_body:
        limit = operation.max_body_bytes or context.settings.max_frame_bytes
        data = await _read_body(request, limit)
        body = _decode(data, operation.body, context.settings.max_depth)
    return Call(context, principal, request, path, query, body)


def _check_id(session_id: str) -> None:
    """Refuse what cannot be an id; those of the older schema need not be ULIDs."""
    if not is_ulid(session_id) and (len(session_id) > _LONGEST_ID or not session_id.isprintable()):
        raise Fault(ErrorCode.NOT_FOUND)


def _query(request: Request, wanted: type[Struct]) -> Struct:
    """The parameters that a route knows; of a repeated one the last counts, others are ignored."""
    try:
        found = msgspec.convert(dict(request.query_params), wanted, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(bad_frame(error)) from error
    for name in wanted.__struct_fields__:
        value = getattr(found, name)
        if isinstance(value, str) and not value.isprintable():
            raise Fault(
                ErrorCode.INVALID_REQUEST, f"Unprintable characters in `{name}`", details={"field": name}
            )
    return found


async def _read_body(request: Request, limit: int) -> bytes:
    """The whole body.

    Raises:
        Fault: ``too_large``, before more than the limit is in memory.
        ClientDisconnect: The client left before its end.
    """
    announced = request.headers.get("content-length", "")
    too_large = announced.isdecimal() and int(announced) > limit
    body = bytearray()
    if not too_large:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                too_large = True
                break
    if too_large:
        message = f"The body is larger than {limit} bytes."
        raise Fault(ErrorCode.TOO_LARGE, message, details={"limit_bytes": limit})
    return bytes(body)


def _decode(data: bytes, wanted: type[Struct], max_depth: int) -> Struct:
    """Decode a body as strictly as a frame; an empty one is an empty object."""
    data = data or b"{}"
    try:
        if is_plain(data, max_depth):
            return msgspec.json.decode(data, type=wanted)
        return msgspec.convert(parse(data, max_depth), wanted)
    except msgspec.MsgspecError as error:
        raise _invalid(bad_frame(error)) from error
    except BadFrame as error:
        raise _invalid(error) from error


def _invalid(error: BadFrame) -> Fault:
    """The same complaint as REST gives it."""
    return Fault(ErrorCode.INVALID_REQUEST, error.message, details=error.details)
