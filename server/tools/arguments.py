"""What a model wrote as a call's arguments, and what a person wrote in place of them. Pure.

The text itself is what is shown, hashed and kept (TL6); nothing here changes it, but that nothing becomes
``{}``. What is read out of it is made fit for the store (ER2): escapes of lone surrogates and of NUL become
U+FFFD.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from protocol.errors import BadFrame
from protocol.strict import check_json, clean_text, is_plain

MAX_DEPTH: Final = 64
"""The deepest nesting that is read."""


class InvalidArguments(ValueError):
    """Not the JSON text of an object; the words are for the model or the person who wrote it."""


def normalised(arguments: str) -> str:
    """What a model wrote as arguments; models write nothing when a tool takes nothing: ``{}``."""
    return arguments if arguments.strip() else "{}"


def read_object(arguments: str) -> dict[str, Any]:
    """Read the JSON text of an object.

    Raises:
        InvalidArguments: Not JSON (a number out of range, NaN, a byte order mark and nesting beyond
            :data:`MAX_DEPTH` too), or not an object.
    """
    value = read_json(arguments)
    if not isinstance(value, dict):
        raise InvalidArguments(f"a JSON object is expected, not {_KINDS[type(value)]}")
    return value


def read_json(text: str) -> Any:
    """Read a JSON text; raises :class:`InvalidArguments` as :func:`read_object`."""
    try:
        text = clean_text(text)
        is_plain(text.encode(), MAX_DEPTH)
        value = clean_json(json.loads(text, parse_constant=_refuse_constant))
        check_json(value, MAX_DEPTH)
    except BadFrame as fault:
        raise InvalidArguments(fault.message) from None
    except ValueError as error:
        raise InvalidArguments(f"not valid JSON: {error}") from None
    return value


def clean_json(value: Any) -> Any:
    """JSON types with every text and key clean (ER2)."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_KINDS: Final = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}
