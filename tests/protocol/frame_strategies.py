"""Hypothesis strategies for structs, from their types alone: a new frame is tested as soon as it exists."""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from msgspec import inspect as mi

from protocol.session import TokenUsage

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
INTEGERS = st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
ULIDS = st.from_regex(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", fullmatch=True)
COUNTS = st.integers(0, 2**63 - 1)
USAGES = st.builds(
    TokenUsage, input_tokens=COUNTS, output_tokens=COUNTS, estimated_cost=st.floats(0, 1e9) | st.just(-0.0)
)


def of_struct(struct: type[Any]) -> st.SearchStrategy[Any]:
    """Valid instances of a struct; what its ``__post_init__`` refuses is drawn again."""
    if struct is TokenUsage:
        return USAGES
    described = mi.type_info(struct)
    assert isinstance(described, mi.StructType)
    fields = {
        field.name: st.just(UNSET) | _of_type(field.type) if field.default is UNSET else _of_type(field.type)
        for field in described.fields
    }
    return st.fixed_dictionaries(fields).map(lambda values: _made(struct, values)).filter(bool)


def _made(struct: type[Any], values: dict[str, Any]) -> Any:
    try:
        return struct(**values)
    except ValueError:
        return None


def _of_type(described: mi.Type) -> st.SearchStrategy[Any]:
    match described:
        case mi.StrType(pattern=str() as pattern):
            return st.from_regex(pattern.removesuffix("$") + r"\Z")
        case mi.StrType():
            return st.text(
                st.characters(codec="utf-8", exclude_characters="\0"),
                min_size=described.min_length or 0,
                max_size=min(described.max_length or 20, 130),
            )
        case mi.IntType():
            low = -(2**63) if described.ge is None else int(described.ge)
            high = 2**63 - 1 if described.le is None else int(described.le)
            return st.integers(low, high)
        case mi.FloatType():
            return FLOATS if described.ge is None else st.floats(described.ge, 1e9)
        case mi.BoolType():
            return st.booleans()
        case mi.NoneType():
            return st.none()
        case mi.DateTimeType():
            return TIMES
        case mi.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case mi.LiteralType(values=values):
            return st.sampled_from(values)
        case mi.ListType(item_type=item):
            return st.lists(_of_type(item), max_size=2)
        case mi.VarTupleType(item_type=item):
            return st.lists(_of_type(item), max_size=2).map(tuple)
        case mi.DictType(value_type=value):
            return st.dictionaries(TEXT, _of_type(value), max_size=3)
        case mi.RawType():
            return JSON.map(lambda value: Raw(msgspec.json.encode(value)))
        case mi.UnionType(types=types):
            return st.one_of([_of_type(kind) for kind in types])
        case mi.StructType(cls=cls):
            return of_struct(cls)
        case mi.AnyType():
            return JSON
        case _:
            raise NotImplementedError(described)


def comparable(value: Any) -> Any:
    """A value whose equality is that of its JSON: raw parts compare by what they say."""
    if isinstance(value, Raw):
        return msgspec.json.decode(value)
    if isinstance(value, msgspec.Struct):
        return type(value), {name: comparable(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value
