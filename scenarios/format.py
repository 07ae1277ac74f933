"""The scenario file: its structs, and reading it with errors that name file, step and field.

Knows the shape of a scenario, not what its steps do. FORMAT.md is the description for people; a test
holds the two together.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct, field

Number = int | str
"""An integer, or text whose ``${…}`` gives one."""

Table = dict[str, Any]

CONNECT_MS: Final = 5_000
EXPECT_MS: Final = 5_000
COLLECT_MS: Final = 20_000
CLOSE_MS: Final = 10_000
HTTP_MS: Final = 10_000
RESTART_MS: Final = 60_000
SCENARIO_MS: Final = 180_000


class FormatError(Exception):
    """A scenario file is not as FORMAT.md says; the text names the place."""


class StepBase(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="verb"):
    """What every step may have."""

    note: str = ""


class ClientStep(StepBase, frozen=True, kw_only=True):
    """A step of one named client."""

    client: str = "a"


class Refusal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a connect is refused: a close code (after an ``error``, perhaps) or an HTTP status."""

    close: Any = None
    error: Table | None = None
    http: Any = None


class Connect(ClientStep, frozen=True, kw_only=True, tag="connect"):
    """Open a socket and, unless ``later``, wait for its first frame."""

    connect: str
    query: Table = {}
    headers: Table = {}
    subprotocol: str = "turnwire.v1"
    resume: str | None = None
    connected: Table = {}
    refused: Refusal | None = None
    later: bool = False
    receive_buffer: int | None = None
    capture: dict[str, str] = {}
    timeout_ms: Number = CONNECT_MS


class Send(ClientStep, frozen=True, kw_only=True, tag="send"):
    """Send one frame (or ``times`` of it), with a ``request_id`` of its own where it names none."""

    send: Table
    as_: str | None = field(default=None, name="as")
    may_be_late: bool = False
    times: Number = 1
    every_ms: Number = 0


