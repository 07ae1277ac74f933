"""Sessions, their messages and their runs.

Reads ask the store. Changes of an existing session go through its actor, so that a client that holds it sees
them too.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import is_ulid, new_ulid
from protocol.session import MessageRole, SessionMessage
from server.actors.commands import AppendFromRest, AppendResult, DeleteSession
from server.actors.commands import UpdateSession as UpdateCommand
from server.rest import schemas
from server.rest.context import Call
from server.rest.declare import Ownership, Routes
from server.rest.schemas import NoBody, NoQuery, Page
from storage.records import SessionRow, SessionSeed

__all__ = ["ROUTES"]

ROUTES: Final = Routes()

_AWAY: Final = (ErrorCode.STORAGE_UNAVAILABLE,)
_BY_ACTOR: Final = (*_AWAY, ErrorCode.DRAINING, ErrorCode.OVERLOADED, ErrorCode.USE_PROJECT_SOCKET)


@ROUTES.declare(
    "POST",
    "/api/sessions",
    ownership=Ownership.CALLER,
    body=schemas.CreateSession,
    response=schemas.SessionCreated,
    errors=(*_BY_ACTOR, ErrorCode.SESSION_EXISTS),
)
async def create_session(call: Call[NoQuery, schemas.CreateSession]) -> schemas.SessionCreated:
    """Make a session."""
    wanted = call.body
    seed = SessionSeed(
        session_id=wanted.session_id or new_ulid(),
        owner=call.owner,
        namespace=wanted.namespace,
        actor_name=wanted.actor_name,
        project_id=wanted.project_id,
        metadata=wanted.metadata,
        linked_plan_ids=_without_repeats(wanted.linked_plan_ids),
    )
    await call.context.registry.create(seed)
    return schemas.SessionCreated(seed.session_id)


@ROUTES.declare(
    "GET",
    "/api/sessions",
    ownership=Ownership.CALLER,
    query=schemas.ListQuery,
    response=Page[schemas.Session],
    errors=_AWAY,
)
async def list_sessions(call: Call[schemas.ListQuery, NoBody]) -> Page[schemas.Session]:
    """The caller's sessions, newest first."""
    rows, cursor = await call.context.store.sessions.list(
        call.owner, limit=call.query.limit, cursor=call.query.cursor
    )
    return Page([_session(row) for row in rows], cursor)


@ROUTES.declare(
    "GET",
    "/api/sessions/{sessionId}",
    ownership=Ownership.SESSION,
    response=schemas.Session,
    errors=_AWAY,
)
async def get_session(call: Call[NoQuery, NoBody]) -> schemas.Session:
    """A session without its messages."""
    return _session(await call.context.store.sessions.get(call.session_id, call.owner))


@ROUTES.declare(
    "PATCH",
    "/api/sessions/{sessionId}",
    ownership=Ownership.SESSION,
    body=schemas.UpdateSession,
    response=schemas.Session,
    errors=_BY_ACTOR,
)
async def update_session(call: Call[NoQuery, schemas.UpdateSession]) -> schemas.Session:
    """Change a session's metadata, agent or linked plans."""
    wanted = call.body
    plans = wanted.linked_plan_ids
    row: SessionRow = await call.context.registry.call(
        _id_of_actor(call.session_id),
        call.owner,
        UpdateCommand(
            metadata=wanted.metadata,
            actor_name=wanted.actor_name,
            linked_plan_ids=plans if plans is msgspec.UNSET else _without_repeats(plans),
        ),
    )
    return _session(row)


@ROUTES.declare(
    "DELETE",
    "/api/sessions/{sessionId}",
    ownership=Ownership.SESSION,
    response=schemas.Deleted,
    errors=_BY_ACTOR,
)
async def delete_session(call: Call[NoQuery, NoBody]) -> schemas.Deleted:
    """Delete a session for good; its id is never used again."""
    await call.context.registry.call(_id_of_actor(call.session_id), call.owner, DeleteSession())
    return schemas.Deleted(call.session_id)


