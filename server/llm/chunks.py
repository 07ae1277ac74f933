"""From the data of OpenAI-compatible stream chunks to model events: decoding, and making upstreams alike.

Pure. Upstreams differ in how they send tool calls (TL1), reasoning, errors and broken text (ER2); after
this they do not.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from msgspec import Struct

from protocol.codec import clean_text
from protocol.codes import ErrorCode
from protocol.ids import new_ulid
from server.llm.base import (
    ModelEvent,
    ModelFault,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    TurnFinished,
    UsageReport,
)
from server.llm.failures import bad_response, content_filtered, unavailable, upstream_fault

_FINISHES: Final = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}
_FAILURES: Final = frozenset({"error", "abort", "aborted", "cancelled"})
_MAX_CALLS: Final = 128
"""Tool calls of one turn."""


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCall(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Struct, gc=False):
    index: int | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Chunk).decode


class _CleanStream:
    """Cleans the deltas of one text; holds back half of a surrogate pair until the other half comes."""

    __slots__ = ("_high",)

    def __init__(self) -> None:
        self._high = ""

    def feed(self, text: str) -> str:
        if self._high:
            text, self._high = self._high + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        return clean_text(text)

    def finish(self) -> str:
        half, self._high = self._high, ""
        return "\ufffd" if half else ""


class _Call:
    """A tool call that is being streamed; nothing of it is told before its name is known."""

    __slots__ = ("arguments", "clean", "id", "index", "named", "upstream_id")

    def __init__(self, index: int) -> None:
        self.index = index
        self.upstream_id = ""
        self.id = ""
        self.named = False
        self.arguments = ""  # held back until it is named
        self.clean = _CleanStream()


class ChunkReader:
    """Reads the chunks of one answer.

    - :attr:`finished`: the upstream has said why the answer ended; :meth:`finish` then gives the event.
    - :attr:`complete`: nothing more is to come (``[DONE]``, or finish and usage are there).
    """

    def __init__(self) -> None:
        self.complete = False
        self._reason: str | None = None
        self._usage: UsageReport | None = None
        self._text = _CleanStream()
        self._thinking = _CleanStream()
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._ids: set[str] = set()

    @property
    def finished(self) -> bool:
        """Whether the upstream has said why the answer ended."""
        return self._reason is not None

    def feed(self, data: bytes, events: list[ModelEvent]) -> None:
        """Take the data of one server-sent event and append what it says.

        Raises:
            ModelFault: ``llm_bad_response``, or what an error object or finish reason means.
        """
        if data == b"[DONE]":
            self.complete = True
            return
        if not data.strip():
            return
        chunk = _decode_chunk(data)
        if chunk.error is not None:
            raise stream_fault(chunk.error)
        for choice in chunk.choices or ():
            if choice.index in {0, None}:
                self._take_choice(choice, events)
        if chunk.usage is not None:
            self._usage = UsageReport(
                max(chunk.usage.prompt_tokens or 0, 0), max(chunk.usage.completion_tokens or 0, 0)
            )
            if self._reason is not None and not chunk.choices:
                self.complete = True

    def finish(self) -> list[ModelEvent]:
        """The stream is over: what was held back, the usage, and the finish.

        Raises:
            ModelFault: ``llm_bad_response`` if the upstream never said why the answer ended.
        """
        if self._reason is None:
            raise bad_response("the answer ended without a finish")
        if any(not call.named for call in self._calls):
            raise bad_response("the model called a tool without naming it")
        events: list[ModelEvent] = []
        if tail := self._thinking.finish():
            events.append(ThinkingDelta(tail))
        if tail := self._text.finish():
            events.append(TextDelta(tail))
        events += [
            ToolCallDelta(call.index, None, None, tail)
            for call in self._calls
            if (tail := call.clean.finish())
        ]
        if self._usage is not None:
            events.append(self._usage)
        reason = self._reason
        if self._calls and reason == "stop":
            reason = "tool_calls"
        elif not self._calls and reason == "tool_calls":
            reason = "stop"
        events.append(TurnFinished(reason))
        return events

    def _take_choice(self, choice: _Choice, events: list[ModelEvent]) -> None:
        delta = choice.delta
        if delta is not None:
            if (thinking := delta.reasoning_content or delta.reasoning) and (
                thinking := self._thinking.feed(thinking)
            ):
                events.append(ThinkingDelta(thinking))
            if (text := delta.content or delta.refusal) and (text := self._text.feed(text)):
                events.append(TextDelta(text))
            for call in delta.tool_calls or ():
                self._take_call(call, events)
        reason = choice.finish_reason
        if reason:
            if reason == "content_filter":
                raise content_filtered()
            if reason in _FAILURES:
                raise unavailable("the model's endpoint gave up the answer")
            self._reason = self._reason or _FINISHES.get(reason, "stop")

    def _take_call(self, part: _ToolCall, events: list[ModelEvent]) -> None:
        """Normalise one fragment (TL1): the first of a call has id and name, the later ones neither."""
        name = part.function.name if part.function is not None else None
        call = self._find_call(part, name)
        if part.id and not call.id:
            call.upstream_id, call.id = part.id, self._unique_id(part.id)
        arguments = part.function.arguments if part.function is not None else None
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        arguments = call.clean.feed(arguments or "")
        if call.named:
            if arguments:
                events.append(ToolCallDelta(call.index, None, None, arguments))
            return
        call.arguments += arguments
        if name:
            call.named = True
            call.id = call.id or self._unique_id("")
            events.append(ToolCallDelta(call.index, call.id, clean_text(name), call.arguments))

    def _find_call(self, part: _ToolCall, name: str | None) -> _Call:
        """The call that a fragment belongs to; a new one if it begins one.

        Upstreams leave out the index, or give the same one to every call; then the id tells.
        """
        known = self._calls[-1] if part.index is None and self._calls else None
        if part.index is not None:
            known = self._by_index.get(part.index)
        if part.id and known is not None and known.upstream_id and part.id != known.upstream_id:
            known = next((call for call in self._calls if call.upstream_id == part.id), None)
        elif part.index is None and not part.id and name and known is not None and known.named:
            known = None
        if known is None:
            if len(self._calls) == _MAX_CALLS:
                raise bad_response(f"the model called more than {_MAX_CALLS} tools at once")
            known = _Call(len(self._calls))
            self._calls.append(known)
        if part.index is not None:
            self._by_index[part.index] = known
        return known

    def _unique_id(self, wanted: str) -> str:
        made = clean_text(wanted)
        if not made or made in self._ids:
            made = f"call_{new_ulid()}"
        self._ids.add(made)
        return made


def _decode_chunk(data: bytes) -> _Chunk:
    """Decode, first strictly and fast; text with lone surrogates is no strict JSON but does come."""
    try:
        return _decode(data)
    except msgspec.ValidationError:
        raise bad_response("a chunk of the answer is not as the format has it") from None
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return msgspec.convert(json.loads(data.decode("utf-8", "surrogatepass")), _Chunk)
    except (ValueError, RecursionError):
        raise bad_response("a chunk of the answer is not JSON as the format has it") from None


def stream_fault(error: Any) -> ModelFault:
    """Map an error object that came inside of the stream."""
    if isinstance(error, str):
        return upstream_fault(None, message=error)
    if not isinstance(error, dict):
        return ModelFault(ErrorCode.LLM_UNAVAILABLE, "the model's endpoint failed")
    status = next(
        (error[key] for key in ("status", "status_code", "code") if isinstance(error.get(key), int)), None
    )
    return upstream_fault(
        status if status is not None and 400 <= status <= 599 else None,
        code=str(error.get("code") or ""),
        kind=str(error.get("type") or ""),
        message=str(error.get("message") or ""),
    )