class Filler(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message of raw text or bytes: ``before``, then ``fill`` repeated, then ``after``."""

    text: str = ""
    hex: str = ""
    before: str = ""
    fill: str = ""
    fill_times: Number = 0
    after: str = ""
    binary: bool = False
    fragments: Annotated[int, Meta(ge=1)] = 1


class SendRaw(ClientStep, frozen=True, kw_only=True, tag="send_raw"):
    """Send a message exactly as it stands: for bad frames, binary ones and large ones."""

    send_raw: str | Filler
    times: Number = 1
    every_ms: Number = 0


class Expect(ClientStep, frozen=True, kw_only=True, tag="expect"):
    """The next frame is this one; only frames of the types in ``skip`` may come before it."""

    expect: Table
    skip: list[str] = []
    capture: dict[str, str] = {}
    into: str | None = None
    timeout_ms: Number = EXPECT_MS


class ExpectSequence(ClientStep, frozen=True, kw_only=True, tag="expect_sequence"):
    """The next frames are these, in this order; an item may have ``repeat`` (``?``, ``*``, ``+``)."""

    expect_sequence: Annotated[list[Table], Meta(min_length=1)]
    skip: list[str] = []
    into: str | None = None
    timeout_ms: Number = COLLECT_MS


class Collect(ClientStep, frozen=True, kw_only=True, tag="collect"):
    """Put all frames in a list, up to the one (the ``times``-th one) that matches ``until``."""

    collect: str
    until: Table
    times: Number = 1
    capture: dict[str, str] = {}
    timeout_ms: Number = COLLECT_MS


class ReadCanvas(ClientStep, frozen=True, kw_only=True, tag="read_canvas"):
    """Read the whole canvas with ``canvas_get``, page by page, and compare it with the frames so far."""

    read_canvas: Table
    pages: Any = None
    capture: dict[str, str] = {}
    timeout_ms: Number = COLLECT_MS


class ExpectNothing(ClientStep, frozen=True, kw_only=True, tag="expect_nothing"):
    """For this many milliseconds no frame comes (or none of the types in ``of``)."""

    expect_nothing: Number
    of: list[str] = []


class ExpectClose(ClientStep, frozen=True, kw_only=True, tag="expect_close"):
    """The server closes the connection with this code (1006: without a close frame)."""

    expect_close: Any
    reason: Any = None
    skip: list[str] = []
    into: str | None = None
    timeout_ms: Number = CLOSE_MS


class Close(ClientStep, frozen=True, kw_only=True, tag="close"):
    """Close with this code and wait until the server has answered the close."""

    close: int
    timeout_ms: Number = CLOSE_MS


class Drop(ClientStep, frozen=True, kw_only=True, tag="drop"):
    """Destroy the socket without a close frame: ``reset`` (RST) or ``fin``."""

    drop: Literal["reset", "fin"]


class HalfOpen(ClientStep, frozen=True, kw_only=True, tag="half_open"):
    """Become a ghost: read nothing, answer no ping, keep the socket. For the rest of this connection."""

    half_open: Literal[True]


class StopReading(ClientStep, frozen=True, kw_only=True, tag="stop_reading"):
    """Read nothing until ``resume_reading``; what the server sends piles up."""

    stop_reading: Literal[True]


class ResumeReading(ClientStep, frozen=True, kw_only=True, tag="resume_reading"):
    """Read again."""

    resume_reading: Literal[True]


class ReadRate(ClientStep, frozen=True, kw_only=True, tag="read_rate"):
    """Read at most this many bytes a second from now on; 0 means without a limit."""

    read_rate: Number


class Mark(ClientStep, frozen=True, kw_only=True, tag="mark"):
    """Remember the client's position (``epoch`` and last ``seq``) under a name, for ``connect.resume``."""

    mark: str


class Wait(StepBase, frozen=True, kw_only=True, tag="wait"):
    """Do nothing for so many milliseconds."""

    wait: Number


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An HTTP request."""

    path: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    query: Table = {}
    body: Any = None
    headers: dict[str, str] = {}


class Http(StepBase, frozen=True, kw_only=True, tag="http"):
    """Call the server's REST interface; with ``poll``, again and again until it answers as expected."""

    http: Request
    status: Any = 200
    body: Any = None
    capture: dict[str, str] = {}
    poll: bool = False
    background: str | None = None
    timeout_ms: Number = HTTP_MS


class AwaitHttp(StepBase, frozen=True, kw_only=True, tag="await_http"):
    """Wait for the call that was started with ``background``."""

    await_http: str
    status: Any = 200
    body: Any = None
    capture: dict[str, str] = {}
    timeout_ms: Number = COLLECT_MS


class Restart(StepBase, frozen=True, kw_only=True, tag="restart"):
    """Run the restart command: ``term`` asks the server to stop, ``kill`` gives it no time."""

    restart: Literal["term", "kill"]
    timeout_ms: Number = RESTART_MS


class BeginRestart(StepBase, frozen=True, kw_only=True, tag="begin_restart"):
    """As ``restart``, but the scenario goes on at once; ``await_restart`` waits for its end."""

    begin_restart: Literal["term", "kill"]


class AwaitRestart(StepBase, frozen=True, kw_only=True, tag="await_restart"):
    """Wait until the restart that was begun is done and the server answers again."""

    await_restart: Literal[True]
    timeout_ms: Number = RESTART_MS


class NoneAfter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """After the first frame that matches ``frame`` only the types in ``allow`` may come."""

    frame: Table
    allow: list[str] = []


class Assert(StepBase, frozen=True, kw_only=True, tag="assert"):
    """Check collected frames; all that is given must hold."""

    assert_: str = field(name="assert")
    equal: list[str] = []
    every: Table | None = None
    counts: Table = {}
    order: list[str] = []
    none_after: NoneAfter | None = None
    values: Table = {}
    json: str | None = None
    dense: bool = False
    ascending: str | None = None
    same_bytes: str | None = None


class Set(StepBase, frozen=True, kw_only=True, tag="set"):
    """Give variables a value."""

    set: Table


Step = (
    Connect
    | Send
    | SendRaw
    | Expect
    | ExpectSequence
    | Collect
    | ReadCanvas
    | ExpectNothing
    | ExpectClose
    | Close
    | Drop
    | HalfOpen
    | StopReading
    | ResumeReading
    | ReadRate
    | Mark
    | Wait
    | Http
    | AwaitHttp
    | Restart
    | BeginRestart
    | AwaitRestart
    | Assert
    | Set
)
STEPS: Final[dict[str, type[StepBase]]] = {str(kind.__struct_config__.tag): kind for kind in Step.__args__}
"""Every step by its verb."""


class Scenario(Struct, frozen=True, kw_only=True):
    """One file, read and checked."""

    id: str
    title: str
    path: Path
    proves: tuple[str, ...]
    requires: tuple[str, ...]
    vars: Table
    scripts: tuple[str, ...]
    steps: tuple[Step, ...]
    exclusive: bool
    timeout_ms: int


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    title: Annotated[str, Meta(min_length=1)]
    steps: Annotated[list[Table], Meta(min_length=1)]
    proves: list[Annotated[str, Meta(pattern=r"^[A-Z]{2}\d+$")]] = []
    requires: list[str] = []
    vars: Table = {}
    scripts: dict[str, Table] = {}
    exclusive: bool = False
    timeout_ms: int = SCENARIO_MS
    description: str = ""


def _read_step(raw: Table, where: str) -> Step:
    verbs = [verb for verb in STEPS if verb in raw]
    if not verbs:
        raise FormatError(f"{where}: no verb; a step has one of {', '.join(STEPS)}")
    try:
        step: Step = msgspec.convert({**raw, "verb": verbs[0]}, Step)
    except msgspec.ValidationError as error:
        raise FormatError(f"{where} ({verbs[0]}): {error}") from None
    return step


def _check_names(path: Path, variables: Table, steps: Sequence[Step]) -> None:
    """A client's name and a mark's stand for positions, in variables too, and so for nothing else."""
    positions = {step.client for step in steps if isinstance(step, ClientStep)}
    positions |= {step.mark for step in steps if isinstance(step, Mark)}
    given = set(variables)
    for step in steps:
        given |= set(getattr(step, "capture", ())) | {getattr(step, "as_", None) or ""}
        given |= set(step.set) if isinstance(step, Set) else set()
    if both := sorted(positions & given):
        raise FormatError(f"{path}: {', '.join(both)} names a client or mark and a variable")


def read_scenario(path: Path) -> Scenario:
    """Read one scenario file.

    Raises:
        FormatError: Not TOML, a field is wrong or unknown, or a step has no verb.
    """
    try:
        file = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise FormatError(f"{path}: {error}") from None
    steps = tuple(_read_step(raw, f"{path}: step {at}") for at, raw in enumerate(file.steps, 1))
    _check_names(path, file.vars, steps)
    return Scenario(
        id=file.id,
        title=file.title,
        path=path,
        proves=tuple(file.proves),
        requires=tuple(file.requires),
        vars=file.vars,
        scripts=tuple(file.scripts),
        steps=steps,
        exclusive=file.exclusive or "restart" in file.requires,
        timeout_ms=file.timeout_ms,
    )


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(path.rglob("*.toml"))
        elif path.exists():
            yield path
        else:
            raise FormatError(f"{path}: there is no such file")


def read_scenarios(paths: Iterable[Path]) -> Sequence[Scenario]:
    """Read files and folders (with all their ``*.toml``), in a stable order.

    Raises:
        FormatError: A file is wrong, or two share an id or the name of a script.
    """
    scenarios = [read_scenario(path) for path in dict.fromkeys(_files(paths))]
    ids: dict[str, Path] = {}
    scripts: dict[str, Path] = {}
    for scenario in scenarios:
        for names, name in [(ids, scenario.id), *((scripts, script) for script in scenario.scripts)]:
            other = names.setdefault(name, scenario.path)
            if other != scenario.path:
                raise FormatError(f"{scenario.path}: {name!r} is used in {other} too")
    return scenarios
