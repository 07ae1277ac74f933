"""The actor of ``/ws/conversations/{session_id}``: one conversation, and the commands that REST has for
it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from protocol.client_frames import AppendMessage, ConfirmTool, RequestCompletion, StopCompletion
from protocol.codes import CloseCode, ErrorCode
from protocol.errors import Fault
from protocol.server_frames import Snapshot, error_frame
from server.actors.base import Actor, Call, Doubt, Ending, FromSocket
from server.actors.commands import CreateSession, DeleteSession
from server.actors.completions import Over, TryAgain
from server.actors.conversation import Conversation
from server.actors.conversation_commands import carry_out
from server.actors.host import Host
from server.actors.kinds import Kind
from server.actors.progress import Asked
from storage.errors import Refused, StorageUnavailable

if TYPE_CHECKING:
    from server.actors.base import Services
    from storage.records import Claimed


class ConversationActor(Actor):
    """One conversation that belongs to itself."""

    kind: ClassVar[Kind] = Kind.CONVERSATION

    def __init__(self, resource_id: str, owner: str, services: Services, claimed: Claimed | None) -> None:
        super().__init__(resource_id, owner, services)
        host = Host(services, self.emit, self.mailbox.put, self.spawn)
        self.conversation = Conversation(host, resource_id, resource_id, owner, claimed)
        self._history = not self.conversation.ledger.empty

    @classmethod
    async def load(
        cls, resource_id: str, owner: str, services: Services, *, create: bool
    ) -> ConversationActor:
        """Take a session over.

        Raises:
            Fault: ``not_found``, ``use_project_socket``, ``storage_unavailable``.
        """
        claimed = await services.store.sessions.claim(resource_id, owner, services.settings.context_messages)
        if claimed is None and not create:
            raise Fault(ErrorCode.NOT_FOUND)
        return cls(resource_id, owner, services, claimed)

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
            case Call():
                await self._call(message)
            case Over() | TryAgain() | Asked():
                await self.conversation.handle_own(message)
            case Doubt(run_id=run_id):
                await self.conversation.doubt(run_id)
            case _:
                raise TypeError(f"no handling for {type(message).__name__}")

    async def _call(self, call: Call) -> None:
        """Carry a command out and answer it.

        Raises:
            Ending: The session was deleted.
        """
        try:
            result = await self._command(call.command)
        except (StorageUnavailable, Refused) as error:
            _fail(call, self.conversation.trouble(error))
        except Fault as fault:
            _fail(call, fault)
            if isinstance(call.command, DeleteSession) and fault.code is ErrorCode.NOT_FOUND:
                raise Ending(CloseCode.NOT_FOUND, "deleted") from None
        else:
            if not call.answer.done():
                call.answer.set_result(result)
            if isinstance(call.command, DeleteSession):
                self.conversation.completions.abandon()
                raise Ending(CloseCode.NOT_FOUND, "deleted")

    async def _command(self, command: Any) -> Any:
        match command:
            case CreateSession(seed=seed):
                await self.conversation.completions.catch_up()
                return await self.conversation.create(seed)
            case DeleteSession():
                return await self.services.store.sessions.delete(self.resource_id, self.owner)
            case _:
                return await carry_out(self.conversation, command)

    def owns_run(self, run_id: str) -> bool:
        """Whether a run is running here."""
        return self.conversation.owns_run(run_id)

    def drain(self) -> None:
        """Refuse new completions from now on; those that wait are over."""
        self.conversation.drain()

    async def finish(self) -> None:
        """End what runs as interrupted."""
        await self.conversation.finish()

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
        self.conversation.release()


def _fail(call: Call, fault: Fault) -> None:
    if not call.answer.done():
        call.answer.set_exception(fault)
