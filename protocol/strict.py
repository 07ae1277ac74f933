"""JSON as this protocol takes it: stricter than the standard in what it may hold, plain in what went wrong.

Refused are a byte order mark, bytes that are not UTF-8, nesting beyond a limit, lone surrogates, NUL
characters and numbers out of range (ER2); of a repeated key the last counts. It must not know any frame.
"""

from __future__ import annotations

import json
import re
from math import inf, isfinite
from typing import Any, Final, NoReturn

import msgspec
import orjson

from protocol.errors import BadFrame

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**64 - 1

_MAX_ERROR_TEXT: Final = 300
_BOM: Final = b"\xef\xbb\xbf"
# A string (closed or not, so that each byte is looked at once) or a bracket.
_BRACKETS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)
# What may be a NUL, a surrogate or a number out of range; what has none of these needs no closer look.
# Within a value a number stands after one of these characters, so that ids in strings are no suspects; a
# pattern that begins with a set of characters is what `re` searches for fast.
_SUSPECT_ESCAPE: Final = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_SUSPECT_NUMBER: Final = re.compile(rb"[\[:,\s-](?:[0-9]{19}|[0-9]+(?:\.[0-9]*)?[eE])")
_NUMBER_STARTS: Final = tuple(b"%c" % byte for byte in b"-0123456789")
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
_SURROGATE_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE_OR_NUL: Final = re.compile("[\ud800-\udfff\0]")
_AT: Final = re.compile(r" - at `\$\.?([^`]*)`$")
_NAMED: Final = re.compile(r"(?:unknown|required) field `([^`]*)`")


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
    if b"\\u" in data and _SUSPECT_ESCAPE.search(data) is not None:
        return False
    return not data.startswith(_NUMBER_STARTS) and _SUSPECT_NUMBER.search(data) is None


def parse(data: bytes, max_depth: int) -> Any:
    """Decode to dicts and lists, exactly and with every check.

    Raises:
        BadFrame: What is wrong, and where it is, like ``metadata.a[0]``.
    """
    try:
        if is_plain(data, max_depth):
            return orjson.loads(data)
        # Given text, not bytes: from bytes the json module would guess an encoding.
        value = json.loads(
            data.decode(),
            parse_int=_parse_int if _LONG_NUMBER.search(data) else None,
            parse_constant=_refuse_constant,
        )
    except ValueError as error:
        raise BadFrame(f"JSON is malformed: {error}") from None
    check_json(value, max_depth)
    return value


def check_json(value: Any, max_depth: int) -> None:
    """Check that a value is JSON: its types only, no NUL, no lone surrogate, no number out of range.

    Raises:
        BadFrame: What is wrong, and where it is.
    """
    found = _problem(value, max_depth)
    if found is not None:
        what, path = found
        where = "".join(reversed(path))
        raise BadFrame(f"{what} - at `${where}`", where.removeprefix(".") or None)


def bad_frame(error: msgspec.MsgspecError) -> BadFrame:
    """A struct decoder's complaint as a fault that names the field."""
    text = str(error)
    at = _AT.search(text)
    named = _NAMED.search(text)
    path = ".".join(part for part in (at and at[1], named and named[1]) if part)
    if len(text) > _MAX_ERROR_TEXT:
        text = f"{text[: _MAX_ERROR_TEXT // 2]}…{text[-_MAX_ERROR_TEXT // 2 :]}"
    return BadFrame(text, path[:_MAX_ERROR_TEXT] or None)


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


def _parse_int(digits: str) -> int | float:
    """Never make an integer of a million digits; infinity is found by the walk, which knows where it is."""
    return int(digits) if len(digits) <= 20 else inf


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _problem(value: Any, levels: int) -> tuple[str, list[str]] | None:
    """What is wrong in a value, and the parts of its path from the inside out."""
    match value:
        case str():
            return _text_problem(value)
        case None | True | False:
            return None
        case int():
            return None if INT_MIN <= value <= INT_MAX else ("Number out of range", [])
        case float():
            return None if isfinite(value) else ("Number out of range", [])
        case dict() | list() | tuple() if levels == 0:
            return "Nested too deeply", []
        case dict():
            return _object_problem(value, levels - 1)
        case list() | tuple():
            for index, item in enumerate(value):
                if (found := _problem(item, levels - 1)) is not None:
                    found[1].append(f"[{index}]")
                    return found
            return None
        case _:
            return f"Not a JSON value, a `{type(value).__name__}`", []


def _object_problem(value: dict[Any, Any], levels: int) -> tuple[str, list[str]] | None:
    for key, item in value.items():
        if not isinstance(key, str):
            return f"Expected `str` keys, got `{type(key).__name__}`", []
        if (found := _text_problem(key)) is not None:
            return f"{found[0]} in a key", []
        if (found := _problem(item, levels)) is not None:
            found[1].append(f".{key}")
            return found
    return None


def _text_problem(text: str) -> tuple[str, list[str]] | None:
    found = _LONE_OR_NUL.search(text)
    if found is None:
        return None
    return ("NUL character" if found.group() == "\0" else "Lone surrogate"), []
