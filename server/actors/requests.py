"""Repeat-safe requests: when a request id that is known means the same again, and when it does not (ST4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.codes import ErrorCode
from protocol.errors import Fault

if TYPE_CHECKING:
    from storage.records import RequestKey, RequestRecord


def check_same(known: RequestKey | RequestRecord, key: RequestKey) -> None:
    """A repeat has the same kind and the same body.

    Raises:
        Fault: ``request_id_conflict``.
    """
    if known.kind != key.kind or known.body_sha256 != key.body_sha256:
        raise Fault(ErrorCode.REQUEST_ID_CONFLICT, "this request_id was used for another request")
