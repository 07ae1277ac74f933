"""What REST asks of a conversation's actor. Results come back through
:meth:`server.actors.registry.Registry.call`."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from protocol.session import MessageRole, SessionMessage
from protocol.tool_call import ConfirmationState, Decision
from storage.records import ProjectSeed, SessionSeed


class AppendFromRest(Struct, frozen=True, kw_only=True):
    """Append a message; the holder sees it too. Results in :class:`AppendResult`.

    A repeated ``request_id`` with the same content is answered by the message it made (ST4); without one,
    the append is
    not repeat-safe.
    """

    role: MessageRole
    content: str
    tool_call_id: str | None = None
    metadata: dict[str, Any] = {}
    request_id: str | None = None


class AppendResult(Struct, frozen=True):
    """The message as stored, and whether it had been appended by an earlier request."""

    message: SessionMessage
    repeated: bool


class UpdateSession(Struct, frozen=True, kw_only=True):
    """Change metadata, agent or linked plans; what is unset stays. Results in the session's new
    ``SessionRow``."""

    metadata: dict[str, Any] | UnsetType = UNSET
    actor_name: str | UnsetType | None = UNSET
    linked_plan_ids: tuple[str, ...] | UnsetType = UNSET


class CreateProject(Struct, frozen=True):
    """Make the row of a project whose id a socket minted and nothing has written yet. Results in ``None``."""

    seed: ProjectSeed


class DeleteProject(Struct, frozen=True):
    """Delete a project for good, with its canvas and its conversations; what runs ends with it, the holder is
    closed with 4404. Results in ``None``."""


class ForConversation(Struct, frozen=True):
    """A command for one of a project's conversations; results in what it results in."""

    session_id: str
    command: Any


class DeleteSession(Struct, frozen=True):
    """Delete the session for good; what runs ends with it, the holder is closed with 4404. Results in
    ``None``."""


class DecideFromRest(Struct, frozen=True, kw_only=True):
    """Decide a tool call that waits (TL5). Results in :class:`DecideResult`."""

    tool_call_id: str
    decision: Decision
    arguments: str | None = None
    reason: str | None = None
    request_id: str | None = None


class DecideResult(Struct, frozen=True):
    """The decision as recorded, and whether it had been made before."""

    decision: Decision
    confirmation_state: ConfirmationState
    arguments_sha256: str
    repeated: bool


class CreateSession(Struct, frozen=True):
    """Make the row of a session whose id a socket minted and nothing has written yet; a project's actor makes
    that of any of its conversations. Results in ``None``."""

    seed: SessionSeed
