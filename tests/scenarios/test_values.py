"""Variables and paths."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.ids import is_ulid
from scenarios.values import PathError, UnknownVariable, Variables, take

_JSON = {"a": {"b": [{"c": 1}, {"c": 2}]}, "n": None}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.a.b[0].c", 1),
        ("a.b[-1].c", 2),
        ("$.a.b[*].c", [1, 2]),
        ("$.n", None),
        ("$", _JSON),
        ("", _JSON),
    ],
)
def test_a_path_leads_to_its_value(path: str, value: Any) -> None:
    assert take(_JSON, path) == value


@pytest.mark.parametrize("path", ["$.x", "$.a.b[2]", "$.a.b.c", "$.n.c", "$.a[*]", "$.a..b", "$.a b"])
def test_a_path_to_nothing_is_an_error(path: str) -> None:
    with pytest.raises(PathError):
        take(_JSON, path)


def test_a_lone_reference_keeps_its_type_and_one_inside_text_becomes_text() -> None:
    variables = Variables()
    variables["limits"] = {"rate_burst": 20}
    variables["list"] = ["x", "y"]
    assert variables.expand("${limits.rate_burst}") == 20
    assert variables.expand({"n": ["${limits.rate_burst + 5}", "${limits.rate_burst * 2 - 1}"]}) == {
        "n": [25, 39]
    }
    assert variables.expand("at most ${limits.rate_burst}") == "at most 20"
    assert variables.expand("${list}") == ["x", "y"]
    assert variables.expand({"${list[1]}": "$${list}"}) == {"y": "${list}"}


def test_ids_are_fresh_for_each_run_and_stay_within_it() -> None:
    first, second = Variables(), Variables()
    assert is_ulid(first["session"])
    assert first["session"] == first["session"]
    assert len({first["session"], first["id.x"], first["id.y"], second["session"], second["id.x"]}) == 5
    assert first["run"] != second["run"]


@pytest.mark.parametrize("text", ["${nothing}", "${run.x}", "${run + 1}", "a ${b} c"])
def test_an_unknown_variable_is_an_error(text: str) -> None:
    with pytest.raises(UnknownVariable):
        Variables().expand(text)


def test_a_number_must_be_one() -> None:
    variables = Variables()
    assert variables.number(5) == 5
    with pytest.raises(UnknownVariable):
        variables.number("${run}")


def test_a_fresh_id_is_another_each_time() -> None:
    ids = Variables().expand(["${fresh}", "${fresh}"])
    assert ids[0] != ids[1]
    assert all(map(is_ulid, ids))
