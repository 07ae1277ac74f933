"""Runs: beginning, checkpoints, turns, the one end. Reading them is in :mod:`storage.traces`."""

# ruff: noqa: S608 (statements are put together from constants only)

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from protocol.run import RunStatus
from protocol.session import TokenUsage
from storage.checkpoints import Checkpoints
from storage.database import Database
from storage.messages import one_tool, open_tools, records, tool_ids
from storage.records import (
    NewRun,
    RequestKey,
    RunEnd,
    RunRow,
    SessionSeed,
    ToolRecord,
    TurnWrite,
)
from storage.requests import why_not
from storage.traces import COLUMNS, Traces, check_known, found, run_row

_START: Final = """
with locked as (
    select session_id from chat_session
     where session_id = $1 and fence = $2 and status = 'active' and $3::jsonb is null
       for no key update
), seeded as (
    insert into chat_session (session_id, owner, namespace, actor_name, project_id, metadata, linked_plan_ids,
        fence, owner_node, created_at, updated_at, last_active_at)
    select $1, s.owner, s.namespace, s.actor_name, s.project_id, s.metadata, s.linked_plan_ids, $2, $4,
           s.created_at, now(), now()
      from jsonb_to_recordset($3) as s (owner text, namespace text, actor_name text, project_id text,
           metadata jsonb, linked_plan_ids text[], created_at timestamptz)
     where not exists (select from client_request where resource_id = $5 and request_id = $6)
    on conflict do nothing
    returning session_id
), requested as (
    insert into client_request as q (resource_id, request_id, kind, body_sha256, outcome, run_id)
    select $5, $6, $7, $8, $9, $10 from (select from locked union all select from seeded) as mine
    on conflict (resource_id, request_id) do update
       set kind = excluded.kind, body_sha256 = excluded.body_sha256, outcome = excluded.outcome,
           run_id = excluded.run_id, created_at = now()
     where (q.run_id is null and q.message_id is not null
            and q.kind = excluded.kind and q.body_sha256 = excluded.body_sha256)
        or exists (select from diagnosis_run r
                    where r.run_id = q.run_id and r.status in ('failed', 'interrupted'))
    returning run_id
), run as (
    insert into diagnosis_run (run_id, session_id, request_id, query, status, agent_flow, model, fence,
        continues_run_id, created_at, updated_at)
    select run_id, $1, $6, $11, 'running', $12, $13, $2, $14, $15, now() from requested
    returning run_id
), active as (
    update chat_session set last_active_at = now(), updated_at = now()
     where session_id = $1 and exists (select from run)
)
select run_id from run
"""

