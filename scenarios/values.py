"""Variables and paths: how ``${…}`` in a scenario becomes a value, and how captures are taken.

Pure: this module knows neither sockets nor steps. A string that is one ``${…}`` and nothing else becomes
the variable's own value (a number stays a number); inside a longer string it becomes text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from protocol.ids import new_ulid

_REFERENCE: Final = re.compile(r"\$(\$\{|\{([^{}]*)\})")
_PART: Final = re.compile(r"\.?([A-Za-z_][\w-]*)|\[(-?\d+|\*)\]")
_ARITHMETIC: Final = re.compile(r"\s+([-+*])\s+(\d+)")
_OPERATORS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


class UnknownVariable(LookupError):
    """A ``${…}`` names something that this run does not have."""


class PathError(LookupError):
    """A path points to nothing."""


def split_path(path: str) -> list[str | int | None]:
    """Split ``a.b[0].c`` (or ``$.a.b``) into keys, indexes and ``None`` for ``[*]``."""
    rest = path.removeprefix("$")
    parts: list[str | int | None] = []
    position = 0
    while position < len(rest):
        match = _PART.match(rest, position)
        if match is None:
            raise PathError(f"{path!r} is not a path")
        key, index = match.groups()
        parts.append(key if index is None else None if index == "*" else int(index))
        position = match.end()
    return parts


def take(value: Any, path: str) -> Any:
    """Return what ``path`` points to inside decoded JSON; ``[*]`` gives the list of all.

    Raises:
        PathError: There is no such key or index, and the text says where it ended.
    """
    return _take(value, split_path(path), path)


def _take(value: Any, parts: list[str | int | None], path: str) -> Any:
    for at, part in enumerate(parts):
        if part is None:
            if not isinstance(value, list):
                raise PathError(f"{path}: [*] needs an array, not {type(value).__name__}")
            return [_take(item, parts[at + 1 :], path) for item in value]
        try:
            value = value[part]
        except (LookupError, TypeError):
            raise PathError(f"{path}: nothing at {part!r}") from None
    return value


class Variables:
    """The variables of one run of a scenario.

    - ``${session}`` and ``${id.NAME}`` are fresh ULIDs, made at their first use and kept for the run.
    - ``${fresh}`` is another ULID wherever and whenever it stands.
    - ``${run}`` is a text that no other run has.
    - Everything else was put there by a capture, by ``as``, by the file's ``[vars]`` or by a client.
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {"run": new_ulid().lower()}
        self._ids: dict[str, str] = {}

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def __getitem__(self, expression: str) -> Any:
        """Evaluate ``NAME.path``, optionally followed by ``+ 5`` or the like (left to right).

        Raises:
            UnknownVariable: No such variable, or arithmetic on something that is no integer.
        """
        text = expression.strip()
        terms = list(_ARITHMETIC.finditer(text))
        value = self._lookup(text[: terms[0].start()] if terms else text)
        for term in terms:
            if not isinstance(value, int):
                raise UnknownVariable(f"${{{expression}}}: {value!r} is no integer")
            value = _OPERATORS[term[1]](value, int(term[2]))
        return value

    def _lookup(self, name: str) -> Any:
        if name not in self._values and (name == "session" or name.startswith("id.")):
            return self._ids.setdefault(name, new_ulid())
        if name == "fresh":
            return new_ulid()
        try:
            return take(self._values, name)
        except PathError as error:
            raise UnknownVariable(f"no variable ${{{name}}} ({error})") from None

    def expand(self, value: Any) -> Any:
        """Replace every ``${…}`` inside ``value``, at any depth; ``$${`` stands for a literal ``${``."""
        match value:
            case str():
                return self._expand_text(value)
            case list():
                return [self.expand(item) for item in value]
            case dict():
                return {self._text(key): self.expand(item) for key, item in value.items()}
            case _:
                return value

    def _text(self, text: str) -> str:
        return str(self._expand_text(text))

    def _expand_text(self, text: str) -> Any:
        whole = _REFERENCE.fullmatch(text)
        if whole is not None and whole[2] is not None:
            return self[whole[2]]
        return _REFERENCE.sub(lambda found: "${" if found[2] is None else str(self[found[2]]), text)

    def number(self, value: int | str) -> int:
        """Expand a step's number (a time-out, a count).

        Raises:
            UnknownVariable: It is no integer after expansion.
        """
        expanded = self.expand(value)
        if isinstance(expanded, bool) or not isinstance(expanded, int):
            raise UnknownVariable(f"{value!r} is {expanded!r}, not an integer")
        return expanded
