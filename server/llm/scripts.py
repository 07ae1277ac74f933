"""The script format (SCRIPTS.md): its structs, and reading them with errors that name file and place.

Knows what a script says, not how it is played (:mod:`server.llm.player`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

Count: TypeAlias = Annotated[int, Meta(ge=1)]
Milliseconds: TypeAlias = Annotated[float, Meta(ge=0)]
Flag: TypeAlias = Literal[True]


class ScriptError(ValueError):
    """A script is not as SCRIPTS.md says; the text names the file and the place."""


class Action(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that the scripted model does; the field that gives the kind its name is required."""


class Text(Action, frozen=True, kw_only=True):
    """Say something ``repeat`` times, in pieces of ``chunk`` characters, one every ``every_ms``."""

    text: str
    chunk: Count = 5
    every_ms: Milliseconds = 0
    repeat: Count = 1


class Thinking(Action, frozen=True, kw_only=True):
    """Think something, paced like a text."""

    thinking: str
    chunk: Count = 5
    every_ms: Milliseconds = 0
    repeat: Count = 1


class Call(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call; ``arguments`` is a table, or a text sent as it is, in ``chunks`` fragments.

    - ``id``: made when absent; empty means that the upstream sends none.
    - ``repeat_id``: the upstream repeats id and name with every fragment, as some do (over the wire only).
    """

    name: str
    arguments: dict[str, Any] | str = {}
    id: str | None = None
    chunks: Count = 2
    every_ms: Milliseconds = 0
    repeat_id: bool = False


class ToolCall(Action, frozen=True, kw_only=True):
    """Call a tool."""

    tool_call: Call


class ToolCalls(Action, frozen=True, kw_only=True):
    """Call several tools, their fragments taking turns."""

    tool_calls: Annotated[tuple[Call, ...], Meta(min_length=1)]


class Wait(Action, frozen=True, kw_only=True):
    """Do nothing for a while."""

    wait_ms: Milliseconds


class Stall(Action, frozen=True, kw_only=True):
    """Never say anything again, but stay connected."""

    stall: Flag


class ErrorBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OpenAI error object; before any output an HTTP answer of this status, else inside of the stream."""

    status: Annotated[int, Meta(ge=400, le=599)] = 500
    code: str | None = None
    type: str = "server_error"
    message: str = "scripted failure"
    retry_after_ms: Annotated[int, Meta(ge=0)] | None = None
    in_stream: bool = False


class Error(Action, frozen=True, kw_only=True):
    """Fail."""

    error: ErrorBody


class Drop(Action, frozen=True, kw_only=True):
    """Reset the connection."""

    drop: Flag


class Finish(Action, frozen=True, kw_only=True):
    """End the turn; ``none`` ends the stream without saying why. Without it a turn ends by itself."""

    finish: Literal["stop", "length", "tool_calls", "content_filter", "none"]


class Raw(Action, frozen=True, kw_only=True):
    """Send bytes as they are, in pieces of ``chunk`` bytes; over the wire only."""

    raw: str
    chunk: Count = 1 << 30
    every_ms: Milliseconds = 0


class UsageCounts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the model says it used."""

    input_tokens: Annotated[int, Meta(ge=0)]
    output_tokens: Annotated[int, Meta(ge=0)]


class Usage(Action, frozen=True, kw_only=True):
    """Report this usage instead of a count of the pieces; ``false`` for none."""

    usage: UsageCounts | Literal[False]


AnyAction: TypeAlias = (
    Text | Thinking | ToolCall | ToolCalls | Wait | Stall | Error | Drop | Finish | Raw | Usage
)

ACTIONS: Final[Mapping[str, type[AnyAction]]] = {
    "text": Text,
    "thinking": Thinking,
    "tool_call": ToolCall,
    "tool_calls": ToolCalls,
    "wait_ms": Wait,
    "stall": Stall,
    "error": Error,
    "drop": Drop,
    "finish": Finish,
    "raw": Raw,
    "usage": Usage,
}
"""Every kind of action by the field that names it."""


class When(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the history must be like for a turn to be played; everything given must hold.

    - ``users``, ``assistants``, ``results``: how many user, assistant and tool messages there are.
    - ``last_user``, ``last_result``: a piece of the last user or tool message.
    - ``last_role``: the last message's role.
    - ``attempt``: how often this same history has been asked of this script, from 1 (kept in memory).
    """

    users: int | None = None
    assistants: int | None = None
    results: int | None = None
    last_user: str | None = None
    last_result: str | None = None
    last_role: Literal["system", "user", "assistant", "tool"] | None = None
    attempt: Count | None = None


class Turn(Struct, frozen=True, kw_only=True):
    """One answer: what the model does when it is called once."""

    actions: tuple[AnyAction, ...]
    when: When | None = None
    split_bytes: int | None = None
    """Write the answer's bytes in pieces of this size, each in a packet of its own; over the wire only."""


class Script(Struct, frozen=True, kw_only=True):
    """A scripted model."""

    name: str
    turns: tuple[Turn, ...]
    description: str = ""


class _RawTurn(Struct, frozen=True, forbid_unknown_fields=True):
    actions: list[dict[str, Any]] = []
    when: When | None = None
    split_bytes: Count | None = None


class _RawScript(Struct, frozen=True, forbid_unknown_fields=True):
    turns: Annotated[list[_RawTurn], Meta(min_length=1)]
    description: str = ""


def parse_script(name: str, table: Any, where: str) -> Script:
    """Check one script.

    Args:
        name: What a request's ``script/NAME`` names.
        table: The TOML table.
        where: The file, for messages.

    Raises:
        ScriptError: Names the turn and the action.
    """
    try:
        raw = msgspec.convert(table, _RawScript)
    except msgspec.ValidationError as error:
        raise ScriptError(f"{where}: script {name!r}: {error}") from None
    turns = []
    for number, turn in enumerate(raw.turns, 1):
        actions = tuple(
            _parse_action(action, f"{where}: script {name!r}, turn {number}, action {at}")
            for at, action in enumerate(turn.actions, 1)
        )
        turns.append(Turn(actions=actions, when=turn.when, split_bytes=turn.split_bytes))
    return Script(name=name, turns=tuple(turns), description=raw.description)


def _parse_action(table: dict[str, Any], where: str) -> AnyAction:
    kinds = [kind for kind in ACTIONS if kind in table]
    if len(kinds) != 1:
        found = f"{' and '.join(kinds)} together" if kinds else f"only {', '.join(table) or 'nothing'}"
        raise ScriptError(f"{where}: found {found}; an action has exactly one of {', '.join(ACTIONS)}")
    try:
        action: AnyAction = msgspec.convert(table, ACTIONS[kinds[0]])
    except msgspec.ValidationError as error:
        raise ScriptError(f"{where} ({kinds[0]}): {error}") from None
    return action


def read_scripts(paths: Iterable[Path]) -> dict[str, Script]:
    """Read scripts from files and folders (all ``*.toml`` in them), by name.

    A file holds ``[scripts.NAME]`` tables beside whatever else it is for (a scenario, say), or is one
    script by itself, named after the file. Files in a folder that hold no script are passed over.

    Raises:
        ScriptError: A file is not there or not TOML, a script is wrong, or two have the same name.
    """
    scripts: dict[str, Script] = {}
    origins: dict[str, Path] = {}
    for path, named in _files(paths):
        found = _read_file(path)
        if named and not found:
            raise ScriptError(f"{path}: holds no script: neither [scripts.NAME] nor [[turns]]")
        for script in found:
            if script.name in scripts:
                raise ScriptError(f"{path}: script {script.name!r} is in {origins[script.name]} too")
            scripts[script.name], origins[script.name] = script, path
    return scripts


def _read_file(path: Path) -> list[Script]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ScriptError(f"{path}: {error}") from None
    if "turns" in table:
        return [parse_script(path.stem, table, str(path))]
    scripts = table.get("scripts", {})
    if not isinstance(scripts, dict):
        raise ScriptError(f"{path}: `scripts` is to be a table of scripts")
    return [parse_script(name, script, str(path)) for name, script in scripts.items()]


def _files(paths: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """Each file once, and whether it was named itself."""
    seen: set[Path] = set()
    for path in paths:
        if path.is_dir():
            found = [(file, False) for file in sorted(path.rglob("*.toml"))]
        elif path.exists():
            found = [(path, True)]
        else:
            raise ScriptError(f"{path}: there is no such file")
        for file, named in found:
            if file.resolve() not in seen:
                seen.add(file.resolve())
                yield file, named
