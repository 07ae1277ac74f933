"""Matchers: what matches, and how a mismatch reads."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from scenarios.matchers import KINDS, MATCHERS, MatcherError, compare

_ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
_SHA = hashlib.sha256("äöü".encode()).hexdigest()

_TABLE: list[tuple[Any, Any, bool]] = [
    (1, 1, True),
    (1, 1.0, True),
    (1, True, False),
    (True, True, True),
    ("1", 1, False),
    ({"a": 1}, {"a": 1, "b": 2}, True),
    ({"a": 1}, {}, False),
    ({"a": 1}, [1], False),
    ([1, {"is": "string"}], [1, "x"], True),
    ([1], [1, 2], False),
    ([], [], True),
    ([1], {"0": 1}, False),
    ({"equals": {"a": 1}}, {"a": 1, "b": 2}, False),
    ({"equals": {"a": 1}}, {"a": 1}, True),
    ({"not": 5}, 6, True),
    ({"not": 5}, 5, False),
    ({"one_of": [1, {"regex": "^x"}]}, "xy", True),
    ({"one_of": [1, 2]}, 3, False),
    ({"regex": "b+"}, "abba", True),
    ({"regex": "b+"}, 5, False),
    ({"contains": "b"}, "abc", True),
    ({"contains": {"id": 2}}, [{"id": 1}, {"id": 2, "x": 0}], True),
    ({"contains": 3}, [1, 2], False),
    ({"contains": 3}, 3, False),
    ({"lacks": "b"}, "abc", False),
    ({"lacks": 3}, [1, 2], True),
    ({"lacks": 3}, 5, False),
    ({"min": 1, "max": 3}, 2, True),
    ({"min": 1, "max": 3}, 4, False),
    ({"min": 1}, True, False),
    ({"length": 2}, "ab", True),
    ({"length": {"min": 3}}, [1, 2], False),
    ({"length": 0}, 0, False),
    ({"each": {"is": "integer"}}, [1, 2], True),
    ({"each": {"is": "integer"}}, [1, "2"], False),
    ({"each": 1}, 1, False),
    ({"sha256_of": "äöü"}, _SHA, True),
    ({"sha256_of": "äöü"}, "0" * 64, False),
    ({"is": "string"}, "", True),
    ({"is": "integer"}, 1.5, False),
    ({"is": "integer"}, True, False),
    ({"is": "number"}, 1.5, True),
    ({"is": "boolean"}, False, True),
    ({"is": "object"}, {}, True),
    ({"is": "array"}, [], True),
    ({"is": "null"}, None, True),
    ({"a": {"is": "null"}}, {}, False),
    ({"a": {"is": "absent"}}, {}, True),
    ({"a": {"is": "absent"}}, {"a": None}, False),
    ({"a": {"is": "present"}}, {"a": None}, True),
    ({"is": "nonempty"}, "", False),
    ({"is": "nonempty"}, "x", True),
    ({"is": "ulid"}, _ULID, True),
    ({"is": "ulid"}, _ULID.lower(), False),
    ({"is": "run_id"}, f"run-{_ULID}", True),
    ({"is": "run_id"}, _ULID, False),
    ({"is": "uuid"}, "123e4567-e89b-12d3-a456-426614174000", True),
    ({"is": "sha256"}, _SHA, True),
    ({"is": "time"}, "2024-05-06T07:08:09.123456Z", True),
    ({"is": "time"}, "2024-05-06", False),
]


@pytest.mark.parametrize(("expected", "actual", "matches"), _TABLE)
def test_a_value_matches_or_not(expected: Any, actual: Any, matches: bool) -> None:
    assert (not compare(expected, actual)) is matches


def test_the_table_has_every_matcher_and_kind() -> None:
    tables = [expected for expected, _, _ in _TABLE if isinstance(expected, dict)]
    tables += [value for table in tables for value in table.values() if isinstance(value, dict)]
    assert {key for table in tables for key in table} >= set(MATCHERS)
    assert {table["is"] for table in tables if "is" in table} >= set(KINDS)


def test_a_mismatch_names_the_place_and_both_values() -> None:
    found = compare({"usage": {"n": 1}, "list": [{"x": "a"}]}, {"usage": {"n": 2}, "list": [{"x": "b"}]})
    assert [str(mismatch) for mismatch in found] == [
        "$.usage.n: expected exactly 1, got 2",
        '$.list[0].x: expected exactly "a", got "b"',
    ]


def test_a_missing_field_reads_as_nothing() -> None:
    assert str(compare({"a": 1}, {})[0]) == "$.a: expected exactly 1, got nothing"


@pytest.mark.parametrize("expected", [{"min": 1, "code": "x"}, {"is": "blue"}])
def test_a_malformed_matcher_is_an_error(expected: Any) -> None:
    with pytest.raises(MatcherError):
        compare(expected, {"code": "x"})
