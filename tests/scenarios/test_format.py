"""Scenario files: what is read, what is refused, and that FORMAT.md says all of it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import scenarios
from scenarios import format as fmt
from scenarios.matchers import KINDS, MATCHERS

_HERE = Path(scenarios.__file__).parent
_FORMAT = (_HERE / "FORMAT.md").read_text(encoding="utf-8")
_HEAD = 'id = "T-1"\ntitle = "t"\n'


def _write(folder: Path, text: str, name: str = "one.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_sample_of_the_docs_is_a_scenario(tmp_path: Path) -> None:
    sample = re.search(r"```toml\n(.*?)```", _FORMAT, re.DOTALL)
    assert sample is not None
    scenario = fmt.read_scenario(_write(tmp_path, sample[1]))
    assert (scenario.id, scenario.scripts, len(scenario.steps)) == ("SAMPLE-01", ("sample-01",), 10)


@pytest.mark.parametrize("verb", sorted(fmt.STEPS))
def test_the_docs_have_every_verb_and_its_fields(verb: str) -> None:
    assert f"`{verb} = " in _FORMAT
    kind = fmt.STEPS[verb]
    fields = {name.removesuffix("_") for name in kind.__struct_fields__} - {verb, "client", "note"}
    missing = {name for name in fields if f"`{name}`" not in _FORMAT and f"`{name} = " not in _FORMAT}
    assert not missing


@pytest.mark.parametrize("name", [*MATCHERS, *KINDS])
def test_the_docs_have_every_matcher(name: str) -> None:
    assert f"`{name}" in _FORMAT


def test_the_docs_have_the_default_timeouts() -> None:
    rows = {row.split("`")[1].split(" ")[0]: row for row in _FORMAT.splitlines() if row.startswith("| `")}
    for kind in fmt.STEPS.values():
        if "timeout_ms" in kind.__struct_fields__:
            step = kind.__struct_fields__[::-1].index("timeout_ms")
            default = kind.__struct_defaults__[::-1][step]
            assert f"`timeout_ms` ({default:,})" in rows[str(kind.__struct_config__.tag)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not toml", "one.toml"),
        ('id = "T-1"\nsteps = [{ wait = 1 }]', "title"),
        (f"{_HEAD}steps = []", "steps"),
        (f"{_HEAD}colour = 1\nsteps = [{{ wait = 1 }}]", "colour"),
        (f"{_HEAD}steps = [{{ wait = 1 }}, {{ jump = 1 }}]", "step 2: no verb"),
        (f"{_HEAD}steps = [{{ wait = 1, client = 'a' }}]", "step 1 (wait)"),
        (f"{_HEAD}steps = [{{ expect = {{}}, timeout = 5 }}]", "timeout"),
        (f"{_HEAD}steps = [{{ drop = 'softly' }}]", "drop"),
        (f"{_HEAD}proves = ['CN']\nsteps = [{{ wait = 1 }}]", "proves"),
        (
            f"{_HEAD}steps = [{{ client = 'b', expect = {{}}, capture = {{ b = '$.id' }} }}]",
            "b names a client",
        ),
        (f"{_HEAD}vars = {{ m = 1 }}\nsteps = [{{ mark = 'm' }}]", "m names a client or mark"),
    ],
)
def test_a_wrong_file_is_refused_and_the_place_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(fmt.FormatError, match=re.escape(said)):
        fmt.read_scenario(_write(tmp_path, text))


def test_two_files_of_one_id_or_with_one_script_are_refused(tmp_path: Path) -> None:
    script = "steps = [{ wait = 1 }]\n[scripts.same]"
    _write(tmp_path, f"{_HEAD}{script}")
    _write(tmp_path, f"{_HEAD}{script}".replace("T-1", "T-2"), "two.toml")
    with pytest.raises(fmt.FormatError, match="'same' is used"):
        fmt.read_scenarios([tmp_path])
    _write(tmp_path, f"{_HEAD}steps = [{{ wait = 1 }}]", "two.toml")
    with pytest.raises(fmt.FormatError, match="'T-1' is used"):
        fmt.read_scenarios([tmp_path])
    with pytest.raises(fmt.FormatError, match="no such file"):
        fmt.read_scenarios([tmp_path / "none.toml"])


def test_every_scenario_can_be_read_and_is_named_after_its_file() -> None:
    read = fmt.read_scenarios([_HERE])
    assert [scenario.id for scenario in read if scenario.path.stem != scenario.id.lower()] == []
    assert [scenario.id for scenario in read if not scenario.proves] == []


def test_every_script_that_a_scenario_names_is_in_its_file() -> None:
    unknown = [
        (path.name, name)
        for path in _HERE.rglob("*.toml")
        for name in re.findall(r'model = "script/([^"]+)"', path.read_text(encoding="utf-8"))
        if name not in tomllib.loads(path.read_text(encoding="utf-8")).get("scripts", {})
    ]
    assert unknown == [("st6-unknown-model.toml", "there-is-no-such-script")]


def test_the_scenarios_of_the_specification_are_there() -> None:
    ids = {scenario.id for scenario in fmt.read_scenarios([_HERE])}
    groups = {"CONN": 4, "STREAM": 3, "TOOL": 4, "PROJECT": 3, "ERROR": 3}
    assert {f"WS-{group}-{n:02}" for group, count in groups.items() for n in range(1, count + 1)} <= ids


def test_every_rule_of_the_protocol_has_a_scenario() -> None:
    proved = {rule for scenario in fmt.read_scenarios([_HERE]) for rule in scenario.proves}
    last = {"CN": 10, "ST": 8, "TL": 8, "CV": 6, "ER": 5}
    assert {f"{part}{n}" for part, count in last.items() for n in range(1, count + 1)} <= proved
