"""The actor of ``/ws/conversations/{session_id}``: one conversation, and the commands that REST has for
it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from protocol.client_frames import AppendMessage, ConfirmTool, RequestCompletion, StopCompletion
from protocol.codec import body_sha256
from protocol.codes import CloseCode, ErrorCode
from protocol.errors import Fault
from protocol.ids import new_ulid
from protocol.server_frames import Origin, Snapshot, error_frame
from server.actors.base import Actor, Call, Doubt, Ending, FromSocket
from server.actors.commands import AppendFromRest, AppendResult, DeleteSession, UpdateSession
from server.actors.completions import Host, Over, TryAgain
from server.actors.conversation import Conversation
from server.actors.ledger import Draft
from storage.errors import DuplicateRequest, StorageUnavailable
from storage.records import RequestKey

if TYPE_CHECKING:
    from server.actors.base import Services
    from storage.records import Claimed, SessionRow


class ConversationActor(Actor):
    """One conversation that belongs to itself."""

    kind: ClassVar[str] = "conversation"

    def __init__(self, resource_id: str, owner: str, services: Services, claimed: Claimed | None) -> None:
        super().__init__(resource_id, owner, services)
        host = Host(
            services.store,
            services.catalog,
            services.settings,
            services.metrics,
            self.emit,
            self.mailbox.put,
            self.spawn,
        )
        self.conversation = Conversation(host, resource_id, resource_id, owner, claimed)
        self._history = claimed is not None and not self.conversation.ledger.empty

    async def handle(self, message: Any) -> None:
        """Handle a frame of the holder, a command of REST, or what the conversation told itself."""
        match message:
            case FromSocket(attachment=attachment, frame=frame):
                assert isinstance(frame, AppendMessage | RequestCompletion | StopCompletion | ConfirmTool)
                try:
                    answer = await self.conversation.handle_frame(frame)
                except Fault as fault:
                    answer = error_frame(fault, request_id=frame.request_id)
                if answer is not None and not attachment.detached:
                    attachment.peer.tell(answer)
            case Call(command=command, answer=future):
                try:
                    result = await self._command(command)
                except Fault as fault:
                    if not future.done():
                        future.set_exception(fault)
                else:
                    if not future.done():
                        future.set_result(result)
                    if isinstance(command, DeleteSession):
                        raise Ending(CloseCode.NOT_FOUND, "deleted")
            case Over() | TryAgain():
                await self.conversation.handle_own(message)
            case Doubt(run_id=run_id):
                await self._doubt(run_id)
            case _:
                raise TypeError(f"no handling for {type(message).__name__}")

    async def _command(self, command: Any) -> Any:
        match command:
            case AppendFromRest():
                return await self._append(command)
            case UpdateSession():
                return await self._update(command)
            case DeleteSession():
                await self.conversation.completions.interrupt()
                await self.services.store.sessions.delete(self.resource_id, self.owner)
                return None
            case _:
                raise TypeError(f"no handling for {type(command).__name__}")

    async def _append(self, command: AppendFromRest) -> AppendResult:
        request_id = command.request_id or f"rest-{new_ulid()}"
        try:
            frame = AppendMessage(
                request_id=request_id,
                role=command.role,
                content=command.content,
                tool_call_id=command.tool_call_id,
                metadata=command.metadata,
            )
        except ValueError as error:
            raise Fault(ErrorCode.INVALID_MESSAGE, str(error)) from error
        key = RequestKey(self.resource_id, request_id, "append_message", body_sha256(frame))
        draft = Draft(frame.role, frame.content, frame.tool_call_id, frame.metadata, key, Origin.REST.value)
        try:
            return AppendResult(await self.conversation.append(draft), repeated=False)
        except DuplicateRequest as duplicate:
            record = duplicate.record
            if record.kind != key.kind or record.body_sha256 != key.body_sha256:
                raise Fault(
                    ErrorCode.REQUEST_ID_CONFLICT, "this requestId was used for another request"
                ) from None
            return AppendResult(await self.conversation.find_appended(record), repeated=True)

    async def _update(self, command: UpdateSession) -> SessionRow:
        ledger = self.conversation.ledger
        await ledger.refresh()
        row = await self.services.store.sessions.update(
            self.resource_id,
            self.owner,
            metadata=command.metadata,
            actor_name=command.actor_name,
            linked_plan_ids=command.linked_plan_ids,
            fence=ledger.fence,
        )
        ledger.describe(row)
        return row

    async def _doubt(self, run_id: str) -> None:
        """A checkpoint met another fence: find out whether the session is still this actor's."""
        ledger = self.conversation.ledger
        if ledger.run_id != run_id:
            return
        ledger.doubt()
        try:
            await ledger.refresh()
        except StorageUnavailable:
            self.conversation.completions.retry_later()

    def drain(self) -> None:
        """Refuse new completions from now on."""
        self.conversation.completions.draining = True

    async def finish(self) -> None:
        """End what runs as interrupted."""
        await self.conversation.completions.interrupt()

    def snapshot(self) -> Snapshot:
        """The conversation, from memory."""
        return Snapshot.of_conversation(self.outbox.latest, self.conversation.view())

    @property
    def busy(self) -> bool:
        """Whether something runs, ends, waits or is in doubt."""
        return self.conversation.busy

    @property
    def untold(self) -> bool:
        """Whether there was history when the actor was loaded."""
        return self._history

    @property
    def saved(self) -> bool:
        """Whether the session has a row."""
        return self.conversation.ledger.seed is None

    def release(self) -> None:
        """Let go of the completion and the timers."""
        self.conversation.completions.close()
