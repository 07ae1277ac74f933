"""Ids and the clock: what names a session, a message, a run, and when something happened."""

from __future__ import annotations

import re
import secrets
import threading
import time
from datetime import UTC, datetime
from typing import Annotated, Final

from msgspec import Meta
from ulid import ULID

ULID_PATTERN: Final = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"
RUN_PREFIX: Final = "run-"
_ULID: Final = re.compile("[0-7][0-9A-HJKMNP-TV-Z]{25}")

# The lengths are not redundant: Python's `$` would let a trailing newline pass.
Ulid = Annotated[str, Meta(pattern=ULID_PATTERN, min_length=26, max_length=26)]
RequestId = Annotated[str, Meta(min_length=1, max_length=128)]


class _Ulids:
    """Makes strictly increasing ULIDs, also within one millisecond and when the clock steps back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> str:
        drawn = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
        with self._lock:
            self._last = drawn if drawn > self._last else self._last + 1
            return str(ULID.from_int(self._last))


_ulids: Final = _Ulids()


def new_ulid() -> str:
    """A new ULID, greater than every one made before in this process."""
    return _ulids.next()


def new_message_id() -> str:
    """The id of a new message: a ULID."""
    return _ulids.next()


def new_run_id() -> str:
    """The id of a new run: ``run-`` and a ULID."""
    return RUN_PREFIX + _ulids.next()


def is_ulid(text: object) -> bool:
    """Whether this is a canonical ULID: a string of 26 upper-case Crockford characters, the first 0 to 7."""
    return isinstance(text, str) and _ULID.fullmatch(text) is not None


def utc_now() -> datetime:
    """The time now, aware, in UTC, to the microsecond."""
    return datetime.now(UTC)
