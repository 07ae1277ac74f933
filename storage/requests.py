"""Remembered request ids (ST4), and the one place that says why a guarded write touched no row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.run import RunStatus
from storage.errors import DuplicateRequest, Fenced
from storage.records import RequestKey, RequestRecord

if TYPE_CHECKING:
    from asyncpg import Record

    from storage.database import Connection

_FIND: Final = """
select q.request_id, q.kind, q.body_sha256, q.run_id, q.message_id, q.outcome, r.status as run_status
  from client_request q left join diagnosis_run r on r.run_id = q.run_id
 where q.resource_id = $1 and q.request_id = $2
"""

_OWNED: Final = """
select exists (select from chat_session where session_id = $1),
       exists (select from chat_session where session_id = $1 and fence = $2 and status = 'active')
"""


async def find(connection: Connection, resource_id: str, request_id: str) -> RequestRecord | None:
    """What is remembered of a request id."""
    row: Record | None = await connection.fetchrow(_FIND, resource_id, request_id)
    if row is None:
        return None
    status = row["run_status"]
    return RequestRecord(
        request_id=row["request_id"],
        kind=row["kind"],
        body_sha256=row["body_sha256"],
        run_id=row["run_id"],
        message_id=row["message_id"],
        outcome=row["outcome"],
        run_status=None if status is None else RunStatus(status),
    )


async def why_not(
    connection: Connection, session_id: str, fence: int, request: RequestKey | None, *, seeding: bool
) -> Fenced | DuplicateRequest:
    """Why nothing was written: the resource is another's now, or else the request id was used before.

    Losing the resource counts first, for then the actor's memory is stale in any case.
    """
    row = await connection.fetchrow(_OWNED, session_id, fence)
    assert row is not None
    there, owned = row
    lost = there if seeding else not owned
    if not lost and request is not None:
        record = await find(connection, request.resource_id, request.request_id)
        if record is not None:
            return DuplicateRequest(record)
    return Fenced(session_id)
