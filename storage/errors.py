"""What storage raises; callers never see an asyncpg, redis or OS error.

Two kinds: a :class:`~protocol.errors.Fault` is what a client may be told, the plain exceptions are told to
the actor, which decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.codes import ErrorCode
from protocol.errors import Fault

if TYPE_CHECKING:
    from storage.records import RequestRecord


class StorageUnavailable(Fault):
    """The database cannot be asked now; retrying later helps.

    Attributes:
        outcome_unknown: True when a write may or may not have been committed (a time-out, or the connection
            lost, while a statement or COMMIT was under way). The actor then reloads its state (``reclaim``)
            before it answers. False means that nothing was written.
    """

    def __init__(self, message: str = "the database is away", *, outcome_unknown: bool = False) -> None:
        super().__init__(ErrorCode.STORAGE_UNAVAILABLE, message, retry_after_ms=500)
        self.outcome_unknown = outcome_unknown


class Fenced(Exception):
    """The guarded write touched no row: another process owns the resource now, or the session is deleted.

    The actor's memory is stale; it ends (close 4012) and whoever is asked next loads from the store.
    """


class DuplicateRequest(Exception):
    """The request id was used before on this resource (ST4); nothing was written.

    Attributes:
        record: What is remembered of it. Compare ``kind`` and ``body_sha256`` with the new request's.
    """

    def __init__(self, record: RequestRecord) -> None:
        super().__init__(record.request_id)
        self.record = record


class Refused(Exception):
    """The database refused this row (a constraint, a value it cannot hold): a bug of the caller.

    Nothing was written. Only this row fails: others of its batch are written.
    """


class EmbeddedError(Exception):
    """The embedded server cannot be had; the message says why and what to do."""
