"""Rules and tests match both ways: what SPEC.md says is tested, and what tests name is in SPEC.md."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SPEC = (ROOT / "protocol" / "SPEC.md").read_text(encoding="utf-8")
RULE = r"(?:CN|ST|TL|CV|ER|SE|RU|AO)[0-9]+"
DEFINED = re.findall(rf"^- \*\*({RULE})\*\* ", SPEC, re.MULTILINE)


def not_implemented() -> set[str]:
    """The ids that SPEC.md lists, one by one, as not implemented yet."""
    section = re.search(r"^## Not implemented yet\n(.*?)^## ", SPEC, re.MULTILINE | re.DOTALL)
    return set(re.findall(RULE, section[1])) if section else set()


def named_in_tests() -> Iterator[tuple[str, str]]:
    """Every rule id in the name of a test function or class, and where it is."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_test = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
                "test_"
            )
            is_group = isinstance(node, ast.ClassDef) and node.name.startswith("Test")
            if is_test or is_group:
                for rule in re.findall(rf"(?<![A-Z0-9]){RULE}(?![0-9])", node.name):
                    yield rule, f"{path.relative_to(ROOT)}::{node.name}"


def named_in_scenarios() -> Iterator[tuple[str, str]]:
    """Every rule id that a scenario proves, and the scenario's file."""
    for path in sorted((ROOT / "scenarios").rglob("*.toml")):
        for proved in _proves(tomllib.loads(path.read_text(encoding="utf-8"))):
            yield proved, str(path.relative_to(ROOT))


def _proves(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        proves = node.get("proves", [])
        if isinstance(proves, list):
            yield from (rule for rule in proves if isinstance(rule, str))
        for item in node.values():
            yield from _proves(item)
    elif isinstance(node, list):
        for item in node:
            yield from _proves(item)


def test_every_rule_is_defined_once() -> None:
    assert sorted(DEFINED) == sorted(set(DEFINED))
    assert not_implemented() <= set(DEFINED)


def test_every_implemented_rule_is_named_by_a_test_or_a_scenario() -> None:
    named = {rule for rule, _ in (*named_in_tests(), *named_in_scenarios())}
    missing = [rule for rule in DEFINED if rule not in named and rule not in not_implemented()]
    assert missing == []


def test_every_rule_that_is_named_is_in_the_spec() -> None:
    unknown = [
        f"{rule} in {where}"
        for rule, where in (*named_in_tests(), *named_in_scenarios())
        if rule not in DEFINED
    ]
    assert unknown == []