_WRITE: Final = """
with locked as (
    select s.session_id from chat_session s
     where s.session_id = $1 and s.fence = $2 and s.status = 'active'
       and ($4 = 0 or s.next_sequence = $5)
       and ($3::text is null or exists (
            select from diagnosis_run r
             where r.run_id = $3 and r.session_id = $1 and r.status = 'running' and r.fence = $2))
       for no key update of s
), requested as (
    insert into client_request (resource_id, request_id, kind, body_sha256, outcome, run_id)
    select q.resource_id, q.request_id, q.kind, q.body_sha256, q.outcome, case when q.of_run then $3 end
      from locked, jsonb_to_recordset($6) as q (resource_id text, request_id text, kind text,
           body_sha256 text, outcome jsonb, of_run boolean)
    on conflict do nothing
    returning request_id
), mine as (
    select session_id from locked where not $7 or exists (select from requested)
), advanced as (
    update chat_session s
       set next_sequence = s.next_sequence + $4, pair_count = s.pair_count + $8,
           input_tokens = s.input_tokens + $9, output_tokens = s.output_tokens + $10,
           estimated_cost = s.estimated_cost + $11, updated_at = now(), last_active_at = now()
      from mine where s.session_id = mine.session_id
), messages as (
    insert into session_message (session_id, sequence, message_id, role, content, tool_call_id, tool_calls,
        metadata, origin, created_at)
    select $1, m.sequence, m.message_id, m.role, m.content, m.tool_call_id, m.tool_calls, m.metadata,
           m.origin, m.created_at
      from mine, jsonb_to_recordset($12) as m (sequence integer, message_id text, role text, content text,
           tool_call_id text, tool_calls jsonb, metadata jsonb, origin text, created_at timestamptz)
), steps as (
    insert into agent_step (session_id, run_id, step_index, model, content, thinking, finish_reason,
        input_tokens, output_tokens, ttft_ms, started_at, ended_at, created_at)
    select $1, $3, t.step_index, t.model, t.content, t.thinking, t.finish_reason, t.input_tokens,
           t.output_tokens, t.ttft_ms, t.started_at, t.ended_at, now()
      from mine, jsonb_to_recordset($13) as t (step_index integer, model text, content text, thinking text,
           finish_reason text, input_tokens integer, output_tokens integer, ttft_ms integer,
           started_at timestamptz, ended_at timestamptz)
), tools as (
    insert into tool_invocation as i (session_id, run_id, step_index, tool_call_id, tool_name, arguments,
        arguments_sha256, confirmation_state, execution_state, assistant_message_id, message_id, result,
        success, error_code, error_message, decision, decided_by, decision_reason, decided_at, started_at,
        ended_at, created_at)
    select $1, coalesce(c.run_id, $3), c.step_index, c.tool_call_id, c.name, c.arguments, c.arguments_sha256,
           c.confirmation_state, c.execution_state, c.assistant_message_id, c.message_id, c.result,
           case c.execution_state when 'succeeded' then true when 'failed' then false end,
           c.error_code, c.error_message, c.decision, c.decided_by, c.decision_reason, c.decided_at,
           c.started_at, c.ended_at, c.created_at
      from mine, jsonb_to_recordset($14) as c (run_id text, step_index integer, tool_call_id text, name text,
           arguments text, arguments_sha256 text, confirmation_state text, execution_state text,
           assistant_message_id text, message_id text, result text, error_code text, error_message text,
           decision text, decided_by text, decision_reason text, decided_at timestamptz,
           started_at timestamptz, ended_at timestamptz, created_at timestamptz)
    on conflict (session_id, tool_call_id) where tool_call_id is not null do update
       set arguments = excluded.arguments, arguments_sha256 = excluded.arguments_sha256,
           confirmation_state = excluded.confirmation_state, execution_state = excluded.execution_state,
           assistant_message_id = coalesce(excluded.assistant_message_id, i.assistant_message_id),
           message_id = excluded.message_id, result = excluded.result, success = excluded.success,
           error_code = excluded.error_code, error_message = excluded.error_message,
           decision = coalesce(excluded.decision, i.decision),
           decided_by = coalesce(excluded.decided_by, i.decided_by),
           decision_reason = coalesce(excluded.decision_reason, i.decision_reason),
           decided_at = coalesce(excluded.decided_at, i.decided_at),
           started_at = coalesce(excluded.started_at, i.started_at), ended_at = excluded.ended_at
     where i.execution_state in ('waiting', 'running')
), forgotten as (
    delete from client_request q using mine
     where $15 and q.run_id = $3 and q.kind = 'request_completion'
), run as (
    update diagnosis_run r
       set status = coalesce($16, r.status), finish_reason = coalesce($17, r.finish_reason),
           answer = coalesce($18, r.answer), error_code = $19, error_message = $20,
           message_id = coalesce($21, r.message_id), ended_at = $22::timestamptz,
           input_tokens = r.input_tokens + $9, output_tokens = r.output_tokens + $10,
           estimated_cost = r.estimated_cost + $11, partial_text = '', partial_thinking = '',
           step_count = (select count(*) from (
                select step_index from agent_step where run_id = $3
                union select step_index from jsonb_to_recordset($13) as t (step_index integer)) as counted),
           tool_call_count = (select count(*) from (
                select tool_call_id from tool_invocation where run_id = $3
                union select tool_call_id from jsonb_to_recordset($14) as c (tool_call_id text, run_id text)
                 where coalesce(c.run_id, $3) = $3) as counted),
           updated_at = now()
      from mine where r.run_id = $3
)
select session_id from mine
"""

