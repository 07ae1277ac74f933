"""Rows of ``session_message`` as the protocol's messages.

A tool call's state lives in ``tool_invocation`` alone; a message that is read shows it as it is now, not as
it was when the message was written.
"""

# ruff: noqa: S608 (statements are put together from constants only)

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from protocol.session import MessageRole, SessionMessage
from protocol.tool_call import ConfirmationState, ExecutionState, ToolCall, ToolError
from storage.records import ToolRecord

if TYPE_CHECKING:
    from asyncpg import Record

    from storage.database import Connection

_COLUMNS: Final = (
    "session_id, sequence, message_id, role, content, tool_call_id, tool_calls, metadata, created_at"
)
_LAST: Final = f"""
select {_COLUMNS} from (
    select {_COLUMNS},
           sum(octet_length(content)) over (order by sequence desc) - octet_length(content) as newer
      from (select {_COLUMNS} from session_message
             where session_id = $1 order by sequence desc limit $2) as last) as sized
 where newer < $3 order by sequence desc
"""
WINDOW_BYTES: Final = 4_194_304
"""Older messages are left out of the last ones when those after them have this many bytes of text."""
_PAGE: Final = f"""
select {_COLUMNS} from session_message
 where session_id = $1 and sequence >= $2 order by sequence limit $3
"""
_ONE: Final = f"select {_COLUMNS} from session_message where session_id = $1 and message_id = $2"
_STATES: Final = """
select tool_call_id, tool_name, arguments, confirmation_state, execution_state, result, error_code,
       error_message
  from tool_invocation where session_id = $1 and tool_call_id = any($2)
"""
_TOOL_COLUMNS: Final = """
tool_call_id, tool_name as name, arguments, arguments_sha256, confirmation_state, execution_state, run_id,
       step_index, assistant_message_id, message_id, result, error_code, error_message, decision,
       decided_by, decision_reason, decided_at, started_at, ended_at, created_at"""
_OPEN: Final = f"""
select {_TOOL_COLUMNS} from tool_invocation
 where session_id = $1 and execution_state in ('waiting', 'running')
 order by id
"""
_TOOL_IDS: Final = (
    "select tool_call_id from tool_invocation where session_id = $1 and tool_call_id is not null"
)
_TOOL: Final = f"select {_TOOL_COLUMNS} from tool_invocation where session_id = $1 and tool_call_id = $2"


async def tool_ids(connection: Connection, session_id: str) -> frozenset[str]:
    """The ids of all calls of a session."""
    return frozenset(row[0] for row in await connection.fetch(_TOOL_IDS, session_id))


async def one_tool(connection: Connection, session_id: str, tool_call_id: str) -> ToolRecord | None:
    """One call of a session, whatever its state."""
    row = await connection.fetchrow(_TOOL, session_id, tool_call_id)
    return None if row is None else _tool_record(row)


async def last_messages(connection: Connection, session_id: str, window: int) -> list[SessionMessage]:
    """The last ``window`` messages, oldest first, or fewer when they are long."""
    rows = await connection.fetch(_LAST, session_id, window, WINDOW_BYTES)
    return await _with_states(connection, session_id, rows[::-1])


async def page_of_messages(
    connection: Connection, session_id: str, first: int, limit: int | None
) -> list[SessionMessage]:
    """Messages from sequence ``first`` on."""
    return await _with_states(connection, session_id, await connection.fetch(_PAGE, session_id, first, limit))


async def one_message(connection: Connection, session_id: str, message_id: str) -> SessionMessage | None:
    """A session's message by its id."""
    found = await _with_states(connection, session_id, await connection.fetch(_ONE, session_id, message_id))
    return found[0] if found else None


async def open_tools(connection: Connection, session_id: str) -> tuple[ToolRecord, ...]:
    """The calls of a session that are not settled."""
    rows = await connection.fetch(_OPEN, session_id)
    return tuple(_tool_record(row) for row in rows)


def _tool_record(row: Record) -> ToolRecord:
    return ToolRecord(
        **{
            **dict(row),
            "confirmation_state": ConfirmationState(row["confirmation_state"]),
            "execution_state": ExecutionState(row["execution_state"]),
        }
    )


def records(messages: Iterable[SessionMessage], origin: str) -> list[dict[str, Any]]:
    """Messages as the objects that the statements unfold with ``jsonb_to_recordset``."""
    return [
        {
            "sequence": message.sequence,
            "message_id": message.message_id,
            "role": message.role,
            "content": message.content,
            "tool_call_id": message.tool_call_id,
            "tool_calls": message.tool_calls,
            "metadata": message.metadata,
            "origin": origin,
            "created_at": message.created_at,
        }
        for message in messages
    ]


async def _with_states(
    connection: Connection, session_id: str, rows: Sequence[Record]
) -> list[SessionMessage]:
    calls = [call["tool_call_id"] for row in rows for call in row["tool_calls"]]
    states: dict[str, ToolCall] = {}
    if calls:
        found = await connection.fetch(_STATES, session_id, calls)
        states = {row["tool_call_id"]: _call(row) for row in found}
    return [_message(row, states) for row in rows]


def _message(row: Record, states: dict[str, ToolCall]) -> SessionMessage:
    written = msgspec.convert(row["tool_calls"], tuple[ToolCall, ...])
    return SessionMessage(
        message_id=row["message_id"],
        sequence=row["sequence"],
        role=MessageRole(row["role"]),
        content=row["content"],
        tool_call_id=row["tool_call_id"],
        tool_calls=tuple(states.get(call.tool_call_id, call) for call in written),
        metadata=row["metadata"],
        created_at=row["created_at"],
    )


def _call(row: Record) -> ToolCall:
    code = row["error_code"]
    return ToolCall(
        tool_call_id=row["tool_call_id"],
        name=row["tool_name"],
        arguments=row["arguments"],
        confirmation_state=ConfirmationState(row["confirmation_state"]),
        execution_state=ExecutionState(row["execution_state"]),
        result=row["result"],
        error=None if code is None else ToolError(code=code, message=row["error_message"] or ""),
    )
