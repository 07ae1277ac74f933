"""What the runner says: a line a run, the steps and the diff of what failed, a table at the end, JUnit XML.

Knows outcomes only, nothing of how they came about.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scenarios import format as fmt
from scenarios.matchers import show

_SHOWN_FAILURES: Final = 3
_MARKS: Final[Mapping[bool | None, str]] = {True: "[green]✔[/]", False: "[red]✘[/]", None: "[dim]·[/]"}


class Status(StrEnum):
    """How a run of a scenario ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


class StepOutcome(Struct, frozen=True):
    """One step; ``passed`` is None for one that was not reached."""

    text: str
    passed: bool | None
    seconds: float = 0.0


class Outcome(Struct, frozen=True):
    """One run of one scenario."""

    scenario: fmt.Scenario
    status: Status
    seconds: float = 0.0
    text: str = ""
    steps: tuple[StepOutcome, ...] = ()
    label: str = ""


def describe(step: fmt.Step) -> str:
    """Say in one line what a step does."""
    who = f"{step.client}: " if isinstance(step, fmt.ClientStep) else ""
    text = f"{step.__struct_config__.tag} "
    match step:
        case fmt.Connect(connect=path, resume=resume):
            text += (
                path + (f" from {resume}" if resume else "") + (" (to be refused)" if step.refused else "")
            )
        case fmt.Send(send=frame):
            text += _summary(frame) + (f" x {step.times}" if step.times != 1 else "")
        case fmt.SendRaw(send_raw=str(raw)):
            text += show(raw, 60)
        case fmt.Expect(expect=frame):
            text += _summary(frame)
        case fmt.ExpectSequence(expect_sequence=items):
            text += ", ".join(f"{show(item.get('type'), 40)}{item.get('repeat', '')}" for item in items)
        case fmt.Collect(collect=name, until=until):
            text += f"{name} until {_summary(until)}"
        case fmt.Http(http=request):
            text += f"{request.method} {request.path}"
        case fmt.Assert(assert_=name):
            text += name
        case fmt.SendRaw() | fmt.Set():
            pass
        case _:
            text += str(getattr(step, str(step.__struct_config__.tag), ""))
    return f"{who}{text.strip()}" + (f"  ({step.note})" if step.note else "")


def _summary(frame: Mapping[str, object]) -> str:
    rest = {key: value for key, value in frame.items() if key != "type"}
    return f"{frame.get('type', '')} {show(rest, 70) if rest else ''}".strip()


