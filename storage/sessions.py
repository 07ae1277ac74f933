"""Sessions: taking one over, appending to it, reading and changing it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from protocol.codes import CloseCode, ErrorCode
from protocol.errors import Fault
from protocol.session import MessageRole, SessionMessage, TokenUsage
from storage import interruption, requests
from storage.checkpoints import Checkpoints
from storage.cursors import from_cursor, to_cursor
from storage.database import Database
from storage.errors import Fenced, Refused
from storage.group_commit import GroupCommit
from storage.messages import last_messages, one_message, open_tools, page_of_messages
from storage.projects import hold_project
from storage.records import (
    AppendWrite,
    Claimed,
    LastRun,
    RequestRecord,
    SessionRow,
    SessionSeed,
)
from storage.traces import last_run

if TYPE_CHECKING:
    from asyncpg import Record

    from storage.database import Connection

_SessionPage: TypeAlias = tuple[list[SessionRow], str | None]
_Messages: TypeAlias = list[SessionMessage]

_LONG_S: Final = 30.0
"""Reading, restoring or deleting a whole long session may take longer than a call does otherwise."""

_CHUNK: Final = 500

_CLAIM: Final = """
update chat_session set fence = fence + 1, owner_node = $3
 where session_id = $1 and owner = $2 and status = 'active' and project_id is not distinct from $4
returning *
"""
_RECLAIM: Final = """
update chat_session set fence = fence + 1
 where session_id = $1 and fence >= $2 and owner_node = $3 and status = 'active'
returning *
"""
_WHOSE: Final = "select owner, status from chat_session where session_id = $1"
_NEXT_SEQUENCE: Final = "select next_sequence, pair_count, updated_at from chat_session where session_id = $1"

_CREATE: Final = """
insert into chat_session (session_id, owner, namespace, actor_name, project_id, metadata, linked_plan_ids,
    created_at, updated_at, last_active_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $8, $8)
on conflict do nothing
returning session_id
"""
_GET: Final = "select * from chat_session where session_id = $1 and owner = $2 and status = 'active'"
_LIST: Final = """
select * from chat_session
 where owner = $1 and status = 'active'
   and ($2::timestamptz is null or (created_at, session_id) < ($2, $3))
 order by created_at desc, session_id desc limit $4
"""
_UPDATE: Final = """
update chat_session
   set metadata = coalesce($3, metadata), actor_name = case when $7 then $4 else actor_name end,
       linked_plan_ids = coalesce($5, linked_plan_ids), updated_at = now()
 where session_id = $1 and owner = $2 and status = 'active' and ($6::bigint is null or fence = $6)
returning *
"""
_RESTORE: Final = """
update chat_session
   set next_sequence = $2, pair_count = $3, input_tokens = $4, output_tokens = $5, estimated_cost = $6,
       updated_at = $7
 where session_id = $1
"""
_DELETE: Final = """
update chat_session
   set status = 'deleted', deleted_at = now(), updated_at = now(), fence = fence + 1, metadata = '{}',
       linked_plan_ids = '{}'
 where session_id = $1 and owner = $2 and status = 'active'
