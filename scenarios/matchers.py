"""Matchers: does a decoded value look as the scenario says, and if not, where does it differ?

Pure. A plain value must be equal, a table is a subset (every field named must match, others are ignored), an
array must match item by item. A table whose keys are all matcher names (:data:`MATCHERS`) is a matcher; all
its conditions must hold.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from protocol.ids import is_ulid


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = _Absent()
"""What a missing field is compared as."""


class MatcherError(ValueError):
    """A matcher in the file is malformed."""


class Mismatch(msgspec.Struct, frozen=True):
    """One place where the value is not as expected."""

    path: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, got {self.actual}"


def show(value: Any, limit: int = 300) -> str:
    """Render a value for a report, cut after ``limit`` characters."""
    if value is ABSENT:
        return "nothing"
    text = msgspec.json.encode(value).decode() if not isinstance(value, bytes) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_time(value: Any) -> bool:
    return (
        isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", value) is not None
    )


def _is_text(pattern: str) -> Callable[[Any], bool]:
    compiled = re.compile(pattern)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


KINDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
    "present": lambda value: value is not ABSENT,
    "absent": lambda value: value is ABSENT,
    "nonempty": lambda value: value is not ABSENT and bool(value),
    "ulid": lambda value: isinstance(value, str) and is_ulid(value),
    "run_id": lambda value: isinstance(value, str) and value.startswith("run-") and is_ulid(value[4:]),
    "uuid": _is_text(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "sha256": _is_text(r"[0-9a-f]{64}"),
    "time": _is_time,
}
"""What ``is`` may say."""


def _check_is(value: Any, kind: Any, path: str) -> list[Mismatch]:
    if kind not in KINDS:
        raise MatcherError(f"{path}: is = {kind!r} is not one of {', '.join(KINDS)}")
    return [] if KINDS[kind](value) else [Mismatch(path, f"a value that is {kind}", show(value))]


def _check_regex(value: Any, pattern: Any, path: str) -> list[Mismatch]:
    if isinstance(value, str) and re.search(pattern, value):
        return []
    return [Mismatch(path, f"text matching /{pattern}/", show(value))]


def _check_range(value: Any, bound: Any, path: str, *, low: bool) -> list[Mismatch]:
    if _is_number(value) and (value >= bound if low else value <= bound):
        return []
    return [Mismatch(path, f"a number {'at least' if low else 'at most'} {bound}", show(value))]


def _check_one_of(value: Any, choices: Any, path: str) -> list[Mismatch]:
    if any(not compare(choice, value, path) for choice in choices):
        return []
    return [Mismatch(path, f"one of {show(choices)}", show(value))]


def _check_not(value: Any, unwanted: Any, path: str) -> list[Mismatch]:
    return (
        [Mismatch(path, f"anything but {show(unwanted)}", show(value))]
        if not compare(unwanted, value, path)
        else []
    )


def _check_contains(value: Any, wanted: Any, path: str) -> list[Mismatch]:
    found = (isinstance(value, str) and isinstance(wanted, str) and wanted in value) or (
        isinstance(value, list) and any(not compare(wanted, item, path) for item in value)
    )
    return [] if found else [Mismatch(path, f"something that contains {show(wanted)}", show(value))]


def _check_lacks(value: Any, unwanted: Any, path: str) -> list[Mismatch]:
    if isinstance(value, str | list) and _check_contains(value, unwanted, path):
        return []
    return [Mismatch(path, f"something without {show(unwanted)}", show(value))]


def _check_length(value: Any, length: Any, path: str) -> list[Mismatch]:
    if not isinstance(value, str | list | dict):
        return [Mismatch(path, "something that has a length", show(value))]
    return compare(length, len(value), f"{path} (length)")


def _check_sha256_of(value: Any, text: Any, path: str) -> list[Mismatch]:
    digest = hashlib.sha256(str(text).encode()).hexdigest()
    return [] if value == digest else [Mismatch(path, f"{digest} (sha256 of {show(text, 60)})", show(value))]


def _check_each(value: Any, wanted: Any, path: str) -> list[Mismatch]:
    if not isinstance(value, list):
        return [Mismatch(path, "an array", show(value))]
    return [bad for at, item in enumerate(value) for bad in compare(wanted, item, f"{path}[{at}]")]


def _check_equals(value: Any, wanted: Any, path: str) -> list[Mismatch]:
    same = type(value) is type(wanted) or (_is_number(value) and _is_number(wanted))
    return [] if same and value == wanted else [Mismatch(path, f"exactly {show(wanted)}", show(value))]


_Check = Callable[[Any, Any, str], list[Mismatch]]
MATCHERS: Final[Mapping[str, _Check]] = {
    "is": _check_is,
    "equals": _check_equals,
    "regex": _check_regex,
    "min": lambda value, bound, path: _check_range(value, bound, path, low=True),
    "max": lambda value, bound, path: _check_range(value, bound, path, low=False),
    "one_of": _check_one_of,
    "not": _check_not,
    "contains": _check_contains,
    "lacks": _check_lacks,
    "length": _check_length,
    "sha256_of": _check_sha256_of,
    "each": _check_each,
}
"""All matchers by name; FORMAT.md describes each."""


def compare(expected: Any, actual: Any, path: str = "$") -> list[Mismatch]:
    """Compare a decoded value with what a scenario expects; an empty list means that it matches.

    Raises:
        MatcherError: A table mixes matcher names and fields, or a matcher is malformed.
    """
    match expected:
        case dict() if expected and expected.keys() <= MATCHERS.keys():
            return [bad for name, wanted in expected.items() for bad in MATCHERS[name](actual, wanted, path)]
        case dict():
            return _compare_table(expected, actual, path)
        case list():
            return _compare_array(expected, actual, path)
        case _:
            return _check_equals(actual, expected, path)


def _compare_table(expected: dict[str, Any], actual: Any, path: str) -> list[Mismatch]:
    if mixed := sorted(expected.keys() & (MATCHERS.keys() - {"not", "is"})):
        raise MatcherError(
            f"{path}: {', '.join(mixed)} beside plain fields; use equals = {{…}} for such a field"
        )
    if not isinstance(actual, dict):
        return [Mismatch(path, "an object", show(actual))]
    return [
        bad
        for key, wanted in expected.items()
        for bad in compare(wanted, actual.get(key, ABSENT), f"{path}.{key}")
    ]


def _compare_array(expected: list[Any], actual: Any, path: str) -> list[Mismatch]:
    if not isinstance(actual, list):
        return [Mismatch(path, "an array", show(actual))]
    if len(expected) != len(actual):
        return [
            Mismatch(path, f"an array of {len(expected)}: {show(expected)}", f"{len(actual)}: {show(actual)}")
        ]
    return [
        bad
        for at, (wanted, item) in enumerate(zip(expected, actual, strict=True))
        for bad in compare(wanted, item, f"{path}[{at}]")
    ]
