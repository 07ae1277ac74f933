"""A session's ledger: what is committed of it, and the writes that add to it, under its fence.

The ledger is the actor's memory of the store. It is changed only after a commit, in one turn, so that a
snapshot taken at
any moment is true. It does not know frames or connections.

A connection lost at COMMIT leaves an unknown outcome. The ledger then raises the fence, which shuts the late
write out,
and reads what really was committed, before anything else is answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import new_message_id, utc_now
from protocol.run import RunStatus
from protocol.session import MessageRole, SessionMessage, TokenUsage
from storage.errors import Fenced, StorageUnavailable
from storage.messages import WINDOW_BYTES
from storage.records import AppendWrite, LastRun, SessionSeed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from protocol.tool_call import ToolCall
    from storage.records import Claimed, NewRun, RequestKey, RunEnd, SessionRow, ToolRecord, TurnWrite
    from storage.store import Store

_FIRST_FENCE = 1


class Draft(NamedTuple):
    """A message that somebody wants to append."""

    role: MessageRole
    content: str
    tool_call_id: str | None
    metadata: dict[str, Any]
    request: RequestKey
    origin: str


class Appended(NamedTuple):
    """A message that was appended, and who asked for it."""

    message: SessionMessage
    request_id: str
    origin: str


class Ledger:
    """One session as committed.

    - Attributes change only in its actor's task, in the turn that follows a commit.
    - Every write names the fence; :class:`~storage.errors.Fenced` means that this memory is worthless and
      ends
      the actor.
    - After a write of unknown outcome it is ``stale``, and :meth:`refresh` is due before any other write.
    - ``appended`` is called once for each message that a client asked for, also when it only turns out later
      that it had been committed.
    """

    def __init__(
        self,
        store: Store,
        session_id: str,
        owner: str,
        *,
        claimed: Claimed | None,
        window: int,
        appended: Callable[[Appended], None],
        project_id: str | None = None,
    ) -> None:
        self._store = store
        self._appended = appended
        self._window = window
        self.session_id = session_id
        self.owner = owner
        self.project_id = project_id
        self.seed: SessionSeed | None = None
        """The row to make with the first change; ``None`` once there is one."""
        self.fence = _FIRST_FENCE
        self.namespace = "local"
        self.actor_name: str | None = None
        self.metadata: dict[str, Any] = {}
        self.linked_plan_ids: tuple[str, ...] = ()
        self.usage = TokenUsage()
        self.created_at: datetime = utc_now()
        self.updated_at: datetime = self.created_at
        self.next_sequence = 0
        self.messages: deque[SessionMessage] = deque()
        """The last messages, oldest first: at most ``window``, and not many more than ``WINDOW_BYTES`` of
        text."""
        self._window_characters = 0
        self.tools: tuple[ToolRecord, ...] = ()
        """The tool calls that were open when the session was read last."""
        self.last_run: LastRun | None = None
        self.run_id: str | None = None
        """The run that is running now, kept alive by a refresh."""
        self._run_request_id: str | None = None
        self._attempted: RunEnd | None = None
        """The end of that run that was written last; after an unknown outcome perhaps the committed one."""
        self.stale = False
        self._doubtful: dict[str, Draft] = {}
        """Drafts by message id whose outcome is unknown."""
        if claimed is None:
            self.seed = SessionSeed(session_id, owner, project_id=project_id, created_at=self.created_at)
        else:
            self._adopt(claimed)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to tell of this session: no message and no run."""
        return self.next_sequence == 0 and self.last_run is None

    async def create(self, seed: SessionSeed) -> None:
        """Make the row of a session that is only in memory so far.

        Raises:
            Fault: ``session_exists``. StorageUnavailable.
        """
        if self.seed is None:
            raise Fault(ErrorCode.SESSION_EXISTS)
        await self._store.sessions.create(seed)
        self.seed, self.fence = None, 0
        try:
            claimed = await self._store.sessions.claim(
                self.session_id, self.owner, self._window, project=self.project_id
            )
        except StorageUnavailable:
            self.stale = True
            raise
        if claimed is None:
            raise Fenced
        self._adopt(claimed)

    async def append(self, draft: Draft) -> SessionMessage:
        """Append one message and tell ``appended`` of it, after its commit.

        Raises:
            DuplicateRequest, Fenced, Refused, StorageUnavailable.
        """
        message = SessionMessage(
            message_id=new_message_id(),
            sequence=self.next_sequence,
            role=draft.role,
            content=draft.content,
            tool_call_id=draft.tool_call_id,
            metadata=draft.metadata,
            created_at=utc_now(),
        )
        started = asyncio.get_running_loop().time()
        write = AppendWrite(self.session_id, self.fence, message, self.seed, draft.request, draft.origin)
        try:
            await self._store.sessions.append(write)
        except StorageUnavailable as fault:
            if not fault.outcome_unknown:
                raise
            self.stale = True
            self._doubtful[message.message_id] = draft
            found = await self._find_after(message.message_id, started)
            if found is None:
                raise
            return found
        self.seed = None
        self._accept(message)
        self._appended(Appended(message, draft.request.request_id, draft.origin))
        return message

    async def start(self, request: RequestKey, run: NewRun) -> None:
        """Record a run as running.

        Raises:
            DuplicateRequest, Fenced, Refused, StorageUnavailable: then the run has not begun, and never will.
        """
        try:
            await self._store.runs.start(self.session_id, self.fence, self.seed, request, run)
        except StorageUnavailable as fault:
            self.stale = self.stale or fault.outcome_unknown
            raise
        self.seed = None
        self.run_id, self._run_request_id = run.run_id, run.request_id
        self.updated_at = utc_now()

    async def commit(self, build: Callable[[int], TurnWrite]) -> TurnWrite:
        """Write what a running run, or a decision, brings.

        Args:
            build: Makes the write, given the sequence of its first message; the messages keep their ids when
            it
                is called again.

        Returns:
            What was committed, now or by an earlier call of unknown outcome.

        Raises:
            DuplicateRequest, Fenced, Refused, StorageUnavailable.
        """
        write = build(self.next_sequence)
        known = self.find(write.messages[0].message_id) if write.messages else None
        if known is not None:
            return build(known.sequence)
        try:
            await self._store.runs.commit_turn(self.session_id, self.fence, write)
        except StorageUnavailable as fault:
            self.stale = self.stale or fault.outcome_unknown
            raise
        for message in write.messages:
            self._accept(message)
        return write

    async def finish(
        self, build: Callable[[int], RunEnd], requests: Callable[[RunEnd], Sequence[RequestKey]]
    ) -> RunEnd:
        """End the running run.

        Args:
            build: Makes the end, given the sequence that its message would have.
            requests: What is to be remembered with that end.

        Returns:
            What was committed, its messages with the sequences they have.

        Raises:
            Fenced, Refused, StorageUnavailable: Call again after a refresh; it is committed once.
        """
        if self.run_id is None and self._attempted is not None:
            end, self._attempted = self._attempted, None  # a refresh has found it committed
            return end
        end = self._attempted = build(self.next_sequence)
        try:
            await self._store.runs.finish(self.session_id, self.fence, end, requests(end))
        except StorageUnavailable as fault:
            self.stale = self.stale or fault.outcome_unknown
            raise
        if end.message is not None:
            self._accept(end.message)
        for message in end.messages:
            self._accept(message)
        self.usage = TokenUsage(
            input_tokens=self.usage.input_tokens + end.usage.input_tokens,
            output_tokens=self.usage.output_tokens + end.usage.output_tokens,
            estimated_cost=self.usage.estimated_cost + end.usage.estimated_cost,
        )
        self._ended(end)
        return end

    async def refresh(self) -> None:
        """After an unknown outcome: shut the late write out and read what is committed. Otherwise nothing.

        Raises:
            Fenced, StorageUnavailable: The outcome stays unknown.
        """
        if not self.stale:
            return
        keep = self.run_id
        claimed = await self._store.sessions.reclaim(self.session_id, self.fence, keep, self._window)
        self.stale = False
        doubtful, self._doubtful = self._doubtful, {}
        if claimed is None:
            if self.seed is None:
                raise Fenced
            return
        self.seed = None
        known, before = self.next_sequence, self.last_run
        self._adopt(claimed)
        if keep is not None and self.last_run is not None and self.last_run.run_id == keep:
            if self.last_run.status is RunStatus.RUNNING:
                self.last_run = before
            else:
                self.run_id = None  # its end had been committed
        for message in self.messages:
            draft = doubtful.get(message.message_id)
            if message.sequence >= known and draft is not None:
                self._appended(Appended(message, draft.request.request_id, draft.origin))

    def doubt(self) -> None:
        """What is committed is not known for certain: have :meth:`refresh` find out."""
        self.stale = True

    def describe(self, row: SessionRow) -> None:
        """Take over what an update changed."""
        self.actor_name = row.actor_name
        self.metadata = row.metadata
        self.linked_plan_ids = row.linked_plan_ids
        self.updated_at = row.updated_at

    def find(self, message_id: str) -> SessionMessage | None:
        """A message among the last ones."""
        return next(
            (message for message in reversed(self.messages) if message.message_id == message_id), None
        )

    def show_call(self, message_id: str, call: ToolCall) -> None:
        """Let the message that made a call show it as it is now."""
        for at in range(len(self.messages) - 1, -1, -1):
            message = self.messages[at]
            if message.message_id == message_id:
                calls = tuple(call if c.tool_call_id == call.tool_call_id else c for c in message.tool_calls)
                self.messages[at] = replace(message, tool_calls=calls)
                return

    @property
    def whole(self) -> bool:
        """Whether all messages there are, are among the last ones."""
        return self.next_sequence == len(self.messages)

    async def tool_ids(self) -> frozenset[str]:
        """The ids of all tool calls of this session. Raises StorageUnavailable."""
        return await self._store.runs.tool_ids(self.session_id)

    async def find_tool(self, tool_call_id: str) -> ToolRecord | None:
        """A tool call of this session, open or settled. Raises StorageUnavailable."""
        return await self._store.runs.tool(self.session_id, tool_call_id)

    def last_question(self) -> str:
        """The content of the last user message; empty when there is none in the window."""
        return next((m.content for m in reversed(self.messages) if m.role is MessageRole.USER), "")

    async def _find_after(self, message_id: str, started: float) -> SessionMessage | None:
        """Whether a message was committed after all, if that shows while its client still waits."""
        left = self._store.db.command_timeout_s - (asyncio.get_running_loop().time() - started)
        if left <= 0:
            return None
        try:
            async with asyncio.timeout(left):
                await self.refresh()
        except (StorageUnavailable, TimeoutError):
            return None
        return self.find(message_id)

    def _adopt(self, claimed: Claimed) -> None:
        self.fence = claimed.fence
        self.namespace = claimed.namespace
        self.actor_name = claimed.actor_name
        self.project_id = claimed.project_id
        self.metadata = claimed.metadata
        self.linked_plan_ids = claimed.linked_plan_ids
        self.usage = claimed.usage
        self.created_at = claimed.created_at
        self.updated_at = claimed.updated_at
        self.next_sequence = claimed.next_sequence
        self.messages = deque(claimed.messages)
        self._window_characters = sum(len(message.content) for message in claimed.messages)
        self.tools = claimed.tools
        self.last_run = claimed.last_run

    def _accept(self, message: SessionMessage) -> None:
        self.messages.append(message)
        self._window_characters += len(message.content)
        while len(self.messages) > self._window or (
            self._window_characters > WINDOW_BYTES and len(self.messages) > 1
        ):
            self._window_characters -= len(self.messages.popleft().content)
        self.next_sequence = message.sequence + 1
        self.updated_at = message.created_at

    def _ended(self, end: RunEnd) -> None:
        error = end.error
        self.last_run = LastRun(
            run_id=end.run_id,
            request_id=self._run_request_id,
            status=end.status,
            finish_reason=end.finish_reason,
            error_code=None if error is None else error.code,
            error_message=None if error is None else error.message,
        )
        self.run_id = self._attempted = None