returning session_id
"""
_DELETE_CONTENT: Final = (
    "delete from session_message where session_id = $1",
    "delete from agent_step where session_id = $1",
    "delete from tool_invocation where session_id = $1",
    "delete from diagnosis_run where session_id = $1",
    "delete from client_request where resource_id = $1",
)


class Sessions:
    """Statements on ``chat_session``, ``session_message`` and ``client_request``."""

    def __init__(self, db: Database, commits: GroupCommit, checkpoints: Checkpoints, *, node_id: str) -> None:
        self._node_id = node_id
        self._db = db
        self._commits = commits
        self._checkpoints = checkpoints

    # -- owning it ----------------------------------------------------------------------------------------

    async def claim(
        self, session_id: str, owner: str, window: int = 200, *, project: str | None = None
    ) -> Claimed | None:
        """Take a session over: bump its fence and settle what a dead owner left running (RU3).

        One transaction. Returns None when there is no such row (a new, empty session).

        Args:
            window: How many of the last messages to read.
            project: The project through whose socket it is reached, None for its own.

        Raises:
            Fault: ``not_found`` for another's or a deleted one, ``use_project_socket`` when the session
                belongs to another place than ``project``.
            StorageUnavailable: The store is away; nothing is owned.
        """
        async with self._db.writing() as connection, connection.transaction():
            row = await connection.fetchrow(_CLAIM, session_id, owner, self._node_id, project)
            if row is None:
                await self._refuse(connection, session_id, owner)
                return None
            await interruption.settle(connection, session_id, row["next_sequence"])
            return await _claimed(connection, row, window)

    async def _refuse(self, connection: Connection, session_id: str, owner: str) -> None:
        found = await connection.fetchrow(_WHOSE, session_id)
        if found is None:
            return
        if found["owner"] != owner or found["status"] != "active":
            raise Fault(ErrorCode.NOT_FOUND, close=CloseCode.NOT_FOUND)
        raise Fault(ErrorCode.USE_PROJECT_SOCKET, close=CloseCode.NOT_FOUND)

    async def reclaim(
        self, session_id: str, fence: int, keep_run_id: str | None = None, window: int = 200
    ) -> Claimed | None:
        """Read what really was committed after an unknown outcome, and shut out the late write.

        The fence goes up, from ``fence`` or from where an earlier call of unknown outcome left it;
        only this node's own calls can have done so, for whoever takes a session writes its node.
        ``keep_run_id``, if
        it runs, gets the new fence and goes on; any other running run is interrupted. None: the row never
        came
        to be (the seed was not committed; should it come late, the next write with a seed is fenced).

        Raises:
            Fenced: Another owner has it.
        """
        async with self._db.writing() as connection, connection.transaction():
            row = await connection.fetchrow(_RECLAIM, session_id, fence, self._node_id)
            if row is None:
                if await connection.fetchrow(_WHOSE, session_id) is None:
                    return None
                raise Fenced(session_id)
            new_fence = row["fence"]
            kept = keep_run_id is not None and await interruption.keep_running(
                connection, session_id, keep_run_id, new_fence
            )
            if not kept:
                await interruption.settle(connection, session_id, row["next_sequence"])
            claimed = await _claimed(connection, row, window)
        if kept and keep_run_id is not None:
            self._checkpoints.refence(keep_run_id, new_fence)
        return claimed

    # -- writing ------------------------------------------------------------------------------------------

    async def append(self, write: AppendWrite) -> None:
        """Append one message durably, sharing the transaction with appends of other sessions.

        Guarded by the fence and by the message's sequence being the session's next.

        Raises:
            Fenced, DuplicateRequest, Refused, StorageUnavailable: See :mod:`storage.errors`.
        """
        await self._commits.append(write)

    async def create(self, seed: SessionSeed) -> None:
        """Make an empty session, in a project that is the owner's or new.

        Raises:
            Fault: ``session_exists`` when the id was ever used, ``not_found`` for another's project.
        """
        async with self._db.writing() as connection, connection.transaction():
            if seed.project_id is not None:
                await hold_project(connection, seed.project_id, seed.owner)
            made = await _create(connection, seed)
        if made is None:
            raise Fault(ErrorCode.SESSION_EXISTS)

    async def restore(
        self, seed: SessionSeed, messages: Sequence[SessionMessage], usage: TokenUsage, updated_at: datetime
    ) -> None:
        """Make a session whole with its messages (an import), in one transaction.

        Raises:
            Fault: ``session_exists`` when its id, or one of a message, was ever used.
        """
        pairs = sum(1 for message in messages if message.role is MessageRole.ASSISTANT)
        try:
            async with self._db.writing(timeout_s=_LONG_S) as connection, connection.transaction():
                if await _create(connection, seed) is None:
                    raise Fault(ErrorCode.SESSION_EXISTS)
                for first in range(0, len(messages), _CHUNK):
                    await interruption.add_messages(
                        connection, seed.session_id, messages[first : first + _CHUNK], "import"
                    )
                await connection.execute(
                    _RESTORE,
                    seed.session_id,
                    len(messages),
                    pairs,
                    usage.input_tokens,
                    usage.output_tokens,
                    usage.estimated_cost,
                    updated_at,
                )
        except Refused as error:
            raise Fault(ErrorCode.SESSION_EXISTS, "a message of this session exists already") from error

    async def update(
        self,
        session_id: str,
        owner: str,
        *,
        metadata: dict[str, Any] | UnsetType = UNSET,
        actor_name: str | UnsetType | None = UNSET,
        linked_plan_ids: tuple[str, ...] | UnsetType = UNSET,
        fence: int | None = None,
    ) -> SessionRow:
        """Change what is given (an ``actor_name`` of None takes it away). An actor gives its ``fence``.

        Raises:
            Fault: ``not_found``.
            Fenced: With ``fence``, when the session is another's by now.
        """
        plans = None if linked_plan_ids is UNSET else list(linked_plan_ids)
        data = None if metadata is UNSET else metadata
        named = actor_name is not UNSET
        name = actor_name if named else None
        async with self._db.writing() as connection:
            row = await connection.fetchrow(_UPDATE, session_id, owner, data, name, plans, fence, named)
        if row is None and fence is not None:
            raise Fenced(session_id)
        return _session_row(_found(row))

    async def delete(self, session_id: str, owner: str) -> None:
        """Delete the content for good and leave a tombstone; the fence goes up. Fault ``not_found``."""
        async with self._db.writing(timeout_s=_LONG_S) as connection, connection.transaction():
            _found(await connection.fetchrow(_DELETE, session_id, owner))
            for statement in _DELETE_CONTENT:
                await connection.execute(statement, session_id)

    # -- reading ------------------------------------------------------------------------------------------

    async def find_request(self, resource_id: str, request_id: str) -> RequestRecord | None:
        """What is remembered of a request id (ST4)."""
        async with self._db.reading() as connection:
            return await requests.find(connection, resource_id, request_id)

    async def get(self, session_id: str, owner: str) -> SessionRow:
        """One session's metadata. Fault ``not_found``."""
        async with self._db.reading() as connection:
            return _session_row(_found(await connection.fetchrow(_GET, session_id, owner)))

    async def list(self, owner: str, *, limit: int = 50, cursor: str | None = None) -> _SessionPage:
        """The owner's sessions, newest first, and the next page's cursor (None at the end)."""
        at, key = from_cursor(cursor)
        async with self._db.reading() as connection:
            rows = await connection.fetch(_LIST, owner, at, key, limit + 1)
        page = [_session_row(row) for row in rows[:limit]]
        more = len(rows) > limit
        return page, to_cursor(page[-1].created_at, page[-1].session_id) if more else None

    async def message(self, session_id: str, message_id: str) -> SessionMessage:
        """One message, for a session's own actor. Fault ``not_found``."""
        async with self._db.reading() as connection:
            message = await one_message(connection, session_id, message_id)
        if message is None:
            raise Fault(ErrorCode.NOT_FOUND)
        return message

    async def messages(
        self, session_id: str, owner: str, limit: int | None = None, offset: int = 0
    ) -> _Messages:
        """Messages by sequence, from ``offset``. Fault ``not_found``."""
        async with self._db.reading(timeout_s=_LONG_S if limit is None else None) as connection:
            _found(await connection.fetchrow(_GET, session_id, owner))
            return await page_of_messages(connection, session_id, offset, limit)


