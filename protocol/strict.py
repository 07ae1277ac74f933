"""JSON as this protocol takes it: stricter than the standard in what it may hold, plain in what went wrong.

Refused are a byte order mark, bytes that are not UTF-8, nesting beyond a limit, lone surrogates, NUL
characters and numbers out of range (ER2); of a repeated key the last counts. It must not know any frame.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

from protocol.errors import BadFrame

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**64 - 1

_BOM: Final = b"\xef\xbb\xbf"
_BRACKETS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)
# What may be a NUL, a surrogate or a number out of range; what has none of these needs no closer look.
_SUSPECT: Final = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])|[0-9]{19}|[0-9][eE]")
_SURROGATE_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE_OR_NUL: Final = re.compile("[\ud800-\udfff\0]")


class _OutOfRange:
    """Stands for a number that cannot be kept, until the walk tells where it is."""

    __slots__ = ()


_OUT_OF_RANGE: Final = _OutOfRange()


def clean_text(text: str) -> str:
    """Make text from a model or a tool fit for the wire and the store (ER2).

    The halves of a surrogate pair are joined; what is left of lone surrogates and NULs becomes U+FFFD.
    """
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    if _LONE_OR_NUL.search(text) is None:
        return text
    joined = _SURROGATE_PAIR.sub(_join, text)
    return _LONE_OR_NUL.sub("\ufffd", joined)


def _join(pair: re.Match[str]) -> str:
    halves = pair.group()
    return chr(0x10000 + ((ord(halves[0]) - 0xD800) << 10) + (ord(halves[1]) - 0xDC00))


def is_plain(data: bytes, max_depth: int) -> bool:
    """Check what a struct decoder does not, at the price of a few scans.

    Returns:
        Whether nothing in it needs a closer look; if not, :func:`parse` gives it.

    Raises:
        BadFrame: A byte order mark, not UTF-8, or nested deeper than ``max_depth``.
    """
    if data.startswith(_BOM):
        raise BadFrame("JSON is malformed: a byte order mark (byte 0)")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise BadFrame(f"Not UTF-8 (byte {error.start})") from None
    if data.count(b"[") + data.count(b"{") > max_depth:
        _check_depth(data, max_depth)
    return _SUSPECT.search(data) is None


def parse(data: bytes, max_depth: int) -> Any:
    """Decode to dicts and lists, exactly and with every check.

    Raises:
        BadFrame: What is wrong, and the path where, like ``$.metadata.a[0]``.
    """
    is_plain(data, max_depth)
    try:
        value = json.loads(
            data, parse_int=_parse_int, parse_float=_parse_float, parse_constant=_refuse_constant
        )
    except ValueError as error:
        raise BadFrame(f"JSON is malformed: {error}") from None
    _check_value(value, "$")
    return value


def check_json(value: Any) -> None:
    """Check a value made in Python: JSON types only, no NUL, no lone surrogates, no number out of range.

    Raises:
        BadFrame: What is wrong, and where.
    """
    _check_value(value, "$")


def _check_depth(data: bytes, max_depth: int) -> None:
    depth = 0
    for match in _BRACKETS.finditer(data):
        token = match.group()
        if token in {b"[", b"{"}:
            depth += 1
            if depth > max_depth:
                raise BadFrame(f"Nested deeper than {max_depth} levels (byte {match.start()})")
        elif token in {b"]", b"}"}:
            depth -= 1


def _parse_int(digits: str) -> int | _OutOfRange:
    if len(digits) > 20:
        return _OUT_OF_RANGE
    value = int(digits)
    return value if INT_MIN <= value <= INT_MAX else _OUT_OF_RANGE


def _parse_float(digits: str) -> float | _OutOfRange:
    value = float(digits)
    return value if math.isfinite(value) else _OUT_OF_RANGE


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _check_value(value: Any, path: str) -> None:
    match value:
        case str():
            _check_text(value, path)
        case bool() | None:
            pass
        case int():
            if not INT_MIN <= value <= INT_MAX:
                raise BadFrame(f"Number out of range - at `{path}`", path.removeprefix("$."))
        case float():
            if not math.isfinite(value):
                raise BadFrame(f"Number out of range - at `{path}`", path.removeprefix("$."))
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise BadFrame(f"Expected `str` keys - at `{path}`", path.removeprefix("$."))
                _check_text(key, path, "key with ")
                _check_value(item, f"{path}.{key}")
        case list() | tuple():
            for index, item in enumerate(value):
                _check_value(item, f"{path}[{index}]")
        case _OutOfRange():
            raise BadFrame(f"Number out of range - at `{path}`", path.removeprefix("$."))
        case _:
            raise BadFrame(f"Not a JSON value - at `{path}`", path.removeprefix("$."))


def _check_text(text: str, path: str, prefix: str = "") -> None:
    found = _LONE_OR_NUL.search(text)
    if found is not None:
        what = "NUL character" if found.group() == "\0" else "lone surrogate"
        raise BadFrame(f"Invalid {prefix}{what} - at `{path}`", path.removeprefix("$."))
