"""Appends of many sessions in one transaction.

What waits while a batch is under way goes out with the next one, in one statement; so nothing is delayed
when little happens, and one flush to disk serves many when much does. A row never fails its neighbours: rows
that another process has locked are skipped and tried again alone, and when the database refuses a batch, its
rows are written one by one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec
from anyio.abc import TaskGroup

from storage.database import Database
from storage.errors import Refused, StorageUnavailable
from storage.records import AppendWrite, RequestKey
from storage.requests import why_not

if TYPE_CHECKING:
    from collections.abc import Sequence

_APPEND: Final = """
with w as materialized (
    select * from unnest(
        $1::text[], $2::bigint[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::text[], $10::text[], $11::timestamptz[], $12::text[], $13::text[], $14::text[], $15::text[],
        $16::text[], $17::text[]
    ) as w (session_id, fence, sequence, message_id, role, content, tool_call_id, tool_calls, metadata,
            origin, created_at, resource_id, request_id, kind, body_sha256, outcome, seed)
), locked as (
    select s.session_id from chat_session s join w on s.session_id = w.session_id
     where w.seed is null and s.fence = w.fence and s.next_sequence = w.sequence and s.status = 'active'
     order by s.session_id
       for no key update of s {waiting}
), seeded as (
    insert into chat_session (session_id, owner, namespace, actor_name, project_id, metadata, linked_plan_ids,
        next_sequence, fence, owner_node, created_at, updated_at, last_active_at)
    select w.session_id, s.owner, s.namespace, s.actor_name, s.project_id, s.metadata, s.linked_plan_ids,
           w.sequence + 1, w.fence, $18, s.created_at, now(), now()
      from w, jsonb_to_record(w.seed::jsonb) as s (owner text, namespace text, actor_name text,
           project_id text, metadata jsonb, linked_plan_ids text[], created_at timestamptz)
     where w.seed is not null and w.sequence = 0
       and not exists (select from client_request r
                        where r.resource_id = w.resource_id and r.request_id = w.request_id)
    on conflict do nothing
    returning session_id
), mine as (
    select session_id from locked union all select session_id from seeded
), requested as (
    insert into client_request (resource_id, request_id, kind, body_sha256, message_id, outcome)
    select w.resource_id, w.request_id, w.kind, w.body_sha256, w.message_id, w.outcome::jsonb
      from w join mine using (session_id) where w.request_id is not null
    on conflict do nothing
    returning resource_id, request_id
), written as (
    insert into session_message (session_id, sequence, message_id, role, content, tool_call_id, tool_calls,
        metadata, origin, created_at)
    select w.session_id, w.sequence, w.message_id, w.role, w.content, w.tool_call_id, w.tool_calls::jsonb,
           w.metadata::jsonb, w.origin, w.created_at
      from w join mine using (session_id)
     where w.request_id is null
        or exists (select from requested q
                    where q.resource_id = w.resource_id and q.request_id = w.request_id)
    returning session_id
), moved as (
    update chat_session s
       set next_sequence = s.next_sequence + 1, updated_at = now(), last_active_at = now()
      from written join locked using (session_id)
     where s.session_id = written.session_id
)
select session_id from written
"""
_APPEND_BATCH: Final = _APPEND.format(waiting="skip locked")
_APPEND_ONE: Final = _APPEND.format(waiting="")

_BATCH_CHARACTERS: Final = 4 << 20

_Row = tuple[object, ...]


class _Pending:
    """One append on its way; ``done`` is resolved by the task that commits it."""

    __slots__ = ("done", "row", "taken", "write")

    def __init__(self, write: AppendWrite, row: _Row) -> None:
        self.write = write
        self.row = row
        self.taken = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class GroupCommit:
    """Collects appends and commits them together.

    Args:
        node_id: Written as the owner of rows that a seed makes.
        in_flight: Batches under way at once; a session is in one of them at most.
        batch_limit: Rows of one statement; their text is bounded too.
        waiting_limit: Appends that may wait; more are refused as unavailable.
    """

    def __init__(
        self,
        db: Database,
        tasks: TaskGroup,
        *,
        node_id: str,
        in_flight: int = 2,
        batch_limit: int = 128,
        waiting_limit: int = 20_000,
    ) -> None:
        self._db = db
        self._tasks = tasks
        self._node_id = node_id
        self._in_flight = in_flight
        self._batch_limit = batch_limit
        self._waiting_limit = waiting_limit
        self._waiting: deque[_Pending] = deque()
        self._busy: set[str] = set()
        self._batches = 0

    async def append(self, write: AppendWrite) -> None:
        """Write one message durably; returns after its commit.

        Raises:
            Fenced, DuplicateRequest: See :mod:`storage.errors`.
            Refused: The database will not have this row.
            StorageUnavailable: After ``command_timeout_s`` in all, or at once while the database is away.
        """
        if not self._db.available:
            raise StorageUnavailable
        if len(self._waiting) >= self._waiting_limit:
            raise StorageUnavailable("too many writes wait")
        try:
            pending = _Pending(write, _row(write))
        except ValueError as error:  # a lone surrogate
            raise Refused(str(error)) from error
        self._waiting.append(pending)
        self._start()
        try:
            async with asyncio.timeout(self._db.command_timeout_s):
                await pending.done
        except TimeoutError:
            raise StorageUnavailable(outcome_unknown=pending.taken) from None

    def _start(self) -> None:
        if self._batches < self._in_flight and self._waiting:
            self._batches += 1
            self._tasks.start_soon(self._work, name="group commit")

    async def _work(self) -> None:
        """Commit batches until nothing waits that may go."""
        try:
            while batch := self._take():
                await self._commit(batch)
        finally:
            self._batches -= 1

    def _take(self) -> list[_Pending]:
        """The next batch: one row a session, none of a session that is under way."""
        batch: list[_Pending] = []
        kept: list[_Pending] = []
        size = 0
        while self._waiting and len(batch) < self._batch_limit and size < _BATCH_CHARACTERS:
            pending = self._waiting.popleft()
            if pending.done.done():
                continue  # its caller gave up
            if pending.write.session_id in self._busy:
                kept.append(pending)
                continue
            pending.taken = True
            self._busy.add(pending.write.session_id)
            batch.append(pending)
            size += len(pending.write.message.content)
        self._waiting.extendleft(reversed(kept))
        return batch

    async def _commit(self, batch: Sequence[_Pending]) -> None:
        """One statement for all; what it leaves out is tried alone."""
        try:
            written = await self._execute(_APPEND_BATCH, [pending.row for pending in batch])
        except Refused:
            written = set()
        except Exception as error:  # noqa: BLE001 (told to whoever waits; the worker must live)
            for pending in batch:
                self._settle(pending, _copy(error))
            return
        for pending in batch:
            if pending.write.session_id in written:
                self._settle(pending, None)
            else:
                self._tasks.start_soon(self._commit_alone, pending, name="group commit of one")

    async def _commit_alone(self, pending: _Pending) -> None:
        try:
            if not await self._execute(_APPEND_ONE, [pending.row]):
                write = pending.write
                async with self._db.reading() as connection:
                    raise await why_not(
                        connection,
                        write.session_id,
                        write.fence,
                        write.request,
                        seeding=write.seed is not None,
                    )
        except Exception as error:  # noqa: BLE001 (told to whoever waits)
            self._settle(pending, error)
        else:
            self._settle(pending, None)

    async def _execute(self, statement: str, rows: list[_Row]) -> set[str]:
        async with self._db.writing() as connection:
            written = await connection.fetch(statement, *map(list, zip(*rows, strict=True)), self._node_id)
        return {row[0] for row in written}

    def _settle(self, pending: _Pending, error: Exception | None) -> None:
        self._busy.discard(pending.write.session_id)
        pending.settle(error)
        self._start()  # another row of this session may have waited for it


def _row(write: AppendWrite) -> _Row:
    """The columns of ``w``. Raises ``ValueError`` for text that is no Unicode."""
    message, request, seed = write.message, write.request, write.seed
    outcome = None if request is None or request.outcome is None else _json(request.outcome)
    return (
        write.session_id,
        write.fence,
        message.sequence,
        message.message_id,
        message.role.value,
        message.content,
        message.tool_call_id,
        _json(message.tool_calls) if message.tool_calls else "[]",
        _json(message.metadata) if message.metadata else "{}",
        write.origin,
        message.created_at,
        *((None,) * 4 if request is None else _request_columns(request)),
        outcome,
        None if seed is None else _json(seed),
    )


def _request_columns(request: RequestKey) -> tuple[str, str, str, str]:
    return request.resource_id, request.request_id, request.kind, request.body_sha256


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _copy(error: Exception) -> Exception:
    """An own instance for each waiter: a raised exception collects its raiser's traceback."""
    if isinstance(error, StorageUnavailable):
        return StorageUnavailable(error.message, outcome_unknown=error.outcome_unknown)
    return error