def _found(row: Record | None) -> Record:
    if row is None:
        raise Fault(ErrorCode.NOT_FOUND, close=CloseCode.NOT_FOUND)
    return row


async def _create(connection: Connection, seed: SessionSeed) -> str | None:
    made: str | None = await connection.fetchval(
        _CREATE,
        seed.session_id,
        seed.owner,
        seed.namespace,
        seed.actor_name,
        seed.project_id,
        seed.metadata,
        list(seed.linked_plan_ids),
        seed.created_at,
    )
    return made


async def _claimed(connection: Connection, row: Record, window: int) -> Claimed:
    """The session as it is within this transaction, after what ran was settled."""
    session_id = row["session_id"]
    now = await connection.fetchrow(_NEXT_SEQUENCE, session_id)
    assert now is not None
    messages = await last_messages(connection, session_id, window)
    last: LastRun | None = await last_run(connection, session_id)
    return Claimed(
        session_id=session_id,
        owner=row["owner"],
        fence=row["fence"],
        namespace=row["namespace"],
        actor_name=row["actor_name"],
        project_id=row["project_id"],
        metadata=row["metadata"],
        linked_plan_ids=tuple(row["linked_plan_ids"]),
        usage=_usage(row),
        created_at=row["created_at"],
        updated_at=now["updated_at"],
        next_sequence=now["next_sequence"],
        messages=messages,
        last_run=last,
        tools=await open_tools(connection, session_id),
        pair_count=now["pair_count"],
    )


def _session_row(row: Record) -> SessionRow:
    values = dict(row)
    return msgspec.convert(
        {
            **{name: values[name] for name in SessionRow.__struct_fields__ if name in values},
            "message_count": values["next_sequence"],
            "linked_plan_ids": tuple(values["linked_plan_ids"]),
            "usage": _usage(row),
        },
        SessionRow,
    )


def _usage(row: Record) -> TokenUsage:
    return TokenUsage(
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        estimated_cost=row["estimated_cost"],
    )
