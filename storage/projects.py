"""Projects: taking one over with all its conversations, reading, deleting. Their canvases are in
:mod:`storage.canvases`."""

# ruff: noqa: S608 (statements are put together from constants only)

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.codes import CloseCode, ErrorCode
from protocol.errors import Fault
from protocol.views import ConversationSummary
from storage import interruption
from storage.cursors import from_cursor, to_cursor
from storage.database import Database
from storage.errors import Fenced
from storage.records import ProjectClaimed, ProjectRow, ProjectSeed

if TYPE_CHECKING:
    from asyncpg import Record

    from storage.database import Connection

_LONG_S: Final = 30.0
"""Deleting a large project may take longer than a call does otherwise."""

_LAST: Final = 10
"""How many of the conversations used last are shown at once."""

_CLAIM: Final = """
update project set fence = fence + 1, owner_node = $3
 where project_id = $1 and owner = $2 and status = 'active'
returning *
"""
# The project's owner owns its conversations: whoever had one before is fenced at its next write.
_CLAIM_CONVERSATIONS: Final = """
update chat_session set fence = fence + 1, owner_node = $2
 where session_id in (
    select session_id from chat_session where project_id = $1 and status = 'active'
     order by session_id for no key update)
"""
_RUNNING: Final = """
select s.session_id, s.next_sequence from chat_session s
 where s.project_id = $1 and s.status = 'active'
   and (exists (select from diagnosis_run r where r.session_id = s.session_id and r.status = 'running')
     or exists (select from tool_invocation t
                 where t.session_id = s.session_id and (t.execution_state = 'running'
                    or (t.execution_state = 'waiting' and t.confirmation_state = 'not_required'))))
 order by s.session_id
"""
_SHOWN: Final = """
select session_id from (
    select s.session_id, s.last_active_at,
           row_number() over (order by s.last_active_at desc, s.session_id desc) as place,
           exists (select from tool_invocation t
                    where t.session_id = s.session_id and t.execution_state = 'waiting') as waits
      from chat_session s
     where s.project_id = $1 and s.owner = $2 and s.status = 'active') as c
 where place <= $3 or waits
 order by place desc
"""
_RECLAIM: Final = """
update project set fence = fence + 1
 where project_id = $1 and fence >= $2 and owner_node = $3 and status = 'active'
returning *
"""
_WHOSE: Final = "select owner, status from project where project_id = $1"

_CREATE: Final = """
insert into project (project_id, owner, metadata, fence, owner_node, created_at, updated_at)
values ($1, $2, $3, $4, $5, $6, $6)
on conflict do nothing
returning project_id
"""
_GET: Final = "select * from project where project_id = $1 and owner = $2 and status = 'active'"
_CONVERSATIONS: Final = """
select session_id, next_sequence, metadata, created_at, updated_at from chat_session
 where project_id = $1 and owner = $2 and status = 'active'
   and ($3::timestamptz is null or (created_at, session_id) < ($3, $4))
 order by created_at desc, session_id desc limit $5
"""
_DELETE: Final = """
update project
   set status = 'deleted', deleted_at = now(), updated_at = now(), fence = fence + 1, metadata = '{}'
 where project_id = $1 and owner = $2 and status = 'active'
returning project_id
"""
_MINE: Final = "(select session_id from chat_session where project_id = $1)"
_DELETE_CONTENT: Final = (
    "delete from canvas_edge where project_id = $1",
    "delete from canvas_node where project_id = $1",
    "delete from client_request where resource_id = $1",
    f"delete from session_message where session_id in {_MINE}",
    f"delete from agent_step where session_id in {_MINE}",
    f"delete from tool_invocation where session_id in {_MINE}",
    f"delete from diagnosis_run where session_id in {_MINE}",
    """
update chat_session
   set status = 'deleted', deleted_at = now(), updated_at = now(), fence = fence + 1, metadata = '{}',
       linked_plan_ids = '{}'
 where project_id = $1 and status = 'active'
""",
)


