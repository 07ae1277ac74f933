"""The JSON schema that a model may put to a person's answer: which are taken, and checking against one. Pure.

A schema comes from a model, and this process has one thread: whatever could take long or reach out is
refused beforehand. So there are no references, and patterns only of a kind that is matched quickly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from re import _constants as ops  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
from re import _parser as parser  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any, Final

import jsonschema
import orjson
from jsonschema import Draft202012Validator
from jsonschema.validators import extend
from referencing import Registry

from server.tools.arguments import InvalidArguments, read_json

SCHEMA_BYTES: Final = 16_384
ANSWER_CHARACTERS: Final = 65_536
"""The longest answer that is checked against a schema; a longer one is refused."""

PATTERN_CHARACTERS: Final = 128
"""The longest text that a pattern is matched with; a longer one does not match."""

_REFUSED: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$id", "patternProperties"})
_WAYS: Final = PATTERN_CHARACTERS**3
"""How many ways a pattern may have of dividing a text among its repetitions."""


class InvalidSchema(ValueError):
    """A schema that is none, or is not taken; the words are for the model."""


class InvalidAnswer(ValueError):
    """An answer that its schema refuses; the words are for the person."""


def check_schema(schema: Mapping[str, Any]) -> None:
    """Look whether a schema is taken; raises :class:`InvalidSchema`."""
    if len(orjson.dumps(schema)) > SCHEMA_BYTES:
        raise InvalidSchema(f"the schema is larger than {SCHEMA_BYTES} bytes")
    for key, value in _members(schema):
        if key in _REFUSED:
            raise InvalidSchema(f"{key} is not supported here")
        if key == "pattern" and isinstance(value, str) and not is_quick(value):
            raise InvalidSchema(f"the pattern {value[:100]!r} is not supported here: write a simpler one")
    try:
        Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise InvalidSchema(f"not a JSON schema: {error.message[:300]}") from None


def check_answer(schema: Mapping[str, Any], answer: str) -> None:
    """Check an answer against a schema that :func:`check_schema` has taken.

    The answer fits as the JSON that it is the text of, or as a text: ``Berlin`` needs no quotes.

    Raises:
        InvalidAnswer: It fits neither way.
    """
    if len(answer) > ANSWER_CHARACTERS:
        raise InvalidAnswer(f"longer than {ANSWER_CHARACTERS} characters")
    validator = _Validator(schema, registry=Registry())
    complaint = _complaint(validator, answer)
    if complaint is None:
        return
    try:
        value = read_json(answer)
    except InvalidArguments:
        raise InvalidAnswer(complaint) from None
    complaint = _complaint(validator, value)
    if complaint is not None:
        raise InvalidAnswer(complaint)


def is_quick(pattern: str) -> bool:
    """Whether a regular expression cannot take long on a short text: no repetition or choice within a
    repetition, few repetitions in all, nothing that looks around or back."""
    try:
        tree = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    ways = 1
    for one in _ways(tree, repeated=False):
        if one is None:
            return False
        ways *= one
        if ways > _WAYS:
            return False
    return True


def _ways(tree: Any, *, repeated: bool) -> Iterator[int | None]:
    """How many lengths each repetition may have; None for what is not taken."""
    for op, argument in tree:
        if op in {ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT}:
            least, most, body = argument
            if least != most:
                yield None if repeated else min(int(most) - least + 1, PATTERN_CHARACTERS)
            elif least > PATTERN_CHARACTERS:
                yield None
            yield from _ways(body, repeated=repeated or most > 1)
        elif op is ops.SUBPATTERN:
            yield from _ways(argument[-1], repeated=repeated)
        elif op is ops.BRANCH:
            yield None if repeated else len(argument[1])
            for branch in argument[1]:
                yield from _ways(branch, repeated=repeated)
        elif op not in {ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN, ops.AT}:
            yield None


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """All members of all objects within a value."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield key, item
            yield from _members(item)
    elif isinstance(value, list):
        for item in value:
            yield from _members(item)


def _complaint(validator: Any, value: Any) -> str | None:
    """What is wrong, and where; None if nothing is."""
    error = next(validator.iter_errors(value), None)
    if error is None:
        return None
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return f"{error.message[:300]}{f' - at `${where}`' if where else ''}"


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and (
        len(instance) > PATTERN_CHARACTERS or re.search(pattern, instance) is None
    ):
        yield jsonschema.ValidationError(f"{instance[:100]!r} does not match {pattern!r}")


def _unique(_validator: Any, unique: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if unique and isinstance(instance, list):
        seen = {orjson.dumps(item, option=orjson.OPT_SORT_KEYS) for item in instance}
        if len(seen) < len(instance):
            yield jsonschema.ValidationError("it has an element twice")


_extend: Final[Any] = extend
_Validator: Final[Any] = _extend(Draft202012Validator, {"pattern": _pattern, "uniqueItems": _unique})
