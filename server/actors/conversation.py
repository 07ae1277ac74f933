"""A conversation: what its frames and commands do, and what of it a snapshot shows.

One :class:`Conversation` is the whole of a conversation's actor, and one of many of a project's; so it is
told how to
emit and hands back what goes to the asking connection alone. It does not know sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

import structlog

from protocol.client_frames import (
    AppendMessage,
    ConfirmTool,
    ConversationRequest,
    RequestCompletion,
    StopCompletion,
)
from protocol.codec import body_sha256, canonical_sha256, tag_of
from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import new_message_id, new_ulid, utc_now
from protocol.message import check_content
from protocol.run import RunError, RunStatus
from protocol.server_frames import (
    CompletionDone,
    CompletionStopped,
    ConversationView,
    FinishReason,
    LastRunView,
    MessageAppended,
    Origin,
    RunningView,
    ServerFrame,
    SessionView,
    Timing,
    ToolConfirmationProcessed,
)
from protocol.session import MessageRole, SessionMessage
from protocol.tool_call import ConfirmationState, Decision
from server.actors.calls import Calls
from server.actors.completions import Completions, Over, TryAgain, Wanted
from server.actors.ledger import Appended, Draft, Ledger
from server.actors.progress import Asked
from server.actors.requests import check_same
from server.actors.showing import last_messages
from server.tools.confirmation import Accept, Answer, AwaitingInput, Reject
from storage.errors import DuplicateRequest, Refused, StorageUnavailable
from storage.records import RequestKey, TurnWrite

if TYPE_CHECKING:
    from server.actors.host import Host
    from storage.records import Claimed, LastRun, RequestRecord, SessionRow, SessionSeed

log = structlog.get_logger(__name__)

Own: TypeAlias = Over | TryAgain | Asked
"""What a conversation posts to its actor, to get it back in :meth:`Conversation.handle_own`."""


class Conversation:
    """One session, live.

    - ``ledger`` is what is committed; ``calls`` the tool calls that are open; ``completions`` what runs and
      waits.
    - ``resource_id`` is the socket's resource, in which request ids are unique (ST4).
    """

    def __init__(
        self,
        host: Host,
        resource_id: str,
        session_id: str,
        owner: str,
        claimed: Claimed | None,
        *,
        project_id: str | None = None,
    ) -> None:
        self._host = host
        self._resource_id = resource_id
        settings = host.services.settings
        self.ledger = Ledger(
            host.services.store,
            session_id,
            owner,
            claimed=claimed,
            window=max(settings.context_messages, settings.snapshot_messages),
            appended=self._tell_appended,
            project_id=project_id,
        )
        self.calls = Calls(self.ledger, host.emit, host.services.toolbox)
        self.completions = Completions(host, self.ledger, self.calls)

    # The actor's questions and orders.

    @property
    def busy(self) -> bool:
        """Whether something runs, ends, waits or is in doubt."""
        return not self.completions.idle or self.ledger.stale

    def owns_run(self, run_id: str) -> bool:
        """Whether this run is running here."""
        return self.ledger.run_id == run_id

    async def doubt(self, run_id: str) -> None:
        """A checkpoint of a run met another fence: find out whether the session is still here.

        Raises:
            Fenced: It is not.
        """
        if self.owns_run(run_id):
            self.ledger.doubt()
            await self.completions.settle()

    def drain(self) -> None:
        """Begin nothing new, the server goes away soon (CN10)."""
        self.completions.drain()

    async def finish(self) -> None:
        """End what runs as interrupted, in the store and on the wire."""
        await self.completions.interrupt()

    def release(self) -> None:
        """Let go of timers and upstream requests."""
        self.completions.close()

    async def handle_own(self, message: Own) -> None:
        """Handle what the conversation's own task or timer posted."""
        match message:
            case Over(run=run):
                await self.completions.over(run)
            case TryAgain():
                await self.completions.try_again()
            case Asked():
                await self.completions.progress(message)
            case _:
                assert_never(message)

    # What clients ask for.

    def key(self, frame: ConversationRequest) -> RequestKey:
        """The key under which a frame's effect is remembered; in a project its body includes the
        conversation."""
        body = body_sha256(frame)
        if self._resource_id != self.ledger.session_id:
            body = canonical_sha256([self.ledger.session_id, body])
        return RequestKey(self._resource_id, frame.request_id, tag_of(type(frame)), body)

    async def handle_frame(self, frame: ConversationRequest) -> ServerFrame | None:
        """Carry out a client's frame.

        Returns:
            The unsequenced answer to a repeat (ST4); otherwise nothing, what it does is told through the
            outbox.

        Raises:
            Fault: What is refused; nothing was changed.
            Fenced: Another process owns the session now.
        """
        key = self.key(frame)
        try:
            repeated = self.completions.known(key)
            if repeated is not None:
                return repeated
            await self._catch_up(frame)
            return await self._carry_out(frame, key)
        except DuplicateRequest as duplicate:
            return await self._repeat(duplicate.record, key)
        except (StorageUnavailable, Refused) as error:
            raise self.trouble(error) from error

    def trouble(self, error: StorageUnavailable | Refused) -> Fault:
        """What a client is told when the store was no help; what is in doubt will be looked into."""
        if self.ledger.stale:
            self.completions.retry_later()
        if isinstance(error, StorageUnavailable):
            return error
        correlation_id = new_ulid()
        log.error(
            "the store refused a write", session_id=self.ledger.session_id, correlation_id=correlation_id
        )
        return Fault(ErrorCode.INTERNAL, details={"correlation_id": correlation_id})

    async def _catch_up(self, frame: ConversationRequest) -> None:
        """Before anything is written, what was in doubt is found out. A stop does not wait for that."""
        if not isinstance(frame, StopCompletion):
            await self.completions.catch_up()

    async def _carry_out(self, frame: ConversationRequest, key: RequestKey) -> ServerFrame | None:
        match frame:
            case AppendMessage():
                await self.append(
                    Draft(
                        frame.role,
                        frame.content,
                        frame.tool_call_id,
                        frame.metadata,
                        key,
                        Origin.SOCKET.value,
                    )
                )
                return None
            case RequestCompletion():
                wanted = Wanted(key, frame.model, frame.reasoning, frame.on_pending)
                await self.completions.request(wanted, frame.on_busy)
                return None
            case StopCompletion():
                await self.completions.stop(key, frame.target_request_id, frame.scope)
                return None
            case ConfirmTool():
                processed = await self.decide(
                    frame.tool_call_id, frame.decision, frame.arguments, frame.reason, key
                )
                return processed if processed.repeated is True else None
            case _:
                assert_never(frame)

    async def append(self, draft: Draft) -> SessionMessage:
        """Append a message; it is told through the outbox after its commit (ER5).

        A tool message answers a question of the model; any other message cancels the questions that wait
        (TL7).

        Raises:
            Fault: ``invalid_message`` (ER3), ``unknown_tool_call``, ``storage_unavailable``.
            DuplicateRequest: The store remembers the request.
        """
        check_content(draft.content)
        if draft.role is MessageRole.TOOL:
            return await self._answer(draft)
        if draft.role is MessageRole.USER and self._questions():
            return await self._append_over_questions(draft)
        return await self.ledger.append(draft)

    async def decide(
        self,
        tool_call_id: str,
        decision: Decision,
        arguments: str | None,
        reason: str | None,
        key: RequestKey,
    ) -> ToolConfirmationProcessed:
        """Record a person's decision on a call (TL5); as :meth:`~server.actors.calls.Calls.decide`."""
        if not self.calls.undecided(tool_call_id):
            await self.completions.refuse_remembered(key)
        now, by = utc_now(), self.ledger.owner
        event = Accept(by, now, arguments) if decision is Decision.ACCEPT else Reject(by, now, reason)
        return await self.calls.decide(tool_call_id, event, key)

    async def find_appended(self, record: RequestRecord) -> SessionMessage:
        """The message that a remembered append made."""
        message_id = record.message_id or (record.outcome or {}).get("message_id", "")
        message = self.ledger.find(message_id)
        if message is None:
            message = await self._host.services.store.sessions.message(self.ledger.session_id, message_id)
        return message

    async def create(self, seed: SessionSeed) -> None:
        """Make the row of a session that a socket holds and nothing has written yet."""
        await self.ledger.create(seed)

    async def update(self, fields: dict[str, Any]) -> SessionRow:
        """Change what describes the session.

        Raises:
            Fenced, StorageUnavailable.
        """
        store = self._host.services.store
        try:
            row = await store.sessions.update(
                self.ledger.session_id, self.ledger.owner, fence=self.ledger.fence, **fields
            )
        except StorageUnavailable as fault:
            if fault.outcome_unknown:
                self.ledger.doubt()
            raise
        self.ledger.describe(row)
        return row

    # What a snapshot shows.

    def view(self) -> ConversationView:
        """Everything that a client must know to go on from here, from memory, in one step."""
        ledger, completions = self.ledger, self.completions
        shown = last_messages(ledger.messages, self._host.services.settings.snapshot_messages)
        return ConversationView(
            session=SessionView(
                session_id=ledger.session_id,
                namespace=ledger.namespace,
                actor_name=ledger.actor_name,
                project_id=ledger.project_id,
                message_count=ledger.next_sequence,
                linked_plan_ids=list(ledger.linked_plan_ids),
                token_usage=ledger.usage,
                metadata=ledger.metadata,
                created_at=ledger.created_at,
                updated_at=ledger.updated_at,
            ),
            messages=shown,
            truncated=ledger.next_sequence > len(shown),
            running=self._running_view(),
            queued=[wanted.request_id for wanted in completions.queued],
            waiting=self.calls.views(),
            last_run=None if ledger.last_run is None else _last_run_view(ledger.last_run),
        )

    def _running_view(self) -> RunningView | None:
        run = self.completions.running
        if run is None:
            return None
        turn = run.turn
        return RunningView(
            request_id=run.request_id,
            run_id=run.run_id,
            model=run.model,
            message_id=turn.message_id,
            text=turn.text,
            thinking=turn.thinking,
            next_sentence_index=turn.next_sentence_index,
            sentence=turn.sentence_begun,
            tool_calls=self.calls.views(run.run_id),
        )

    # Messages.

    def _questions(self) -> bool:
        return any(isinstance(call.state, AwaitingInput) for call in self.calls.open.values())

    async def _answer(self, draft: Draft) -> SessionMessage:
        """A person's answer to a question of the model."""
        assert draft.tool_call_id is not None
        tool_call_id, message_id = draft.tool_call_id, new_message_id()
        if tool_call_id not in self.calls.open:
            await self.completions.refuse_remembered(draft.request)
        write = await self.calls.answer(
            tool_call_id,
            Answer(self.ledger.owner, utc_now(), draft.content),
            lambda sequence: _message_of(draft, message_id, sequence),
            _with_message(draft.request, message_id),
            origin=draft.origin,
        )
        self._tell_appended(Appended(write.messages[0], draft.request.request_id, draft.origin))
        return write.messages[0]

    async def _append_over_questions(self, draft: Draft) -> SessionMessage:
        """A plain message cancels the questions that wait for an answer; all in one write (TL7)."""
        message_id = new_message_id()
        cancelled = self.calls.cancelled_questions()

        def build(sequence: int) -> TurnWrite:
            settled = self.calls.write(cancelled, sequence)
            message = _message_of(draft, message_id, sequence + len(settled.messages))
            return TurnWrite(
                messages=(*settled.messages, message),
                tools=settled.tools,
                requests=(_with_message(draft.request, message_id),),
                origin=draft.origin,
            )

        write = await self.ledger.commit(build)
        self.calls.moved(cancelled, write, draft.request.request_id)
        self._tell_appended(Appended(write.messages[-1], draft.request.request_id, draft.origin))
        return write.messages[-1]

    def _tell_appended(self, appended: Appended) -> None:
        self._host.emit(_appended_frame(appended.message, appended.request_id, Origin(appended.origin)))

    # Repeats (ST4).

    async def _repeat(self, record: RequestRecord, key: RequestKey) -> ServerFrame:
        """Answer a repeated request by its outcome."""
        check_same(record, key)
        frame: ServerFrame
        match record.kind:
            case "append_message":
                frame = _appended_frame(await self.find_appended(record), key.request_id, Origin.SOCKET)
            case "request_completion":
                frame = await self._done_again(record, key)
            case "stop_completion":
                frame = await self._stopped_again(record)
            case "confirm_tool":
                frame = processed_again(record, key)
            case kind:
                raise Fault(ErrorCode.INTERNAL, f"no answer to a repeated {kind}")
        frame.repeated = True
        return frame

    async def _done_again(self, record: RequestRecord, key: RequestKey) -> CompletionDone:
        if record.run_id is None:  # it was stopped while it waited
            return CompletionDone(request_id=key.request_id, run_id=None, finish_reason=FinishReason.STOPPED)
        row = await self._host.services.store.runs.get(record.run_id, self.ledger.owner)
        total = 0.0 if row.ended_at is None else (row.ended_at - row.created_at).total_seconds()
        return CompletionDone(
            request_id=key.request_id,
            run_id=row.run_id,
            finish_reason=FinishReason(row.finish_reason or FinishReason.INTERRUPTED),
            usage=row.usage,
            timing=Timing(ttft_ms=None, total_ms=round(total * 1000)),
        )

    async def _stopped_again(self, record: RequestRecord) -> CompletionStopped:
        facts = record.outcome or {}
        if "queued" in facts:
            self.completions.stopped_while_queued(facts["queued"], record.request_id)
            return CompletionStopped(
                request_id=facts["queued"][0], run_id=None, stop_request_id=record.request_id
            )
        message_id = facts.get("message_id")
        text = ""
        if message_id is not None:
            text = (await self._host.services.store.runs.get(record.run_id or "", self.ledger.owner)).answer
        return CompletionStopped(
            request_id=facts.get("request_id", record.request_id),
            run_id=record.run_id,
            message_id=message_id,
            sequence=facts.get("sequence"),
            partial_text=text,
            stop_request_id=record.request_id,
        )


