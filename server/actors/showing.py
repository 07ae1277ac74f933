"""Messages as a snapshot shows them. Pure."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from protocol.server_frames import MessageView
from server.actors.calls import view_of

if TYPE_CHECKING:
    from collections import deque

    from protocol.session import SessionMessage

SNAPSHOT_CHARACTERS: Final = 1_048_576
"""Older messages are left out of a snapshot when those after them have this much text: it is one frame."""


def last_messages(messages: deque[SessionMessage], count: int) -> list[MessageView]:
    """The last messages, oldest first: at most ``count``, fewer when they are long, but the newest in any
    case."""
    shown: list[MessageView] = []
    characters = 0
    for message in islice(reversed(messages), count):
        characters += len(message.content)
        if len(shown) > 1 and characters > SNAPSHOT_CHARACTERS:
            break
        shown.append(message_view(message))
    shown.reverse()
    return shown


def message_view(message: SessionMessage) -> MessageView:
    """One message as clients see it."""
    return MessageView(
        message_id=message.message_id,
        sequence=message.sequence,
        role=message.role,
        content=message.content,
        tool_call_id=message.tool_call_id,
        tool_calls=[view_of(call, "", message.message_id) for call in message.tool_calls],
        metadata=message.metadata,
        created_at=message.created_at,
    )
