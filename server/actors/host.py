"""What a conversation needs of the actor that it lives in: its own, or a project's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from protocol.server_frames import ServerFrame
    from server.actors.base import Services
    from server.tools.base import CanvasSeam


class Host(NamedTuple):
    """The actor's services and its verbs."""

    services: Services
    emit: Callable[[ServerFrame], None]
    """Appends a frame to the outbox, in the same turn."""
    post: Callable[[Any], None]
    """Puts a message of one's own into the actor's mailbox; it comes back to ``handle_own``."""
    spawn: Callable[[Callable[[], Coroutine[Any, Any, None]], str], None]
    """Starts a child task of the actor, under a name."""
    canvas: CanvasSeam | None = None
    """The project's canvas, for the model's tools."""
