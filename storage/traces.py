"""Reading runs: lists, one run, its steps and tool calls.

The older schema's steps and tool calls may lack most columns; what a trace needs of them is filled in.
"""

# ruff: noqa: S608 (statements are put together from constants only)

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.session import TokenUsage
from storage.cursors import from_cursor, to_cursor
from storage.database import Database
from storage.records import LastRun, RunRow, RunSummary, StepRow, ToolRow

if TYPE_CHECKING:
    from asyncpg import Record

    from storage.database import Connection

_RunPage: TypeAlias = tuple[list[RunSummary], str | None]
_Steps: TypeAlias = list[StepRow]
_Tools: TypeAlias = list[ToolRow]

COLUMNS: Final = """
r.run_id, r.session_id, r.request_id, r.query, r.status, r.agent_flow, r.answer, r.model, r.finish_reason,
r.error_code, r.error_message, r.continues_run_id, r.message_id, r.self_evaluation, r.feedback,
r.input_tokens, r.output_tokens, r.estimated_cost, r.step_count, r.tool_call_count, r.created_at,
r.updated_at, r.ended_at
"""
_MINE: Final = "join chat_session s on s.session_id = r.session_id and s.status = 'active'"
_GET: Final = f"select {COLUMNS} from diagnosis_run r {_MINE} where r.run_id = $1 and s.owner = $2"
_LATEST: Final = f"""
select {COLUMNS} from diagnosis_run r {_MINE} where r.session_id = $1 and s.owner = $2
 order by r.created_at desc, r.id desc limit 1
"""
_LAST: Final = """
select run_id, request_id, status, finish_reason, error_code, error_message from diagnosis_run
 where session_id = $1 order by created_at desc, id desc limit 1
"""
_LIST: Final = """
select r.run_id, r.session_id, r.query, r.status, r.agent_flow, left(r.answer, 200) as answer_preview,
       r.step_count, r.tool_call_count, r.created_at, r.updated_at, r.id
  from diagnosis_run r
 where r.session_id = $1
   and ($2::timestamptz is null or (r.created_at, r.id) < ($2, $3::bigint))
 order by r.created_at desc, r.id desc limit $4
"""
_KNOWN: Final = """
select exists (select from chat_session where session_id = $1 and owner = $2 and status = 'active')
"""
_STEPS: Final = """
select coalesce(step_index, 0) as step_index, run_id, model, coalesce(content, '') as content,
       coalesce(thinking, '') as thinking, finish_reason, input_tokens, output_tokens, ttft_ms,
       coalesce(started_at, created_at) as started_at, ended_at
  from agent_step where run_id = $1 order by step_index, id
"""
_TOOLS: Final = """
select run_id, tool_call_id, coalesce(tool_name, '') as name, coalesce(arguments, '') as arguments,
       arguments_sha256, confirmation_state,
       coalesce(execution_state, case when success then 'succeeded' else 'failed' end) as execution_state,
       result, error_code, error_message, step_index, created_at, started_at, ended_at
  from tool_invocation where run_id = $1 order by id
"""


class Traces:
    """What is kept of runs, for whoever owns their sessions."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def get(self, run_id: str, owner: str) -> RunRow:
        """One run. Fault ``not_found`` when it is not the owner's."""
        async with self._db.reading() as connection:
            return run_row(found(await connection.fetchrow(_GET, run_id, owner)))

    async def latest(self, session_id: str, owner: str) -> RunRow | None:
        """The latest by ``created_at desc, id desc``. Fault ``not_found`` for an unknown session."""
        async with self._db.reading() as connection:
            row = await connection.fetchrow(_LATEST, session_id, owner)
            if row is None:
                await check_known(connection, session_id, owner)
                return None
        return run_row(row)

    async def last(self, session_id: str) -> LastRun | None:
        """The latest run's outcome."""
        async with self._db.reading() as connection:
            return await last_run(connection, session_id)

    async def list(
        self, session_id: str, owner: str, *, limit: int = 50, cursor: str | None = None
    ) -> _RunPage:
        """A session's runs, newest first, and the next page's cursor. Fault ``not_found``."""
        at, key = from_cursor(cursor)
        if key is not None and not key.isdecimal():
            raise Fault(ErrorCode.INVALID_REQUEST, "this cursor is none of ours")
        async with self._db.reading() as connection:
            await check_known(connection, session_id, owner)
            rows = await connection.fetch(_LIST, session_id, at, None if key is None else int(key), limit + 1)
        page = msgspec.convert([dict(row) for row in rows[:limit]], list[RunSummary])
        last = rows[limit - 1] if len(rows) > limit else None
        return page, None if last is None else to_cursor(last["created_at"], str(last["id"]))

    async def steps(self, run_id: str) -> _Steps:
        """The model turns of a run, in order; the caller has checked whose it is."""
        async with self._db.reading() as connection:
            rows: Sequence[Record] = await connection.fetch(_STEPS, run_id)
        return msgspec.convert([dict(row) for row in rows], list[StepRow])

    async def tools(self, run_id: str) -> _Tools:
        """The tool calls of a run, in order; the caller has checked whose it is."""
        async with self._db.reading() as connection:
            rows: Sequence[Record] = await connection.fetch(_TOOLS, run_id)
        return msgspec.convert([dict(row) for row in rows], list[ToolRow])


async def last_run(connection: Connection, session_id: str) -> LastRun | None:
    """The latest run's outcome, within the caller's transaction."""
    row = await connection.fetchrow(_LAST, session_id)
    return None if row is None else msgspec.convert(dict(row), LastRun)


async def check_known(connection: Connection, session_id: str, owner: str) -> None:
    if not await connection.fetchval(_KNOWN, session_id, owner):
        raise Fault(ErrorCode.NOT_FOUND)


def found(row: Record | None) -> Record:
    if row is None:
        raise Fault(ErrorCode.NOT_FOUND)
    return row


def run_row(row: Record) -> RunRow:
    usage = TokenUsage(
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        estimated_cost=row["estimated_cost"],
    )
    return msgspec.convert({**dict(row), "usage": usage}, RunRow)
