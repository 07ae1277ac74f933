"""Sessions and their messages."""

from __future__ import annotations

from typing import Any

from protocol.session import SessionMessage
from storage.database import Database
from storage.group_commit import GroupCommit
from storage.records import (
    AppendWrite,
    Claimed,
    RequestRecord,
    SessionRow,
    SessionSeed,
)


class Sessions:
    """Statements on ``chat_session``, ``session_message`` and ``client_request``."""

    def __init__(self, db: Database, commits: GroupCommit, *, node_id: str) -> None: ...

    async def claim(
        self, session_id: str, owner: str, node_id: str, window: int = 200, *, project: str | None = None
    ) -> Claimed | None:
        """Take a session over: bump its fence and settle what a dead owner left running (RU3).

        Returns None when there is no such row (a new, empty session).

        Raises:
            Fault: ``not_found`` for another's or a deleted one, ``use_project_socket`` when the session
                belongs to another place than ``project``.
            StorageUnavailable: The store is away; nothing is owned.
        """
        raise NotImplementedError

    async def reclaim(
        self, session_id: str, fence: int, keep_run_id: str | None = None, window: int = 200
    ) -> Claimed | None:
        """Read what really was committed after an unknown outcome, and shut out the late write.

        The fence goes up by one; ``keep_run_id``, if still running, gets the new fence. None: the seed never
        committed.

        Raises:
            Fenced: Another owner has it (the fence is not ``fence``).
        """
        raise NotImplementedError

    async def append(self, write: AppendWrite) -> None:
        """Append one message durably, sharing the transaction with appends of other sessions.

        Raises:
            Fenced, DuplicateRequest, Refused, StorageUnavailable.
        """
        raise NotImplementedError

    async def find_request(self, resource_id: str, request_id: str) -> RequestRecord | None:
        """What is remembered of a request id."""
        raise NotImplementedError

    async def create(self, seed: SessionSeed) -> None:
        """Make an empty session; Fault ``session_exists`` when the id was ever used."""

    async def get(self, session_id: str, owner: str) -> SessionRow:
        """One session's metadata; Fault ``not_found``."""
        raise NotImplementedError

    async def list(
        self, owner: str, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[SessionRow], str | None]:
        """The owner's sessions, newest first, and the next page's cursor."""
        raise NotImplementedError

    async def messages(
        self, session_id: str, owner: str, limit: int | None = None, offset: int = 0
    ) -> list[SessionMessage]:
        """Messages by sequence, from ``offset``; Fault ``not_found``."""
        raise NotImplementedError

    async def update(
        self,
        session_id: str,
        owner: str,
        *,
        metadata: dict[str, Any] | None = None,
        actor_name: str | None = None,
        linked_plan_ids: tuple[str, ...] | None = None,
        fence: int | None = None,
    ) -> SessionRow:
        """Change what is given (None leaves it); with ``fence`` as its actor's write. Fault ``not_found``."""
        raise NotImplementedError

    async def delete(self, session_id: str, owner: str) -> None:
        """Delete the content for good and leave a tombstone; the fence goes up. Fault ``not_found``."""
