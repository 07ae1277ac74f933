"""JSON merge patch (RFC 7396), and how large ``data`` is. Pure."""

from __future__ import annotations

from typing import Any

import msgspec


def merged(target: Any, patch: Any) -> Any:
    """What ``patch`` makes of ``target``; neither is changed.

    An object is merged member by member, null takes a member away, anything else replaces the target whole.
    As deep as the deeper of both; who decoded them has bounded that.
    """
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def json_bytes(data: dict[str, Any]) -> int:
    """The length of an object as JSON without white space, in bytes of UTF-8."""
    return len(msgspec.json.encode(data))
