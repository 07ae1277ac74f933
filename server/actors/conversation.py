"""A conversation: what its frames and commands do, and what of it a snapshot shows.

One :class:`Conversation` is the whole of a conversation's actor here, and one of many of a project's; so it
is told
how to emit and to whom a frame's answer goes, and does not know sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

from protocol.client_frames import (
    AppendMessage,
    ConfirmTool,
    RequestCompletion,
    StopCompletion,
)
from protocol.codec import body_sha256, tag_of
from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.run import RunError, RunStatus
from protocol.server_frames import (
    CompletionDone,
    CompletionStopped,
    ConversationView,
    FinishReason,
    LastRunView,
    MessageAppended,
    MessageView,
    Origin,
    RunningView,
    ServerFrame,
    SessionView,
    Timing,
    ToolCallView,
)
from protocol.session import MessageRole, SessionMessage
from server.actors.completions import Completions, Over, TryAgain, Wanted
from server.actors.ledger import Appended, Draft, Ledger
from storage.errors import DuplicateRequest, StorageUnavailable
from storage.records import RequestKey

if TYPE_CHECKING:
    from server.actors.completions import Host
    from storage.records import Claimed, LastRun, RequestRecord

Request: TypeAlias = AppendMessage | RequestCompletion | StopCompletion | ConfirmTool
"""The frames of a conversation that have a ``request_id``."""


class Conversation:
    """One session, live.

    - ``ledger`` is what is committed; ``completions`` what runs and waits.
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
        self.ledger = Ledger(
            host.store,
            session_id,
            owner,
            claimed=claimed,
            window=host.settings.context_messages,
            appended=self._tell_appended,
            project_id=project_id,
        )
        self.completions = Completions(host, self.ledger)

    @property
    def busy(self) -> bool:
        """Whether something runs, ends, waits or is in doubt."""
        return not self.completions.idle or self.ledger.stale

    async def handle_frame(self, frame: Request) -> ServerFrame | None:
        """Carry out a client's frame.

        Returns:
            The unsequenced answer to a repeat (ST4); otherwise nothing, what it does is told through the
            outbox.

        Raises:
            Fault: What is refused; nothing was changed.
            Fenced: Another process owns the session now.
        """
        key = RequestKey(self._resource_id, frame.request_id, tag_of(type(frame)), body_sha256(frame))
        try:
            match frame:
                case AppendMessage():
                    draft = Draft(
                        frame.role,
                        frame.content,
                        frame.tool_call_id,
                        frame.metadata,
                        key,
                        Origin.SOCKET.value,
                    )
                    await self.append(draft)
                    return None
                case RequestCompletion():
                    wanted = Wanted(frame.request_id, key, frame.model, frame.reasoning)
                    return await self.completions.request(wanted, frame.on_busy)
                case StopCompletion():
                    await self.completions.stop(key, frame.target_request_id, frame.scope)
                    return None
                case ConfirmTool():
                    raise Fault(ErrorCode.UNKNOWN_TOOL_CALL, "no tool call of this id waits for a decision")
                case _:
                    assert_never(frame)
        except DuplicateRequest as duplicate:
            return await self._repeat(duplicate.record, key)
        except StorageUnavailable:
            if self.ledger.stale:
                self.completions.retry_later()
            raise

    async def append(self, draft: Draft) -> SessionMessage:
        """Append a message; it is told through the outbox after its commit (ER5).

        Raises:
            Fault: ``invalid_message`` (ER3), ``unknown_tool_call``, ``storage_unavailable``.
            DuplicateRequest: The store remembers the request.
        """
        if not draft.content or draft.content.isspace():
            raise Fault(ErrorCode.INVALID_MESSAGE, "content must not be empty or only whitespace")
        if draft.role is MessageRole.TOOL:
            raise Fault(ErrorCode.UNKNOWN_TOOL_CALL, "no tool call of this id waits for an answer")
        return await self.ledger.append(draft)

    async def handle_own(self, message: Over | TryAgain) -> None:
        """Handle what its own task or timer posted."""
        match message:
            case Over(run=run):
                await self.completions.over(run)
            case TryAgain():
                await self.completions.try_again()
            case _:
                assert_never(message)

    async def find_appended(self, record: RequestRecord) -> SessionMessage:
        """The message that a remembered append made."""
        message_id = record.message_id or ""
        message = self.ledger.find(message_id)
        if message is None:
            message = await self._host.store.sessions.message(self.ledger.session_id, message_id)
        return message

    def view(self) -> ConversationView:
        """Everything that a client must know to go on from here, from memory, in one step."""
        ledger, completions = self.ledger, self.completions
        shown = list(ledger.messages)[-self._host.settings.snapshot_messages :]
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
            messages=[_message_view(message) for message in shown],
            truncated=ledger.next_sequence > len(shown),
            running=self._running_view(),
            queued=[wanted.request_id for wanted in completions.queued],
            waiting=[],
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
        )

    def _tell_appended(self, appended: Appended) -> None:
        message = appended.message
        self._host.emit(_appended_frame(message, appended.request_id, Origin(appended.origin)))

    async def _repeat(self, record: RequestRecord, key: RequestKey) -> ServerFrame:
        """Answer a repeated request by its outcome (ST4)."""
        if record.kind != key.kind or record.body_sha256 != key.body_sha256:
            raise Fault(ErrorCode.REQUEST_ID_CONFLICT, "this request_id was used for another request")
        match record.kind:
            case "append_message":
                message = await self.find_appended(record)
                frame: ServerFrame = _appended_frame(message, key.request_id, Origin.SOCKET)
            case "request_completion":
                frame = await self._done_again(record, key)
            case "stop_completion":
                frame = await self._stopped_again(record)
            case kind:
                raise Fault(ErrorCode.INTERNAL, f"no answer to a repeated {kind}")
        frame.repeated = True
        return frame

    async def _done_again(self, record: RequestRecord, key: RequestKey) -> CompletionDone:
        row = await self._host.store.runs.get(record.run_id or "", self.ledger.owner)
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
        text = ""
        if record.run_id is not None:
            text = (await self._host.store.runs.get(record.run_id, self.ledger.owner)).answer
        return CompletionStopped(
            request_id=facts.get("request_id", record.request_id),
            run_id=record.run_id,
            message_id=facts.get("message_id"),
            sequence=facts.get("sequence"),
            partial_text=text,
            stop_request_id=record.request_id,
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


def _message_view(message: SessionMessage) -> MessageView:
    return MessageView(
        message_id=message.message_id,
        sequence=message.sequence,
        role=message.role,
        content=message.content,
        tool_call_id=message.tool_call_id,
        tool_calls=[
            ToolCallView(
                run_id="",
                message_id=message.message_id,
                tool_call_id=call.tool_call_id,
                name=call.name,
                arguments=call.arguments,
                arguments_sha256=call.arguments_sha256,
                confirmation_state=call.confirmation_state,
                execution_state=call.execution_state,
            )
            for call in message.tool_calls
        ],
        metadata=message.metadata,
        created_at=message.created_at,
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
