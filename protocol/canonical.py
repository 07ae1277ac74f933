"""JSON in one form only: equal values are equal bytes, and so can be hashed and compared."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import orjson


def canonical_sha256(obj: Any) -> str:
    """The hex SHA-256 over the canonical JSON (sorted keys, no white space) of JSON types."""
    return hashlib.sha256(orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)).hexdigest()


def sorted_json(value: Any) -> Any:
    """JSON types with the keys of every object in order."""
    if isinstance(value, dict):
        return {key: sorted_json(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [sorted_json(item) for item in value]
    return value


def rfc3339(moment: datetime) -> str:
    """A time in UTC with six decimals, ``2026-01-02T03:04:05.000006Z``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
