"""JSON merge patch: the cases of RFC 7396, appendix A."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from server.canvas.merge import json_bytes, merged
from tests.canvas.naive import merge
from tests.protocol.frame_strategies import JSON

RFC = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), RFC)
def test_the_cases_of_the_rfc(target: Any, patch: Any, result: Any) -> None:
    assert merged(target, patch) == result


@given(JSON, JSON)
def test_it_does_what_the_rfc_says_and_changes_neither(target: Any, patch: Any) -> None:
    before = repr((target, patch))
    assert merged(target, patch) == merge(target, patch)
    assert repr((target, patch)) == before


def test_size_is_that_of_the_json() -> None:
    assert json_bytes({}) == 2
    assert json_bytes({"a": "é"}) == len('{"a":"é"}'.encode())
