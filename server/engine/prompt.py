"""The prompt: a session's messages as the model must see them. Pure.

A history may be interrupted at any point: a call whose result never came, a user's message between a call
and its
result (ST8). Models refuse such histories, so they are put in order here, and only here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from protocol.session import MessageRole
from server.llm.base import ChatMessage, ToolCallRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from protocol.session import SessionMessage

_UNNAMEABLE: Final = re.compile(r"[^a-zA-Z0-9_-]")

NO_RESULT: Final = '{"error": "cancelled: this call was not carried out"}'
"""What the model is told of a call that has no result."""


def build_prompt(
    messages: Sequence[SessionMessage], system_prompt: str | None = None
) -> tuple[ChatMessage, ...]:
    """Put a window of a session's messages into the order that models accept.

    - Each call's result directly follows the message that made it, in the order of the calls; a call without
      one
      gets :data:`NO_RESULT`.
    - A result whose call is not in the window is left out, as is an assistant's message that says and calls
      nothing.
    """
    results = {message.tool_call_id: message for message in messages if message.role is MessageRole.TOOL}
    prompt: list[ChatMessage] = [] if system_prompt is None else [ChatMessage("system", system_prompt)]
    for message in messages:
        if message.role is MessageRole.TOOL:
            continue
        if message.role is MessageRole.ASSISTANT:
            prompt.extend(_assistant(message, results))
        else:
            prompt.append(ChatMessage(message.role.value, message.content))
    return tuple(prompt)


def _name(name: str) -> str:
    """A name that endpoints take; models make up others, which is no reason to refuse their history."""
    return _UNNAMEABLE.sub("_", name)[:64] or "_"


def _assistant(message: SessionMessage, results: dict[str | None, SessionMessage]) -> Iterable[ChatMessage]:
    calls = tuple(
        ToolCallRequest(call.tool_call_id, _name(call.name), call.arguments) for call in message.tool_calls
    )
    if not message.content and not calls:
        return
    yield ChatMessage("assistant", message.content, None, calls)
    for call in calls:
        result = results.get(call.id)
        yield ChatMessage("tool", NO_RESULT if result is None else result.content, call.id)