class Report:
    """Collects outcomes and shows them as they come."""

    def __init__(self, console: Console, *, verbose: bool, many: bool) -> None:
        self.outcomes: list[Outcome] = []
        self._console = console
        self._verbose = verbose
        self._many = many
        self._failures_shown: dict[str, int] = {}

    def add(self, outcome: Outcome) -> None:
        """Take an outcome and say what is worth saying at once."""
        self.outcomes.append(outcome)
        name = f"{outcome.scenario.id} {outcome.label}".strip()
        title = escape(f"{name}  {outcome.scenario.title}")
        match outcome.status:
            case Status.PASSED:
                if not self._many or self._verbose:
                    self._say(f"[green]✔[/] {title}  [dim]{outcome.seconds:.2f} s[/]")
                if self._verbose:
                    self._say_steps(outcome)
            case Status.NOT_RUN:
                if not self._many or self._verbose:
                    self._say(f"[yellow]–[/] {title}  [dim]not run: {escape(outcome.text)}[/]")
            case Status.FAILED:
                self._say_failure(outcome, title)

    def _say_failure(self, outcome: Outcome, title: str) -> None:
        shown = self._failures_shown[outcome.scenario.id] = (
            self._failures_shown.get(outcome.scenario.id, 0) + 1
        )
        if shown > _SHOWN_FAILURES:
            return
        self._say(
            f"[bold red]✘ {title}[/]  [dim]{outcome.seconds:.2f} s, {escape(str(outcome.scenario.path))}[/]"
        )
        self._say_steps(outcome)
        for line in outcome.text.splitlines():
            self._say(f"      [red]{escape(line)}[/]")

    def _say_steps(self, outcome: Outcome) -> None:
        for at, step in enumerate(outcome.steps, 1):
            took = "" if step.passed is None else f"  [dim]{step.seconds * 1000:.0f} ms[/]"
            self._say(f"    {_MARKS[step.passed]} {at:2} {escape(step.text)}{took}")

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)

    def summarise(self) -> None:
        """Print the table and the totals."""
        table = Table(title="Scenarios", title_justify="left")
        table.add_column("id", no_wrap=True)
        table.add_column("scenario")
        table.add_column("proves", no_wrap=True)
        table.add_column("result", no_wrap=True, max_width=40)
        table.add_column("median s", justify="right", no_wrap=True)
        table.add_column("longest s", justify="right", no_wrap=True)
        for outcomes in self._by_scenario():
            scenario = outcomes[0].scenario
            took = [outcome.seconds for outcome in outcomes]
            table.add_row(
                escape(scenario.id),
                escape(scenario.title),
                ", ".join(scenario.proves),
                _result(outcomes),
                f"{statistics.median(took):.2f}",
                f"{max(took):.2f}",
            )
        self._console.print(table)
        counts = {status: sum(outcome.status is status for outcome in self.outcomes) for status in Status}
        self._say(", ".join(f"{count} {status}" for status, count in counts.items()))

    def _by_scenario(self) -> list[list[Outcome]]:
        groups: dict[str, list[Outcome]] = {}
        for outcome in self.outcomes:
            groups.setdefault(outcome.scenario.id, []).append(outcome)
        return [groups[name] for name in sorted(groups)]

    def exit_code(self, *, strict: bool) -> int:
        """0 only if all passed; what could not be run counts as passed unless ``strict``."""
        bad = {Status.FAILED, Status.NOT_RUN} if strict else {Status.FAILED}
        return int(any(outcome.status in bad for outcome in self.outcomes))

    def write_junit(self, path: Path) -> None:
        """Write all outcomes as JUnit XML, one suite a folder of scenarios."""
        root = ET.Element("testsuites", name="scenarios")
        suites: dict[str, list[Outcome]] = {}
        for outcome in self.outcomes:
            suites.setdefault(outcome.scenario.path.parent.name, []).append(outcome)
        for name, outcomes in sorted(suites.items()):
            _add_suite(root, name, outcomes)
        path.parent.mkdir(parents=True, exist_ok=True)
        ET.indent(root)
        path.write_bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _result(outcomes: Sequence[Outcome]) -> str:
    passed = sum(outcome.status is Status.PASSED for outcome in outcomes)
    reason = next((outcome.text for outcome in outcomes if outcome.status is Status.NOT_RUN), None)
    if reason is not None:
        return f"[yellow]not run: {escape(reason)}[/]"
    if passed == len(outcomes):
        return "[green]passed[/]" + (f" {passed}" if passed > 1 else "")
    return f"[bold red]failed[/] {len(outcomes) - passed} of {len(outcomes)}"


def _add_suite(root: ET.Element, name: str, outcomes: Sequence[Outcome]) -> None:
    suite = ET.SubElement(
        root,
        "testsuite",
        name=name,
        tests=str(len(outcomes)),
        failures=str(sum(outcome.status is Status.FAILED for outcome in outcomes)),
        skipped=str(sum(outcome.status is Status.NOT_RUN for outcome in outcomes)),
        errors="0",
        time=f"{sum(outcome.seconds for outcome in outcomes):.3f}",
    )
    for outcome in outcomes:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=f"scenarios.{name}",
            name=f"{outcome.scenario.id} {outcome.label}".strip(),
            time=f"{outcome.seconds:.3f}",
        )
        if outcome.status is Status.FAILED:
            failure = ET.SubElement(case, "failure", message=_xml_text(outcome.text.partition("\n")[0]))
            failure.text = _xml_text(outcome.text)
        elif outcome.status is Status.NOT_RUN:
            ET.SubElement(case, "skipped", message=_xml_text(outcome.text))


def _xml_text(text: str) -> str:
    """XML 1.0 has no control characters and no surrogates; they become U+FFFD."""
    return "".join(
        c
        if c in "\t\n" or (c >= " " and not "\ud800" <= c <= "\udfff" and c < "\ufffe") or c > "\uffff"
        else "\ufffd"
        for c in text
    )
