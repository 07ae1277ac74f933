"""The actor of ``/ws/projects/{project_id}``: a canvas and any number of conversations, on one sequence.

The domains are apart: what goes wrong in one is answered there, and the other goes on (CV4).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import structlog

from protocol.client_frames import (
    Ack,
    AppendMessage,
    CanvasGet,
    ConfirmTool,
    ConversationList,
    Domain,
    Ping,
    RequestCompletion,
    StopCompletion,
)
from protocol.codes import CloseCode, ErrorCode
from protocol.errors import Fault
from protocol.ids import new_ulid
from protocol.server_frames import ConversationListed, ProjectView, ServerFrame, Snapshot, error_frame
from server.actors.base import Actor, Call, Doubt, Ending, FromSocket
from server.actors.commands import (
    AppendFromRest,
    CreateProject,
    CreateSession,
    DecideFromRest,
    DeleteProject,
    DeleteSession,
    ForConversation,
)
from server.actors.conversation_commands import carry_out
from server.actors.kinds import Kind
from server.actors.project_canvas import ProjectCanvas
from server.actors.project_conversations import FromConversation, ProjectConversations
from server.actors.project_ledger import ProjectLedger
from storage.errors import Fenced, Refused, StorageUnavailable

if TYPE_CHECKING:
    from protocol.canvas import CreatedBy
    from protocol.client_frames import Address, CanvasFrame, ConversationFrame, ProjectFrame
    from protocol.server_frames import CanvasBatchResult
    from server.actors.attachment import Attachment
    from server.actors.base import Services
    from server.canvas.edits import RawBatch
    from storage.records import ProjectClaimed

log = structlog.get_logger(__name__)

_RETRY_S: Final = 0.5
_LIST_ITEMS: Final = 50


class Addressed(NamedTuple):
    """A frame of the holder, and which part of the project it is for."""

    address: Address
    frame: ProjectFrame

    @property
    def request_id(self) -> str:
        """Of the frame."""
        assert not isinstance(self.frame, Ack | Ping)
        return self.frame.request_id


class FromTool(NamedTuple):
    """A batch of the model's tool; ``answer`` gets its result or its error, unless the tool was cancelled."""

    batch: RawBatch
    provenance: CreatedBy
    answer: asyncio.Future[CanvasBatchResult]


class LookAgain(NamedTuple):
    """Posted by a timer: the outcome of a write of the project's may show by now."""


