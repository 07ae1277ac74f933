"""One model turn, decided: which frames follow from what the model said. Pure: no await, no clock, no input
or output.

A turn knows neither the actor nor the provider; :mod:`server.engine.completion` feeds it and sends what it
returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from msgspec import Struct

from protocol.ids import new_ulid
from protocol.server_frames import (
    LlmTextChunk,
    LlmTextSentence,
    LlmThinkingChunk,
    ServerFrame,
    ToolCallChunk,
    ToolCallFunction,
)
from server.engine.sentences import SentenceCutter
from server.llm.base import ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta, TurnFinished, UsageReport

if TYPE_CHECKING:
    from collections.abc import Container

CHUNK_CHARACTERS: Final = 16384
"""A longer delta is told in several chunks, so that one token of megabytes is no frame of megabytes."""

ID_CHARACTERS: Final = 256
"""The longest id of a call that a client's frame can name."""

_MOST_TOKENS: Final = 2**31 - 1
"""What a row can hold; an upstream that counts more is not to be believed anyhow."""


class OpenCall(Struct):
    """A tool call that the model is still writing."""

    tool_call_id: str
    name: str
    fragments: list[str]

    @property
    def arguments(self) -> str:
        """What was written so far; the JSON text of an object once the turn is over."""
        return "".join(self.fragments)


class Turn:
    """Accumulates one model turn and says which frames tell it (ST1, ST2, TL1).

    - Attributes change only inside :meth:`feed` and :meth:`finish_text`.
    - Without ``reasoning`` what the model thinks is neither told nor kept.
    - :attr:`text` is at any moment exactly what the chunks returned so far have told.
    """

    __slots__ = (
        "_cutter",
        "_reasoning",
        "_request_id",
        "_run_id",
        "_taken_ids",
        "_text",
        "_thinking",
        "calls",
        "characters",
        "finish",
        "input_tokens",
        "message_id",
        "output_tokens",
    )

    def __init__(
        self,
        request_id: str,
        run_id: str,
        message_id: str,
        *,
        reasoning: bool = True,
        taken_ids: Container[str] = (),
    ) -> None:
        self.message_id: Final = message_id
        self.calls: dict[int, OpenCall] = {}
        """Tool calls by the model's index, in the order in which they began."""
        self.finish: str | None = None
        """Why the model ended its turn, once it did."""
        self.input_tokens = 0
        self.output_tokens = 0
        self.characters = 0
        """Characters of text, thinking and arguments so far, for the bound on an answer."""
        self._reasoning = reasoning
        self._request_id = request_id
        self._run_id = run_id
        self._taken_ids = taken_ids
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._cutter = SentenceCutter()

    @property
    def text(self) -> str:
        """The text told so far."""
        if len(self._text) > 1:
            self._text = ["".join(self._text)]
        return self._text[0] if self._text else ""

    @property
    def thinking(self) -> str:
        """The thinking told so far."""
        if len(self._thinking) > 1:
            self._thinking = ["".join(self._thinking)]
        return self._thinking[0] if self._thinking else ""

    @property
    def next_sentence_index(self) -> int:
        """The index that the next sentence will have."""
        return self._cutter.next_index

    @property
    def sentence_begun(self) -> str:
        """The text that no sentence has told yet."""
        return self._cutter.pending

    def feed(self, event: ModelEvent) -> list[ServerFrame]:
        """Take one event and return the frames that tell it, in order; total."""
        match event:
            case TextDelta(text=text):
                if len(text) <= CHUNK_CHARACTERS:
                    return self._tell_text(text)
                return [frame for piece in _pieces(text) for frame in self._tell_text(piece)]
            case ThinkingDelta(text=text) if not self._reasoning:
                self.characters += len(text)
                return []
            case ThinkingDelta(text=text):
                self._thinking.append(text)
                self.characters += len(text)
                return [
                    LlmThinkingChunk(
                        request_id=self._request_id,
                        run_id=self._run_id,
                        message_id=self.message_id,
                        text=piece,
                    )
                    for piece in _pieces(text)
                ]
            case ToolCallDelta():
                return self._tell_call(event)
            case UsageReport():
                self.input_tokens = min(event.input_tokens, _MOST_TOKENS)
                self.output_tokens = min(event.output_tokens, _MOST_TOKENS)
                return []
            case TurnFinished(reason=reason):
                self.finish = reason
                return []
            case _:
                assert_never(event)

    def finish_text(self) -> list[ServerFrame]:
        """Tell the sentence begun, if there is one: the text ends here, however the turn ends (ST2, ST3)."""
        index = self._cutter.next_index
        tail = self._cutter.flush()
        return [] if tail is None else [self._sentence(index, tail)]

    def finish_calls(self) -> list[ServerFrame]:
        """Tell ``{}`` for calls whose arguments the model left out, so that each one's fragments make JSON
        (TL1)."""
        return [
            frame
            for index, call in self.calls.items()
            if not call.arguments.strip()
            for frame in self._tell_call(ToolCallDelta(index, None, None, "{}"))
        ]

    def _tell_text(self, text: str) -> list[ServerFrame]:
        self._text.append(text)
        self.characters += len(text)
        frames: list[ServerFrame] = [
            LlmTextChunk(
                request_id=self._request_id, run_id=self._run_id, message_id=self.message_id, text=text
            )
        ]
        index = self._cutter.next_index
        sentences = self._cutter.feed(text)
        if sentences:
            frames += [self._sentence(index + offset, sentence) for offset, sentence in enumerate(sentences)]
        return frames

    def _sentence(self, index: int, text: str) -> LlmTextSentence:
        return LlmTextSentence(
            request_id=self._request_id,
            run_id=self._run_id,
            message_id=self.message_id,
            index=index,
            text=text,
        )

    def _tell_call(self, delta: ToolCallDelta) -> list[ServerFrame]:
        call = self.calls.get(delta.index)
        first = call is None
        if call is None:
            call = OpenCall(self._unused(delta.id or f"call_{new_ulid()}"), delta.name or "", [])
            self.calls[delta.index] = call
        call.fragments.append(delta.arguments)
        self.characters += len(delta.arguments)
        return [
            ToolCallChunk(
                request_id=self._request_id,
                run_id=self._run_id,
                message_id=self.message_id,
                index=delta.index,
                id=call.tool_call_id if first else None,
                function=ToolCallFunction(name=call.name if first else None, arguments=delta.arguments),
            )
        ]

    def _unused(self, tool_call_id: str) -> str:
        """The model's own id; another one when the model repeats it, or when no client could name it."""
        if (
            len(tool_call_id) > ID_CHARACTERS
            or tool_call_id in self._taken_ids
            or any(call.tool_call_id == tool_call_id for call in self.calls.values())
        ):
            return f"call_{new_ulid()}"
        return tool_call_id


def _pieces(text: str) -> list[str]:
    if len(text) <= CHUNK_CHARACTERS:
        return [text]
    return [text[start : start + CHUNK_CHARACTERS] for start in range(0, len(text), CHUNK_CHARACTERS)]
