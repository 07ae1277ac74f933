"""Ids and the clock: what names a session, a message, a run, and when something happened."""

from __future__ import annotations

import re
import secrets
import threading
import time
from datetime import UTC, datetime
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta
from ulid import ULID

ULID_PATTERN: Final = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"
RUN_PREFIX: Final = "run-"
_ULID: Final = re.compile("[0-7][0-9A-HJKMNP-TV-Z]{25}")

# The lengths are not redundant: Python's `$` would let a trailing newline pass.
Ulid = Annotated[str, Meta(pattern=ULID_PATTERN, min_length=26, max_length=26)]
RequestId = Annotated[str, Meta(min_length=1, max_length=128)]


class _Increasing:
    """Numbers of milliseconds and random bits, strictly increasing, also when the clock steps back."""

    def __init__(self, random_bits: int) -> None:
        self._random_bits = random_bits
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        drawn = (time.time_ns() // 1_000_000) << self._random_bits | secrets.randbits(self._random_bits)
        with self._lock:
            self._last = drawn if drawn > self._last else self._last + 1
            return self._last


_ulids: Final = _Increasing(80)
_uuids: Final = _Increasing(74)


def new_ulid() -> str:
    """A new ULID, greater than every one made before in this process."""
    return str(ULID.from_int(_ulids.next()))


def new_message_id() -> str:
    """The id of a new message: a ULID."""
    return new_ulid()


def new_uuid() -> str:
    """A new UUID (version 7), greater than every one made before in this process: canvas ids sort by age."""
    number = _uuids.next()
    time_and_12_bits, low_62_bits = number >> 62, number & (1 << 62) - 1
    milliseconds, high_12_bits = time_and_12_bits >> 12, time_and_12_bits & 0xFFF
    return str(UUID(int=milliseconds << 80 | 7 << 76 | high_12_bits << 64 | 2 << 62 | low_62_bits))


def new_run_id() -> str:
    """The id of a new run: ``run-`` and a ULID."""
    return RUN_PREFIX + new_ulid()


def is_ulid(text: object) -> bool:
    """Whether this is a canonical ULID: a string of 26 upper-case Crockford characters, the first 0 to 7."""
    return isinstance(text, str) and _ULID.fullmatch(text) is not None


def utc_now() -> datetime:
    """The time now, aware, in UTC, to the microsecond."""
    return datetime.now(UTC)