_FEEDBACK: Final = f"""
update diagnosis_run r set feedback = $3, updated_at = now() from chat_session s
 where r.run_id = $1 and s.session_id = r.session_id and s.owner = $2 and s.status = 'active'
returning {COLUMNS}
"""
_EVALUATE: Final = """
update diagnosis_run
   set self_evaluation = coalesce(self_evaluation, '{}') || jsonb_build_object($2::text, $3::jsonb),
       updated_at = now()
 where run_id = $1
"""


_SESSIONS_OF_TOOL: Final = """
select distinct t.session_id from tool_invocation t join chat_session s using (session_id)
 where t.tool_call_id = $1 and s.owner = $2 and s.status = 'active' limit 2
"""


class _Ending(NamedTuple):
    """What a write says of its run, when it ends it; all None when the run goes on."""

    forget_request: bool = False
    status: str | None = None
    finish_reason: str | None = None
    answer: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    message_id: str | None = None
    ended_at: Any = None


class Runs(Traces):
    """Statements on ``diagnosis_run``, ``agent_step`` and ``tool_invocation``."""

    def __init__(self, db: Database, checkpoints: Checkpoints, *, node_id: str) -> None:
        super().__init__(db)
        self._checkpoints = checkpoints
        self._node_id = node_id

    @property
    def on_fenced(self) -> Callable[[str], None]:
        """Called with the id of a run whose checkpoint found it ended or another's. Must not raise."""
        return self._checkpoints.on_fenced

    @on_fenced.setter
    def on_fenced(self, callback: Callable[[str], None]) -> None:
        self._checkpoints.on_fenced = callback

    # -- writing ------------------------------------------------------------------------------------------

    async def start(
        self, session_id: str, fence: int, seed: SessionSeed | None, request: RequestKey, run: NewRun
    ) -> None:
        """Record a run as running, with its request id.

        A remembered request whose run failed or was interrupted is replaced, and so is the same request as
        far as it only appended its message (``POST /api/chat``).

        Raises:
            Fenced, DuplicateRequest, StorageUnavailable: See :mod:`storage.errors`.
            Refused: Another run of the session is running.
        """
        async with self._db.writing() as connection:
            started = await connection.fetchval(
                _START,
                session_id,
                fence,
                None if seed is None else [seed],
                self._node_id,
                request.resource_id,
                request.request_id,
                request.kind,
                request.body_sha256,
                request.outcome,
                run.run_id,
                run.query,
                run.agent_flow.value,
                run.model,
                run.continues_run_id,
                run.created_at,
            )
            if started is None:
                raise await why_not(connection, session_id, fence, request, seeding=seed is not None)

    def checkpoint(self, run_id: str, fence: int, message_id: str, text: str, thinking: str) -> None:
        """Keep the text that streamed so far; written once an interval. Never waits, never raises."""
        self._checkpoints.put(run_id, fence, message_id, text, thinking)

    async def commit_turn(self, session_id: str, fence: int, turn: TurnWrite) -> None:
        """Write a turn of a run that goes on, or what happens outside a run (decisions, answers).

        The first of ``turn.requests`` must be new.

        Checkpointed text of the run is done with: its message is among ``turn.messages``.

        Raises:
            Fenced: Another's session, a run that does not run, or a sequence that is not the next.
            DuplicateRequest, Refused, StorageUnavailable: See :mod:`storage.errors`.
        """
        if turn.run_id is not None:
            await self._checkpoints.settle(turn.run_id)
        await self._write(
            session_id, fence, turn, TokenUsage(), _Ending(), pairs=0, strict=next(iter(turn.requests), None)
        )

    async def finish(
        self, session_id: str, fence: int, end: RunEnd, requests: Sequence[RequestKey] = ()
    ) -> None:
        """End a running run with all that it leaves, in one statement.

        ``requests`` are remembered with it: the one that stopped it, say. The request of a run that failed or
        was interrupted is forgotten (ST4).

        Raises:
            Fenced: The run does not run any more, the session is another's, or a sequence is not the next.
            StorageUnavailable: Try again, after ``reclaim`` when the outcome is unknown.
        """
        await self._checkpoints.settle(end.run_id)
        messages = (() if end.message is None else (end.message,)) + end.messages
        turn = TurnWrite(
            run_id=end.run_id,
            messages=messages,
            steps=() if end.step is None else (end.step,),
            tools=end.tools,
            requests=tuple(requests),
        )
        ending = _Ending(
            forget_request=end.status in {RunStatus.FAILED, RunStatus.INTERRUPTED},
            status=end.status.value,
            finish_reason=str(end.finish_reason),
            answer=end.answer,
            error_code=None if end.error is None else end.error.code,
            error_message=None if end.error is None else end.error.message,
            message_id=None if end.message is None else end.message.message_id,
            ended_at=end.ended_at,
        )
        pairs = 0 if end.message is None else 1
        await self._write(session_id, fence, turn, end.usage, ending, pairs=pairs, strict=None)

    async def _write(
        self,
        session_id: str,
        fence: int,
        turn: TurnWrite,
        usage: TokenUsage,
        ending: _Ending,
        *,
        pairs: int,
        strict: RequestKey | None,
    ) -> None:
        """The one statement of turns and ends; ``strict`` is a request that must be new."""
        async with self._db.writing() as connection:
            written = await connection.fetchval(
                _WRITE,
                session_id,
                fence,
                turn.run_id,
                len(turn.messages),
                turn.messages[0].sequence if turn.messages else 0,
                turn.requests,
                strict is not None,
                pairs,
                usage.input_tokens,
                usage.output_tokens,
                usage.estimated_cost,
                records(turn.messages, turn.origin),
                turn.steps,
                turn.tools,
                *ending,
            )
            if written is None:
                raise await why_not(connection, session_id, fence, strict, seeding=False)

    async def tool(self, session_id: str, tool_call_id: str) -> ToolRecord | None:
        """One tool call of a session, whatever its state."""
        async with self._db.reading() as connection:
            return await one_tool(connection, session_id, tool_call_id)

    async def tool_ids(self, session_id: str) -> frozenset[str]:
        """The ids of all tool calls of a session, so that none is used twice."""
        async with self._db.reading() as connection:
            return await tool_ids(connection, session_id)

    async def open_tools(self, session_id: str, owner: str) -> tuple[ToolRecord, ...]:
        """The tool calls of a session that are not settled. Fault ``not_found``."""
        async with self._db.reading() as connection:
            await check_known(connection, session_id, owner)
            return await open_tools(connection, session_id)

    async def sessions_of_tool(self, tool_call_id: str, owner: str) -> list[str]:
        """The owner's sessions that have a call of this id; two at the most."""
        async with self._db.reading() as connection:
            rows = await connection.fetch(_SESSIONS_OF_TOOL, tool_call_id, owner)
        return [row[0] for row in rows]

    async def set_feedback(self, run_id: str, owner: str, feedback: str) -> RunRow:
        """Bind feedback to a run. Fault ``not_found``."""
        async with self._db.writing() as connection:
            return run_row(found(await connection.fetchrow(_FEEDBACK, run_id, owner, feedback)))

    async def set_evaluation(self, run_id: str, name: str, result: dict[str, Any]) -> None:
        """Put one evaluation under ``name`` into the run's ``self_evaluation`` (AO3)."""
        async with self._db.writing() as connection:
            await connection.execute(_EVALUATE, run_id, name, result)
