"""The ``assert`` step: statements over collected frames.

Pure: takes lists of frames, returns what does not hold. A *selector* names a value made of frames::

    concat llm_text_chunk.text          the texts of all these frames, one after the other
    one assistant_message_complete.content    the value of the only such frame
    first / last TYPE.PATH              of the first or last such frame
    list TYPE.PATH                      all values, as an array
    count TYPE                          how many there are
    = some text                         itself

``TYPE`` may have a list of its own, ``concat before:llm_text_chunk.text``, may be a pattern (``llm_*``) or
``a|b``; selectors are joined with `` + `` (texts or arrays).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any, Final

import msgspec

from scenarios.client import Received
from scenarios.format import Assert, NoneAfter
from scenarios.matchers import compare, show
from scenarios.values import take

Lists = Mapping[str, Sequence[Received]]

_SELECTOR: Final = re.compile(r"(concat|one|first|last|list|count) +(?:([\w-]+):)?([\w*|?]+)((?:[.\[].*)?)")


class SelectorError(ValueError):
    """A selector is malformed, or there are not the frames that it needs."""


def is_of(frame: Mapping[str, Any], types: Sequence[str]) -> bool:
    """Whether a frame's type is one of ``types`` (which may be patterns)."""
    return any(fnmatchcase(str(frame.get("type")), pattern) for pattern in types)


def select(selector: str, lists: Lists, default: str) -> Any:
    """Evaluate a selector; frames come from the list ``default`` unless it names another.

    Raises:
        SelectorError: It is malformed, there is no such list, or not exactly the frames it needs.
        PathError: A frame lacks the field.
    """
    if selector.startswith("="):
        return selector[1:].removeprefix(" ")
    parts = [_select_one(part.strip(), lists, default) for part in selector.split(" + ")]
    total = parts[0]
    for part in parts[1:]:
        if type(total) is not type(part) or not isinstance(total, str | list):
            raise SelectorError(f"{selector!r} joins {show(total, 60)} and {show(part, 60)}")
        total = total + part
    return total


def _select_one(selector: str, lists: Lists, default: str) -> Any:
    match = _SELECTOR.fullmatch(selector)
    if match is None:
        raise SelectorError(f"{selector!r} is no selector")
    function, name, types, path = match.groups()
    if (name or default) not in lists:
        raise SelectorError(f"nothing was collected into {name or default!r}")
    frames = [item.frame for item in lists[name or default] if is_of(item.frame, types.split("|"))]
    if function == "count":
        return len(frames)
    values = [take(frame, path) for frame in frames]
    match function:
        case "concat":
            return "".join(values)
        case "list":
            return values
        case "one" if len(values) != 1:
            raise SelectorError(f"{selector!r}: there are {len(values)} such frames")
        case _ if not values:
            raise SelectorError(f"{selector!r}: there is no such frame")
    return values[-1 if function == "last" else 0]


def check(step: Assert, lists: Lists) -> list[str]:
    """Check a step (its variables are expanded); each text says what does not hold."""
    name = step.assert_
    if name not in lists:
        return [f"nothing was collected into {name!r}"]
    items = lists[name]
    frames = [item.frame for item in items]
    faults: list[str] = []
    if step.equal:
        faults += _check_equal(step.equal, lists, name)
    if step.every is not None:
        faults += [
            f"frame {at} ({f['type']}): {bad}"
            for at, f in enumerate(frames)
            for bad in compare(step.every, f)
        ]
    for types, wanted in step.counts.items():
        count = sum(is_of(frame, types.split("|")) for frame in frames)
        faults += [str(bad) for bad in compare(wanted, count, f"count of {types}")]
    faults += _check_order(step.order, frames)
    if step.none_after is not None:
        faults += _check_none_after(step.none_after, frames)
    for selector, wanted in step.values.items():
        faults += [str(bad) for bad in compare(wanted, select(selector, lists, name), selector)]
    if step.json is not None:
        faults += _check_json(select(step.json, lists, name))
    if step.dense:
        faults += _check_dense([frame["seq"] for frame in frames if "seq" in frame])
    if step.ascending is not None:
        faults += _check_ascending(step.ascending, select(f"list {step.ascending}", lists, name))
    if step.same_bytes is not None:
        faults += _check_same_bytes(name, items, step.same_bytes, lists)
    return faults


def _check_equal(selectors: Sequence[str], lists: Lists, name: str) -> list[str]:
    values = [(selector, select(selector, lists, name)) for selector in selectors]
    first, wanted = values[0]
    return [
        f"{selector} is {show(value)}\n    {first} is {show(wanted)}{_difference(wanted, value)}"
        for selector, value in values[1:]
        if value != wanted
    ]


def _difference(wanted: Any, value: Any) -> str:
    if not (isinstance(wanted, str) and isinstance(value, str)):
        return ""
    at = next(
        (i for i, (a, b) in enumerate(zip(wanted, value, strict=False)) if a != b),
        min(len(wanted), len(value)),
    )
    left, right = (show(text[at : at + 40]) for text in (wanted, value))
    return f"\n    they differ from character {at} on: {left} and {right}"


def _check_order(order: Sequence[str], frames: Sequence[dict[str, Any]]) -> list[str]:
    places = [(types, [at for at, f in enumerate(frames) if is_of(f, types.split("|"))]) for types in order]
    faults = [f"order: no {types}" for types, at in places if not at]
    present = [(types, at) for types, at in places if at]
    faults += [
        f"order: a {later} (frame {at_later[0]}) before the last {earlier} (frame {at_earlier[-1]})"
        for (earlier, at_earlier), (later, at_later) in pairwise(present)
        if at_later[0] < at_earlier[-1]
    ]
    return faults


def _check_none_after(rule: NoneAfter, frames: Sequence[dict[str, Any]]) -> list[str]:
    first = next((at for at, frame in enumerate(frames) if not compare(rule.frame, frame)), None)
    if first is None:
        return [f"none_after: no frame like {show(rule.frame)}"]
    return [
        f"frame {at} ({frame['type']}) came after {frames[first]['type']} (frame {first})"
        for at, frame in enumerate(frames)
        if at > first and not is_of(frame, rule.allow)
    ]


def _check_json(text: Any) -> list[str]:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, TypeError) as error:
        return [f"{show(text)} is not JSON: {error}"]
    return []


def _check_dense(numbers: Sequence[int]) -> list[str]:
    return [f"seq {after} follows {before}" for before, after in pairwise(numbers) if after != before + 1]


def _check_ascending(name: str, numbers: Sequence[Any]) -> list[str]:
    return [] if list(numbers) == list(range(len(numbers))) else [f"{name} is {show(numbers)}, not 0, 1, 2 …"]


def _check_same_bytes(name: str, items: Sequence[Received], other: str, lists: Lists) -> list[str]:
    if other not in lists:
        return [f"nothing was collected into {other!r}"]
    ours, theirs = (
        {i.frame["seq"]: i.data for i in some if "seq" in i.frame} for some in (items, lists[other])
    )
    both = sorted(ours.keys() & theirs.keys())
    if not both:
        return [f"{name} and {other} have no seq in common"]
    return [
        f"seq {seq}: {ours[seq]!r} in {name}, {theirs[seq]!r} in {other}"
        for seq in both
        if ours[seq] != theirs[seq]
    ]
