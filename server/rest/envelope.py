"""How answers are written: the envelope of success, the envelope of failure, and the headers of both."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Final

import msgspec
from starlette.responses import Response

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import new_ulid
from server.logs import get_logger

__all__ = ["JSON", "failure", "internal", "success"]

JSON: Final = "application/json"
_NEVER_STORED: Final = {"cache-control": "no-store"}
_encoder: Final = msgspec.json.Encoder(decimal_format="number")
_log = get_logger("rest")


def success(data: Any) -> Response:
    """What a call that worked answers."""
    content = _encoder.encode({"success": True, "data": data})
    return Response(content, media_type=JSON, headers=_NEVER_STORED)


def failure(fault: Fault, headers: Mapping[str, str] | None = None) -> Response:
    """What a call that failed answers; the status is the one of the code's row in the table."""
    details = {_camel(key): value for key, value in fault.details.items()}
    fields = {**_NEVER_STORED, **(headers or {})}
    if fault.retry_after_ms is not None:
        details["retryAfterMs"] = fault.retry_after_ms
        fields["retry-after"] = str(max(1, ceil(fault.retry_after_ms / 1000)))
    if fault.code is ErrorCode.UNAUTHENTICATED:
        fields["www-authenticate"] = "Bearer"
    error = {"code": fault.code.value, "message": fault.message, "details": details}
    content = _encoder.encode({"success": False, "error": error})
    return Response(content, status_code=fault.http_status, media_type=JSON, headers=fields)


def internal(error: Exception, route: str) -> Response:
    """What a bug answers: a correlation id that is in the log too, and nothing else."""
    correlation_id = new_ulid()
    _log.error("request failed", route=route, correlation_id=correlation_id, exc_info=error)
    return failure(Fault(ErrorCode.INTERNAL, details={"correlation_id": correlation_id}))


def _camel(key: str) -> str:
    first, *others = key.split("_")
    return first + "".join(part.title() for part in others)
