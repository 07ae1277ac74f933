"""The conversations of a project that are in memory: taken when first used, let go when nobody needs them.

Each is a :class:`~server.actors.conversation.Conversation` with a ledger and a fence of its own; what it says
goes out under its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from protocol.client_frames import Domain
from protocol.codes import ErrorCode
from protocol.errors import Fault
from server.actors.conversation import Conversation
from server.actors.host import Host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.server_frames import ConversationView, ServerFrame
    from server.actors.base import Actor
    from server.tools.base import CanvasSeam
    from storage.records import Claimed, SessionSeed

_SHOWN: Final = 10
"""How many of those used last a snapshot has (protocol.md, section 9)."""

_KEPT: Final = 32
"""How many idle ones stay in memory."""

_MOST: Final = 1000
"""How many may be in memory at all, when all of them are busy."""


class FromConversation(NamedTuple):
    """What a conversation posted to itself; one that was let go meanwhile is not in the project any more."""

    conversation: Conversation
    message: Any


class ProjectConversations:
    """The live conversations of one project, the one used last at the end.

    Called in the project's actor's task alone.
    """

    def __init__(self, actor: Actor, canvas: CanvasSeam) -> None:
        self._actor = actor
        self._canvas = canvas
        self._live: dict[str, Conversation] = {}
        self._draining = False

    def __iter__(self) -> Iterator[Conversation]:
        return iter(list(self._live.values()))

    def __contains__(self, conversation: Conversation) -> bool:
        return self._live.get(conversation.ledger.session_id) is conversation

    @property
    def busy(self) -> bool:
        """Whether something runs, ends, waits for its turn or is in doubt in one of them."""
        return any(conversation.busy for conversation in self._live.values())

    async def use(self, conversation_id: str) -> Conversation:
        """The conversation of this id, taken over if it is not in memory; a new, empty one if there is none.

        Raises:
            Fault: ``not_found`` when it is another's, deleted, or belongs to itself or to another project;
                ``storage_unavailable``, ``overloaded``.
        """
        conversation = self._live.pop(conversation_id, None)
        if conversation is None:
            self._make_room()
            conversation = self._make(conversation_id, await self._claim(conversation_id))
        self._live[conversation_id] = conversation
        return conversation

    async def create(self, seed: SessionSeed) -> None:
        """Make the row of a conversation, whether a client has used its id already or not.

        Raises:
            Fault: ``session_exists``, ``storage_unavailable``.
        """
        conversation = self._live.get(seed.session_id)
        if conversation is None:
            await self._actor.services.store.sessions.create(seed)
        else:
            await conversation.create(seed)

    async def delete(self, conversation: Conversation) -> None:
        """Delete a conversation for good; what runs in it ends as interrupted first.

        Raises:
            Fault: ``not_found``, ``storage_unavailable``.
        """
        session_id = conversation.ledger.session_id
        await conversation.finish()
        await self._actor.services.store.sessions.delete(session_id, self._actor.owner)
        conversation.release()
        self._live.pop(session_id, None)

    def views(self) -> list[ConversationView]:
        """What a snapshot shows: all with something running, queued or waiting, and the ten used last."""
        saved = [conversation for conversation in self._live.values() if conversation.ledger.seed is None]
        views = [conversation.view() for conversation in saved]
        older = max(0, len(views) - _SHOWN)
        return [
            view
            for place, view in enumerate(views)
            if place >= older or view.running is not None or view.queued or view.waiting
        ][::-1]

    def refuse_waiting(self, request_id: str, asked: Conversation | None) -> None:
        """Refuse a request_id under which a completion waits, which no row tells the store of (ST4).

        Args:
            asked: The conversation that the request is for, which knows its own; ``None`` for the canvas.

        Raises:
            Fault: ``request_id_conflict``: requests of a project are one set.
        """
        for conversation in self._live.values():
            waiting = () if conversation is asked else conversation.completions.queued
            if any(wanted.request_id == request_id for wanted in waiting):
                raise Fault(ErrorCode.REQUEST_ID_CONFLICT, "this request_id was used for another request")

    def running(self, run_id: str) -> Conversation | None:
        """The conversation in which a run is running."""
        return next((one for one in self._live.values() if one.owns_run(run_id)), None)

    def drain(self) -> None:
        """Refuse new completions from now on (CN10)."""
        self._draining = True
        for conversation in self._live.values():
            conversation.drain()

    async def finish(self) -> None:
        """End what runs as interrupted."""
        for conversation in self:
            await conversation.finish()

    def release(self) -> None:
        """Let go of all completions and timers."""
        for conversation in self._live.values():
            conversation.release()

    async def _claim(self, conversation_id: str) -> Claimed | None:
        actor = self._actor
        services = actor.services
        try:
            return await services.store.sessions.claim(
                conversation_id, actor.owner, services.settings.context_messages, project=actor.resource_id
            )
        except Fault as fault:
            if fault.code is ErrorCode.USE_PROJECT_SOCKET:
                raise Fault(ErrorCode.NOT_FOUND, "this conversation is not one of this project") from None
            raise

    def _make(self, conversation_id: str, claimed: Claimed | None) -> Conversation:
        actor = self._actor

        def emit(frame: ServerFrame) -> None:
            frame.domain = Domain.CONVERSATION.value
            frame.conversation_id = conversation_id
            actor.emit(frame)

        def post(message: Any) -> None:
            actor.mailbox.put(FromConversation(conversation, message))

        host = Host(actor.services, emit, post, actor.spawn, self._canvas)
        conversation = Conversation(
            host, actor.resource_id, conversation_id, actor.owner, claimed, project_id=actor.resource_id
        )
        if self._draining:
            conversation.drain()
        return conversation

    def _make_room(self) -> None:
        """Let go of idle ones, the oldest first, that no snapshot would show."""
        needless = len(self._live) - _KEPT
        if needless < 0:
            return
        for conversation in list(self._live.values())[: -_SHOWN or None]:
            if needless < 0:
                break
            if not conversation.busy and not conversation.view().waiting:
                conversation.release()
                del self._live[conversation.ledger.session_id]
                needless -= 1
        if len(self._live) >= _MOST:
            raise Fault(
                ErrorCode.OVERLOADED, "too many conversations of this project are busy", retry_after_ms=1000
            )