class Projects:
    """Statements on ``project``, and on the sessions of a project as a whole."""

    def __init__(self, db: Database, *, node_id: str) -> None:
        self._db = db
        self._node_id = node_id

    # -- owning it ----------------------------------------------------------------------------------------

    async def claim(self, project_id: str, owner: str) -> ProjectClaimed | None:
        """Take a project over, and with it all its conversations: bump their fences, settle what ran (RU3).

        One transaction. Returns None when there is no such row (a new, empty project). A conversation is
        read with :meth:`storage.sessions.Sessions.claim` when it is needed.

        Raises:
            Fault: ``not_found`` for another's or a deleted one.
            StorageUnavailable: The store is away; nothing is owned.
        """
        async with self._db.writing() as connection, connection.transaction():
            row = await connection.fetchrow(_CLAIM, project_id, owner, self._node_id)
            if row is None:
                if await connection.fetchrow(_WHOSE, project_id) is not None:
                    raise Fault(ErrorCode.NOT_FOUND, close=CloseCode.NOT_FOUND)
                return None
            await connection.execute(_CLAIM_CONVERSATIONS, project_id, self._node_id)
            for running in await connection.fetch(_RUNNING, project_id):
                await interruption.settle(connection, running["session_id"], running["next_sequence"])
            shown = await connection.fetch(_SHOWN, project_id, owner, _LAST)
        return ProjectClaimed(_project_row(row), row["fence"], tuple(found[0] for found in shown))

    async def reclaim(self, project_id: str, fence: int) -> ProjectClaimed | None:
        """Read which version of the canvas was committed after an unknown outcome; shut the late write out.

        As :meth:`storage.sessions.Sessions.reclaim`; the conversations stay as they are. None: the row never
        came to be.

        Raises:
            Fenced: Another owner has it, or it is deleted.
        """
        async with self._db.writing() as connection:
            row = await connection.fetchrow(_RECLAIM, project_id, fence, self._node_id)
            if row is not None:
                return ProjectClaimed(_project_row(row), row["fence"])
            if await connection.fetchrow(_WHOSE, project_id) is None:
                return None
        raise Fenced(project_id)

    # -- writing ------------------------------------------------------------------------------------------

    async def open(self, seed: ProjectSeed, fence: int) -> None:
        """Make the row of a project whose first change is in a conversation.

        Raises:
            Fenced: There is one by now.
        """
        async with self._db.writing() as connection:
            if await _create(connection, seed, fence, self._node_id) is None:
                raise Fenced(seed.project_id)

    async def create(self, seed: ProjectSeed) -> None:
        """Make an empty project. Fault ``project_exists`` when the id was ever used."""
        async with self._db.writing() as connection:
            if await _create(connection, seed, 0, None) is None:
                raise Fault(ErrorCode.PROJECT_EXISTS)

    async def delete(self, project_id: str, owner: str) -> None:
        """Delete a project, its canvas and its conversations for good. Fault ``not_found``."""
        async with self._db.writing(timeout_s=_LONG_S) as connection, connection.transaction():
            _found(await connection.fetchrow(_DELETE, project_id, owner))
            for statement in _DELETE_CONTENT:
                await connection.execute(statement, project_id)

    # -- reading ------------------------------------------------------------------------------------------

    async def get(self, project_id: str, owner: str) -> ProjectRow:
        """One project. Fault ``not_found``."""
        async with self._db.reading() as connection:
            return _project_row(_found(await connection.fetchrow(_GET, project_id, owner)))

    async def conversations(
        self, project_id: str, owner: str, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[ConversationSummary], str | None]:
        """A project's conversations, newest first, and the next page's cursor (None at the end)."""
        at, key = from_cursor(cursor)
        async with self._db.reading() as connection:
            rows = await connection.fetch(_CONVERSATIONS, project_id, owner, at, key, limit + 1)
        page = [
            ConversationSummary(
                conversation_id=row["session_id"],
                message_count=row["next_sequence"],
                metadata=row["metadata"],
                created_at=row["created_at"],
                updated_at=row["updated_at"],
            )
            for row in rows[:limit]
        ]
        more = len(rows) > limit
        return page, to_cursor(page[-1].created_at, page[-1].conversation_id) if more else None


async def hold_project(connection: Connection, project_id: str, owner: str) -> None:
    """Make sure, within the caller's transaction, that a project is the owner's; a new id becomes theirs.

    Raises:
        Fault: ``not_found`` for another's or a deleted one.
    """
    await _create(connection, ProjectSeed(project_id, owner), 0, None)
    found = await connection.fetchrow(_WHOSE, project_id)
    if found is None or found["owner"] != owner or found["status"] != "active":
        raise Fault(ErrorCode.NOT_FOUND, "there is no such project")


async def _create(connection: Connection, seed: ProjectSeed, fence: int, node_id: str | None) -> str | None:
    made: str | None = await connection.fetchval(
        _CREATE, seed.project_id, seed.owner, seed.metadata, fence, node_id, seed.created_at
    )
    return made


def _found(row: Record | None) -> Record:
    if row is None:
        raise Fault(ErrorCode.NOT_FOUND, close=CloseCode.NOT_FOUND)
    return row


def _project_row(row: Record) -> ProjectRow:
    return ProjectRow(**{name: row[name] for name in ProjectRow.__struct_fields__})