@ROUTES.declare(
    "GET",
    "/api/sessions/{sessionId}/messages",
    ownership=Ownership.SESSION,
    query=schemas.MessagesQuery,
    response=Page[schemas.Message],
    errors=_AWAY,
)
async def list_messages(call: Call[schemas.MessagesQuery, NoBody]) -> Page[schemas.Message]:
    """A session's messages in their order."""
    query = call.query
    offset = query.offset if query.cursor is None else _offset_of(query.cursor)
    found = await call.context.store.sessions.messages(call.session_id, call.owner, query.limit + 1, offset)
    items = [_message(message) for message in found[: query.limit]]
    return Page(items, str(offset + query.limit) if len(found) > query.limit else None)


@ROUTES.declare(
    "POST",
    "/api/sessions/{sessionId}/messages",
    ownership=Ownership.SESSION,
    body=schemas.AppendMessage,
    response=schemas.Appended,
    errors=(
        *_BY_ACTOR,
        ErrorCode.INVALID_MESSAGE,
        ErrorCode.UNKNOWN_TOOL_CALL,
        ErrorCode.REQUEST_ID_CONFLICT,
    ),
)
async def append_message(call: Call[NoQuery, schemas.AppendMessage]) -> schemas.Appended:
    """Append a message; the client that holds the session sees it too."""
    wanted = call.body
    _check_message(wanted)
    result: AppendResult = await call.context.registry.call(
        _id_of_actor(call.session_id),
        call.owner,
        AppendFromRest(
            role=MessageRole(wanted.role.value),
            content=wanted.content,
            tool_call_id=wanted.tool_call_id,
            metadata=wanted.metadata,
            request_id=wanted.request_id,
        ),
    )
    return schemas.Appended(_message(result.message), result.repeated)


@ROUTES.declare(
    "GET",
    "/api/chat/session/{sessionId}/runs",
    ownership=Ownership.SESSION,
    query=schemas.ListQuery,
    response=Page[schemas.Run],
    errors=_AWAY,
)
async def list_runs(call: Call[schemas.ListQuery, NoBody]) -> Page[schemas.Run]:
    """A session's runs, newest first, without their steps and tool calls."""
    rows, cursor = await call.context.store.runs.list(
        call.session_id, call.owner, limit=call.query.limit, cursor=call.query.cursor
    )
    return Page(msgspec.convert(rows, list[schemas.Run], from_attributes=True), cursor)


def _check_message(message: schemas.AppendMessage) -> None:
    """What the struct cannot say (ER3).

    Raises:
        Fault: ``invalid_message`` or ``invalid_request``, naming the field.
    """
    if not message.content or message.content.isspace():
        raise Fault(
            ErrorCode.INVALID_MESSAGE,
            "`content` must not be empty or whitespace only",
            details={"field": "content"},
        )
    if (message.role is schemas.ClientRole.TOOL) is (message.tool_call_id is None):
        raise Fault(
            ErrorCode.INVALID_REQUEST,
            "`toolCallId` belongs to messages of the role `tool`, and only to them",
            details={"field": "toolCallId"},
        )


def _id_of_actor(session_id: str) -> str:
    """An id that can have an actor; those of the older schema can be read only."""
    if not is_ulid(session_id):
        raise Fault(ErrorCode.NOT_FOUND)
    return session_id


def _offset_of(cursor: str) -> int:
    if not cursor.isdecimal() or len(cursor) > 9:
        raise Fault(
            ErrorCode.INVALID_REQUEST, "`cursor` is none that this server gave", details={"field": "cursor"}
        )
    return int(cursor)


def _without_repeats(ids: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids))


def _session(row: SessionRow) -> schemas.Session:
    return schemas.Session(
        session_id=row.session_id,
        namespace=row.namespace,
        actor_name=row.actor_name,
        project_id=row.project_id,
        status=row.status,
        metadata=row.metadata,
        linked_plan_ids=row.linked_plan_ids,
        message_count=row.message_count,
        token_usage=msgspec.convert(row.usage, schemas.TokenUsage, from_attributes=True),
        created_at=row.created_at,
        updated_at=row.updated_at,
        last_active_at=row.last_active_at,
    )


def _message(message: SessionMessage) -> schemas.Message:
    return msgspec.convert(message, schemas.Message, from_attributes=True)
