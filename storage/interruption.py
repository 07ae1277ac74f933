"""What a dead owner left running becomes settled: the run, its streamed text, its executing tools (RU3, ST7).

Always within the transaction that took the session by bumping its fence, so the row of the session is locked
and no late write of the old owner can pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from protocol.ids import new_message_id, utc_now
from protocol.session import MessageRole, SessionMessage
from storage.messages import records

if TYPE_CHECKING:
    from asyncpg import Record

    from storage.database import Connection

_INTERRUPT: Final = """
update diagnosis_run
   set status = 'interrupted', finish_reason = 'interrupted', answer = partial_text,
       ended_at = now(), updated_at = now()
 where session_id = $1 and status = 'running'
returning run_id, message_id, model, partial_text, partial_thinking, created_at
"""

_KEEP: Final = """
update diagnosis_run set fence = $3, updated_at = now()
 where session_id = $1 and run_id = $2 and status = 'running'
returning run_id
"""

_SETTLE_TOOLS: Final = """
update tool_invocation
   set execution_state = case execution_state when 'running' then 'failed' else 'cancelled' end,
       error_code = case execution_state when 'running' then 'outcome_unknown' end,
       error_message = case execution_state when 'running' then $2 end,
       ended_at = now()
 where session_id = $1
   and (execution_state = 'running' or (execution_state = 'waiting' and confirmation_state = 'not_required'))
returning id, tool_call_id, execution_state
"""

_ADD_MESSAGES: Final = """
insert into session_message (session_id, sequence, message_id, role, content, tool_call_id, tool_calls,
    metadata, origin, created_at)
select $1, m.sequence, m.message_id, m.role, m.content, m.tool_call_id, m.tool_calls, m.metadata, m.origin,
       m.created_at
  from jsonb_to_recordset($2) as m (sequence integer, message_id text, role text, content text,
       tool_call_id text, tool_calls jsonb, metadata jsonb, origin text, created_at timestamptz)
"""

_LINK_TOOLS: Final = """
update tool_invocation t set message_id = m.message_id
  from unnest($2::text[], $3::text[]) as m (tool_call_id, message_id)
 where t.session_id = $1 and t.tool_call_id = m.tool_call_id
"""

_ADD_STEP: Final = """
insert into agent_step (session_id, run_id, step_index, model, content, thinking, finish_reason, started_at,
    ended_at, created_at)
select $1, $2, coalesce(max(step_index) + 1, 0), $3, $4, $5, 'interrupted', $6, now(), now()
  from agent_step where run_id = $2
"""

_COUNT: Final = """
update diagnosis_run r
   set step_count = (select count(*) from agent_step s where s.run_id = r.run_id),
       tool_call_count = (select count(*) from tool_invocation t where t.run_id = r.run_id)
 where r.run_id = $1
"""

_COMMITTED: Final = "select exists (select from session_message where message_id = $1)"

_ADVANCE: Final = """
update chat_session
   set next_sequence = next_sequence + $2, pair_count = pair_count + $3, updated_at = now()
 where session_id = $1
"""

_UNKNOWN: Final = "the server stopped while the tool ran; it may or may not have done its work"
_NOT_RUN: Final = "cancelled: the server stopped before the tool ran"


async def keep_running(connection: Connection, session_id: str, run_id: str, fence: int) -> bool:
    """Give the session's running run its owner's new fence; False if it does not run."""
    return await connection.fetchval(_KEEP, session_id, run_id, fence) is not None


async def settle(connection: Connection, session_id: str, next_sequence: int) -> None:
    """Interrupt what runs in a session whose row this transaction has taken.

    Results of tools come first, as they answer calls of an earlier message; then the text that was streamed.
    """
    run = await connection.fetchrow(_INTERRUPT, session_id)
    tools = await connection.fetch(_SETTLE_TOOLS, session_id, _UNKNOWN)
    messages = [_result(tool, next_sequence + at) for at, tool in enumerate(tools)]
    promoted = run is not None and await _promote(connection, session_id, run, next_sequence + len(messages))
    if promoted:
        messages.append(promoted)
    if messages:
        await add_messages(connection, session_id, messages, "engine")
        await connection.execute(_ADVANCE, session_id, len(messages), int(bool(promoted)))
    if tools:
        answers = messages[: len(tools)]
        await connection.execute(
            _LINK_TOOLS, session_id, [m.tool_call_id for m in answers], [m.message_id for m in answers]
        )
    if run is not None:
        await connection.execute(_COUNT, run["run_id"])


async def add_messages(
    connection: Connection, session_id: str, messages: Sequence[SessionMessage], origin: str
) -> None:
    """Insert messages that bring their sequences, within the caller's transaction."""
    await connection.execute(_ADD_MESSAGES, session_id, records(messages, origin))


async def _promote(
    connection: Connection, session_id: str, run: Record, sequence: int
) -> SessionMessage | None:
    """The streamed text as a message, unless there is none or its turn was committed after all."""
    if not run["partial_text"] and not run["partial_thinking"]:
        return None
    message_id = run["message_id"] or new_message_id()
    if await connection.fetchval(_COMMITTED, message_id):
        return None
    await connection.execute(
        _ADD_STEP,
        session_id,
        run["run_id"],
        run["model"],
        run["partial_text"],
        run["partial_thinking"],
        run["created_at"],
    )
    if not run["partial_text"]:
        return None
    return SessionMessage(
        message_id=message_id,
        sequence=sequence,
        role=MessageRole.ASSISTANT,
        content=run["partial_text"],
        metadata={"finish_reason": "interrupted"},
        created_at=utc_now(),
    )


def _result(tool: Record, sequence: int) -> SessionMessage:
    metadata: dict[str, Any] = {"execution_state": tool["execution_state"]}
    failed = tool["execution_state"] == "failed"
    if failed:
        metadata["error"] = "outcome_unknown"
    return SessionMessage(
        sequence=sequence,
        role=MessageRole.TOOL,
        content=_UNKNOWN if failed else _NOT_RUN,
        tool_call_id=tool["tool_call_id"],
        metadata=metadata,
    )