def _message_of(draft: Draft, message_id: str, sequence: int) -> SessionMessage:
    return SessionMessage(
        message_id=message_id,
        sequence=sequence,
        role=draft.role,
        content=draft.content,
        tool_call_id=draft.tool_call_id,
        metadata=draft.metadata,
        created_at=utc_now(),
    )


def _with_message(key: RequestKey, message_id: str) -> RequestKey:
    """A key that leads to the message it made, for the answer to a repeat."""
    return RequestKey(key.resource_id, key.request_id, key.kind, key.body_sha256, {"message_id": message_id})


def processed_again(record: RequestRecord, key: RequestKey) -> ToolConfirmationProcessed:
    facts = record.outcome or {}
    return ToolConfirmationProcessed(
        request_id=key.request_id,
        tool_call_id=facts["tool_call_id"],
        decision=Decision(facts["decision"]),
        confirmation_state=ConfirmationState(facts["confirmation_state"]),
        arguments_sha256=facts["arguments_sha256"],
    )


def _appended_frame(message: SessionMessage, request_id: str, origin: Origin) -> MessageAppended:
    return MessageAppended(
        request_id=request_id,
        message_id=message.message_id,
        sequence=message.sequence,
        role=message.role,
        content=message.content,
        tool_call_id=message.tool_call_id,
        origin=origin,
    )


def _last_run_view(last: LastRun) -> LastRunView:
    error = None
    if last.error_code is not None:
        error = RunError(code=last.error_code, message=last.error_message or "")
    return LastRunView(
        run_id=last.run_id,
        request_id=last.request_id,
        status=RunStatus(last.status),
        finish_reason=None if last.finish_reason is None else FinishReason(last.finish_reason),
        error=error,
    )
