"""Cursors of keyset paging: opaque to clients, the last row's sort key within."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime

import msgspec

from protocol.canvas import CanvasId, EntityKind
from protocol.codes import ErrorCode
from protocol.errors import Fault


def to_cursor(at: datetime, key: str) -> str:
    """The cursor that continues after the row (``at``, ``key``)."""
    return base64.urlsafe_b64encode(msgspec.json.encode((at, key))).decode().rstrip("=")


def from_cursor(cursor: str | None) -> tuple[datetime | None, str | None]:
    """The row to continue after; two Nones without a cursor. Fault ``invalid_request`` for a foreign one."""
    if cursor is None:
        return None, None
    try:
        data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        at, key = msgspec.json.decode(data, type=tuple[datetime, str])
        if at.tzinfo is None or "\0" in key:
            raise ValueError("naive")
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise Fault(ErrorCode.INVALID_REQUEST, "this cursor is none of ours") from error
    return at, key


def to_canvas_cursor(kind: EntityKind, entity_id: str) -> str:
    """The cursor that continues a canvas after this node or edge; nodes come before edges."""
    return base64.urlsafe_b64encode(msgspec.json.encode((kind, entity_id))).decode().rstrip("=")


def from_canvas_cursor(cursor: str | None) -> tuple[EntityKind, str | None]:
    """What to continue after: a node's or an edge's id, None for the first. Fault ``invalid_request``."""
    if cursor is None:
        return EntityKind.NODE, None
    try:
        data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        return msgspec.json.decode(data, type=tuple[EntityKind, CanvasId])
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise Fault(ErrorCode.INVALID_REQUEST, "this cursor is none of ours") from error
