"""The runner against a small peer: what passes, what fails and how it reads, exit codes, JUnit."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from scenarios.runner import run_scenarios
from tests.scenarios.peer import open_peer

_HEAD = 'id = "T-1"\ntitle = "A title"\nproves = ["CN1"]\n'
_OPEN = '{ connect = "/ws/conversations/${session}" }'
_PING = '{ send = { type = "ping" } }'
_APPENDED = (
    '{ expect = { type = "message_appended", sequence = 0, request_id = "${request}" }, into = "list" }'
)


def _append(content: str) -> str:
    return '{ send = { type = "append_message", role = "user", content = "TEXT" }, as = "request" }'.replace(
        "TEXT", content
    )


class _Run:
    """One run of the runner and what it said."""

    def __init__(self, tmp_path: Path) -> None:
        self._folder = tmp_path
        self.said = ""

    async def __call__(
        self, *steps: str, head: str = _HEAD, peer: Mapping[str, Any] | None = None, **options: Any
    ) -> int:
        lines = ",\n  ".join(steps)
        (self._folder / "one.toml").write_text(f"{head}steps = [\n  {lines}\n]\n", encoding="utf-8")
        output = io.StringIO()
        async with open_peer(**(peer or {})) as (url, _):
            console = Console(file=output, width=200)
            code = await run_scenarios([self._folder], url=url, console=console, **options)
        self.said = output.getvalue()
        return code


@pytest.fixture
def run(tmp_path: Path) -> _Run:
    """Writes a scenario of these steps and runs it."""
    return _Run(tmp_path)


async def test_a_scenario_that_holds_passes(run: _Run) -> None:
    code = await run(
        _OPEN,
        _append("hello"),
        '{ expect = { type = "message_appended" }, capture = { id = "$.message_id" }, into = "list" }',
        '{ assert = "list", values = { "one message_appended.message_id" = "${id}" }, dense = true }',
        '{ send = { type = "ping", t = "${a.seq + 1}" } }',
        '{ expect = { type = "pong", t = 2 } }',
    )
    assert code == 0, run.said
    assert "1 passed, 0 failed, 0 not run" in run.said


async def test_a_sequence_may_have_optional_and_repeated_items(run: _Run) -> None:
    steps = [_OPEN, _PING, _PING, _PING, _append("hello")]
    for repeat, code in {"+": 0, "*": 0, "?": 1, "1": 1}.items():
        items = (
            '{ type = "error", repeat = "?" }, { type = "pong", repeat = "1" }, { type = "message_appended" }'
        )
        sequence = f"{{ expect_sequence = [{items}] }}".replace('"1"', f'"{repeat}"')
        assert await run(*steps, sequence) == code, run.said
    assert "(item 3)" in run.said


async def test_every_kind_of_leaving_frees_the_peer(run: _Run) -> None:
    code = await run(
        _OPEN,
        _OPEN.replace(
            "{ ", '{ client = "b", refused = { close = 4009, error = { code = "resource_busy" } }, ', 1
        ),
        "{ close = 1000 }",
        _OPEN,
        '{ drop = "fin" }',
        "{ wait = 50 }",
        _OPEN,
        '{ drop = "reset" }',
        "{ wait = 50 }",
        _OPEN,
        "{ expect_nothing = 20 }",
        _append("close"),
        '{ expect_close = 4010, reason = { contains = "super" } }',
    )
    assert code == 0, run.said


async def test_side_by_side_and_repeated_runs_have_ids_of_their_own(run: _Run) -> None:
    assert await run(_OPEN, _append("mine"), _APPENDED, jobs=4, repeat=5, clients=3) == 0, run.said
    assert "15 passed, 0 failed" in run.said


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("gap", "seq 2 (message_appended) came where 1 was due"),
        ("no seq", "message_appended has no seq"),
        ("garbage", "not a server frame"),
        ("binary", "a binary message came"),
    ],
)
async def test_a_wrong_frame_fails_without_a_step_that_looks(run: _Run, fault: str, said: str) -> None:
    assert await run(_OPEN, _append(fault), _PING, '{ expect = { type = "pong" }, skip = ["*"] }') == 1
    assert said in run.said


async def test_CN6_a_frame_that_comes_twice_fails(run: _Run) -> None:
    assert await run(_OPEN, _append("one"), _append("again"), "{ wait = 300 }") == 1
    assert "seq 1 (message_appended) came where 2 was due" in run.said


async def test_a_failure_shows_the_diff_the_steps_and_what_came(run: _Run) -> None:
    wrong = '{ expect = { type = "message_appended", content = "bye" } }'
    assert await run(_OPEN, _append("hello"), wrong, "{ wait = 1 }") == 1
    for text in ("✔  1 a: connect", "✘  3 a: expect", "·  4 wait 1", "a (open) received last:"):
        assert text in run.said
    assert '$.content: expected exactly "bye", got "hello"' in run.said


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ('{ expect = { type = "pong" }, timeout_ms = 50 }', 'no {"type":"pong"} came within 50 ms'),
        ("{ expect_close = 1000, timeout_ms = 50 }", "stayed open"),
        (f"{_PING}, {{ expect_nothing = 500 }}", "nothing was due"),
        ('{ connect = "/ws/x" }', "still connected"),
        (_OPEN.replace("{ ", '{ client = "b", ', 1), 'expected exactly "connected", got "error"'),
        ('{ client = "b", connect = "/ws/y", refused = { close = 4400 } }', "a refused connection got"),
        ('{ client = "b", send = { type = "ping" } }', "b is not connected"),
        ('{ client = "b", connect = "/ws/y", resume = "c" }', "neither a mark nor a client"),
        ('{ assert = "nothing", dense = true }', "nothing was collected"),
        ('{ expect = { type = "${unknown}" } }', "no variable ${unknown}"),
        ('{ http = { path = "/api/sessions" }, timeout_ms = 500 }', "/api/sessions"),
        ('{ await_http = "x" }', "nothing was started"),
        ("{ wait = 5000 }", "the scenario took more than 1500 ms"),
    ],
)
async def test_each_step_can_fail(run: _Run, step: str, said: str) -> None:
    assert await run(_OPEN, step, head=f"{_HEAD}timeout_ms = 1500\n") == 1
    assert said in run.said


async def test_a_half_open_client_answers_no_ping(run: _Run) -> None:
    impatient = {"ping_interval": 0.1, "ping_timeout": 0.1}
    ghost = ["{ half_open = true }", "{ wait = 500 }", "{ resume_reading = true }", "{ expect_close = 1011 }"]
    assert await run(_OPEN, *ghost, peer=impatient) == 0, run.said
    assert await run(_OPEN, "{ wait = 500 }", _PING, '{ expect = { type = "pong" } }', peer=impatient) == 0


async def test_a_reader_can_stop_go_on_and_read_slowly(run: _Run) -> None:
    code = await run(
        '{ connect = "/ws/x", receive_buffer = 65536 }',
        _append("flood"),
        '{ expect = { type = "pong" } }',
        "{ stop_reading = true }",
        '{ expect_nothing = 50, of = ["error"] }',
        "{ resume_reading = true }",
        '{ collect = "flood", until = { type = "pong" }, times = 200 }',
        "{ read_rate = 100000 }",
        '{ collect = "slow", until = { type = "pong" }, times = 200, timeout_ms = 200 }',
        peer={"ping_interval": None},
    )
    assert code == 1
    assert "✘  9 a: collect slow" in run.said, "800 KB take longer than 200 ms at 100 KB a second"


async def test_what_cannot_be_run_is_not_run_and_fails_only_under_strict(run: _Run) -> None:
    reasons = {
        "restart": "no restart command was given",
        "limits.rate_burst >= 21": "needs limits.rate_burst >= 21; here it is 20",
        "limits.colour": "connected.limits has no colour",
        "magic": "nobody knows how to find out 'magic'",
        "rest": "no REST interface",
    }
    for need, reason in reasons.items():
        assert await run(_OPEN, head=f'{_HEAD}requires = ["{need}"]\n') == 0
        assert f"not run: {reason}" in run.said
        assert await run(_OPEN, head=f'{_HEAD}requires = ["{need}"]\n', strict=True) == 1
    assert await run(_OPEN, head=f'{_HEAD}requires = ["limits.rate_burst <= 20"]\n', strict=True) == 0


async def test_wrong_files_and_an_absent_server_are_exit_code_2(run: _Run, tmp_path: Path) -> None:
    assert await run("{ jump = 1 }") == 2
    assert "step 1: no verb" in run.said
    assert await run(_OPEN, filter="NONE") == 2
    output = io.StringIO()
    async with open_peer() as (url, _):
        pass
    assert await run_scenarios([tmp_path], url=url, console=Console(file=output, width=200)) == 2
    assert "no server of this protocol" in output.getvalue()


async def test_a_filter_is_a_part_of_the_id_or_a_pattern(run: _Run) -> None:
    for wanted in ("t-1", "T", "T-*"):
        assert await run(_OPEN, filter=wanted) == 0


async def test_junit_has_a_case_for_every_run(run: _Run, tmp_path: Path) -> None:
    junit = tmp_path / "reports" / "junit.xml"
    wrong = '{ expect = { type = "message_appended", content = "y" } }'
    assert await run(_OPEN, _append(r"x\u0001"), wrong, repeat=2, junit=junit) == 1
    suites = ET.parse(junit).getroot()
    cases = suites.findall("testsuite/testcase")
    assert [case.get("name") for case in cases] == ["T-1 #1", "T-1 #2"]
    failure = cases[0].find("failure")
    assert failure is not None
    assert '$.content: expected exactly "y"' in (failure.text or "")
    assert suites[0].get("failures") == "2"
