"""What the engine and a model provider say to each other.

Knows nothing of conversations, frames or storage. Time-outs for tokens and the total are the
engine's; a provider has only its connect time-out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from protocol.errors import Fault


class ModelFault(Fault):
    """A model call that failed; its code is one of ``llm_*`` or ``unknown_model``.

    Message and details are safe to show: they hold no secret and no text of the conversation.
    """


class ToolCallRequest(Struct, frozen=True):
    """A call the assistant made, as the history repeats it; ``arguments`` is the model's JSON text."""

    id: str
    name: str
    arguments: str


class ChatMessage(Struct, frozen=True):
    """One message of the prompt; ``role`` is ``system``, ``user``, ``assistant`` or ``tool``."""

    role: str
    content: str
    tool_call_id: str | None = None
    tool_calls: tuple[ToolCallRequest, ...] = ()


class ToolDefinition(Struct, frozen=True):
    """A tool the model may call; ``parameters`` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


class ModelRequest(Struct, frozen=True):
    """One model call. ``messages`` are valid for the model: each call's result follows it directly."""

    model: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolDefinition, ...] = ()
    reasoning: bool = False


class TextDelta(Struct, frozen=True, gc=False):
    """More of the answer; never empty."""

    text: str


class ThinkingDelta(Struct, frozen=True, gc=False):
    """More of the model's reasoning; never empty."""

    text: str


class ToolCallDelta(Struct, frozen=True, gc=False):
    """More of the tool call ``index`` (TL1).

    The first delta of an index has ``id`` and ``name``, every later one has neither. Deltas of
    several calls may interleave. Ids are unique within one stream, not across a conversation.
    """

    index: int
    id: str | None
    name: str | None
    arguments: str


class UsageReport(Struct, frozen=True, gc=False):
    """Tokens of this model call, as the provider counted them; may come before or after the finish."""

    input_tokens: int
    output_tokens: int


class TurnFinished(Struct, frozen=True, gc=False):
    """The model ended its turn; exactly one a stream. ``reason``: ``stop``, ``length`` or ``tool_calls``."""

    reason: str


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta | UsageReport | TurnFinished


class Model(Protocol):
    """One provider of models."""

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[ModelEvent]]]:
        """Call the model.

        Each item holds all events of one network read, at least one. Leaving the context, however
        it happens, closes the upstream connection. Retries happen only before the first event.
        Text is clean (ER2): no lone surrogates, no NUL; pairs split over deltas are joined.

        Raises:
            ModelFault: From entering and from iterating. A stream that ends without
                :class:`TurnFinished` is ``llm_bad_response``, a reset one ``llm_unavailable``.
        """
        ...

    async def models(self) -> tuple[str, ...]:
        """Name the models on offer, best first; raises :class:`ModelFault`."""
        ...

    async def aclose(self) -> None:
        """Let go of connections and threads; no stream may be open."""
        ...