class ProjectActor(Actor):
    """One project."""

    kind: ClassVar[Kind] = Kind.PROJECT

    def __init__(
        self, resource_id: str, owner: str, services: Services, claimed: ProjectClaimed | None
    ) -> None:
        super().__init__(resource_id, owner, services)
        self._ledger = ProjectLedger(services.store, resource_id, owner, claimed)
        self._canvas = ProjectCanvas(services.store, services.settings, self._ledger, self._emit_canvas)
        self._conversations = ProjectConversations(self, self)
        self._timer: asyncio.TimerHandle | None = None
        self._history = claimed is not None and bool(claimed.row.canvas_version or claimed.conversation_ids)

    @classmethod
    async def load(cls, resource_id: str, owner: str, services: Services, *, create: bool) -> ProjectActor:
        """Take a project over, and the conversations that a snapshot shows.

        Raises:
            Fault: ``not_found``, ``storage_unavailable``.
        """
        claimed = await services.store.projects.claim(resource_id, owner)
        if claimed is None and not create:
            raise Fault(ErrorCode.NOT_FOUND)
        actor = cls(resource_id, owner, services, claimed)
        for conversation_id in () if claimed is None else claimed.conversation_ids:
            await actor._conversations.use(conversation_id)
        return actor

    async def handle(self, message: Any) -> None:
        """Handle a frame of the holder, a command of REST, a tool's batch, or what a conversation posted."""
        match message:
            case FromSocket(attachment=attachment, frame=Addressed() as addressed):
                answer = await self._answer(addressed)
                if answer is not None and not attachment.detached:
                    attachment.peer.tell(_addressed(answer, addressed.address))
            case FromConversation(conversation=conversation, message=own):
                if conversation in self._conversations:
                    await conversation.handle_own(own)
            case FromTool():
                await self._apply(message)
            case Call():
                await self._call(message)
            case LookAgain():
                self._timer = None
                await self._refresh()
            case Doubt(run_id=run_id):
                await self._doubt(run_id)
            case _:
                raise TypeError(f"no handling for {type(message).__name__}")

    async def _answer(self, addressed: Addressed) -> ServerFrame | None:
        """Carry out a frame; what is to be told to this connection alone."""
        address, frame = addressed
        try:
            if address.domain is Domain.CANVAS:
                return await self._in_canvas(frame)  # type: ignore[arg-type]
            if isinstance(frame, ConversationList):
                return await self._list(frame)
            assert address.conversation_id is not None
            return await self._in_conversation(address.conversation_id, frame)  # type: ignore[arg-type]
        except Fault as fault:
            return error_frame(fault, request_id=addressed.request_id)

    async def _in_canvas(self, frame: CanvasFrame) -> ServerFrame | None:
        if not isinstance(frame, CanvasGet):
            self._conversations.refuse_waiting(frame.request_id, None)
        try:
            return await self._canvas.handle_frame(frame)
        except (Fault, Fenced):
            raise
        except Exception as error:
            raise self._bug() from error
        finally:
            self._look_again_if_stale()

    async def _in_conversation(self, conversation_id: str, frame: ConversationFrame) -> ServerFrame | None:
        assert isinstance(frame, AppendMessage | RequestCompletion | StopCompletion | ConfirmTool)
        conversation = await self._conversations.use(conversation_id)
        self._conversations.refuse_waiting(frame.request_id, conversation)
        if self._ledger.seed is not None and isinstance(frame, AppendMessage | RequestCompletion):
            try:
                await self._ledger.open()
            finally:
                self._look_again_if_stale()
        return await conversation.handle_frame(frame)

    async def _list(self, frame: ConversationList) -> ConversationListed:
        found, cursor = await self.services.store.projects.conversations(
            self.resource_id, self.owner, limit=_LIST_ITEMS, cursor=frame.cursor
        )
        return ConversationListed(request_id=frame.request_id, conversations=found, next_cursor=cursor)

    async def _apply(self, wanted: FromTool) -> None:
        answer = wanted.answer
        if answer.done():
            return
        try:
            result = await self._canvas.apply(wanted.batch, wanted.provenance)
        except Fault as fault:
            _settle(answer, fault)
        except Fenced:
            raise
        except Exception:  # noqa: BLE001 (told to the tool; the conversations go on)
            _settle(answer, self._bug())
        else:
            if not answer.done():
                answer.set_result(result)
        finally:
            self._look_again_if_stale()

    def _bug(self) -> Fault:
        """The canvas in memory is not to be trusted after what should not have happened."""
        correlation_id = new_ulid()
        log.exception("canvas failed", project_id=self.resource_id, correlation_id=correlation_id)
        self._ledger.forget_canvas()
        return Fault(ErrorCode.INTERNAL, details={"correlation_id": correlation_id})

    async def _call(self, call: Call) -> None:
        """Carry a command of REST out and answer it.

        Raises:
            Ending: The project was deleted.
        """
        deleting = isinstance(call.command, DeleteProject)
        try:
            result = await self._command(call.command)
        except Fault as fault:
            _settle(call.answer, fault)
            if deleting and fault.code is ErrorCode.NOT_FOUND:
                raise Ending(CloseCode.NOT_FOUND, "deleted") from None
            if deleting and isinstance(fault, StorageUnavailable) and fault.outcome_unknown:
                self._ledger.doubt()
        else:
            if not call.answer.done():
                call.answer.set_result(result)
            if deleting:
                raise Ending(CloseCode.NOT_FOUND, "deleted")
        finally:
            self._look_again_if_stale()

    async def _command(self, command: Any) -> Any:
        match command:
            case ForConversation():
                return await self._command_for(command)
            case CreateProject(seed=seed):
                return await self._ledger.create(seed)
            case CreateSession(seed=session_seed):
                await self._ledger.open()
                return await self._conversations.create(session_seed)
            case DeleteProject():
                return await self.services.store.projects.delete(self.resource_id, self.owner)
            case _:
                raise TypeError(f"no handling for {type(command).__name__}")

    async def _command_for(self, wanted: ForConversation) -> Any:
        """A command for a conversation; what the store does to it is its own trouble (CV4)."""
        conversation = await self._conversations.use(wanted.session_id)
        try:
            if isinstance(wanted.command, DeleteSession):
                return await self._conversations.delete(conversation)
            if isinstance(wanted.command, AppendFromRest | DecideFromRest) and wanted.command.request_id:
                self._conversations.refuse_waiting(wanted.command.request_id, conversation)
            return await carry_out(conversation, wanted.command)
        except (StorageUnavailable, Refused) as error:
            raise conversation.trouble(error) from error

    async def _doubt(self, run_id: str) -> None:
        """A checkpoint met another fence: find out whether the conversation is still this actor's."""
        conversation = self._conversations.running(run_id)
        if conversation is None:
            return
        await conversation.doubt(run_id)

    async def _refresh(self) -> None:
        try:
            await self._ledger.refresh()
        except StorageUnavailable:
            self._look_again_if_stale()

    def _look_again_if_stale(self) -> None:
        if self._ledger.stale and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_RETRY_S, self.mailbox.put, LookAgain())

    def _emit_canvas(self, frame: ServerFrame) -> None:
        frame.domain = Domain.CANVAS.value
        self.emit(frame)

    # For the model's tools (server.tools.base.CanvasSeam).

    async def apply(self, batch: RawBatch, provenance: CreatedBy) -> CanvasBatchResult:
        """Change the canvas for a tool call; done once, and not at all if it is cancelled before its turn.

        Raises:
            Fault: A limit, ``storage_unavailable``, ``internal``.
        """
        answer: asyncio.Future[CanvasBatchResult] = asyncio.get_running_loop().create_future()
        self.mailbox.put(FromTool(batch, provenance, answer))
        return await answer

    # What the base class asks.

    def refuse(self, attachment: Attachment, frame: Any, fault: Fault) -> None:
        """Tell a frame's sender that it was refused, at its address."""
        if not isinstance(frame, Addressed):
            super().refuse(attachment, frame, fault)
            return
        answer = error_frame(fault, request_id=frame.request_id)
        attachment.peer.tell(_addressed(answer, frame.address))

    def drain(self) -> None:
        """Refuse new completions from now on."""
        self._conversations.drain()

    async def finish(self) -> None:
        """End what runs as interrupted."""
        await self._conversations.finish()

    def snapshot(self) -> Snapshot:
        """The project, from memory; the canvas itself is read with ``canvas_get``."""
        ledger = self._ledger
        project = ProjectView(
            project_id=ledger.project_id,
            metadata=ledger.metadata,
            created_at=ledger.created_at,
            updated_at=ledger.updated_at,
        )
        return Snapshot.of_project(self.outbox.latest, project, ledger.version, self._conversations.views())

    def owns_run(self, run_id: str) -> bool:
        """Whether this run is running in one of the conversations."""
        return self._conversations.running(run_id) is not None

    @property
    def busy(self) -> bool:
        """Whether something runs, ends, waits or is in doubt."""
        return self._ledger.stale or self._conversations.busy

    @property
    def untold(self) -> bool:
        """Whether there was history when the actor was loaded."""
        return self._history

    @property
    def saved(self) -> bool:
        """Whether the project has a row."""
        return self._ledger.seed is None

    def release(self) -> None:
        """Let go of completions and timers."""
        if self._timer is not None:
            self._timer.cancel()
        self._conversations.release()


def _addressed(frame: ServerFrame, address: Address) -> ServerFrame:
    """Put an answer at the address of its question."""
    frame.domain = address.domain.value
    if address.conversation_id is not None:
        frame.conversation_id = address.conversation_id
    return frame


def _settle(answer: asyncio.Future[Any], fault: Fault) -> None:
    if not answer.done():
        answer.set_exception(fault)
