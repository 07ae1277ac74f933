"""The OpenAI wire format from the serving side: requests checked as OpenAI does, chunks, errors."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from server.llm.base import ChatMessage, ToolCallRequest
from server.llm.player import Fragment
from server.llm.scripts import UsageCounts

_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
encode = msgspec.json.encode

DONE: Final = b"data: [DONE]\n\n"


class Refused(Exception):
    """The request is wrong; the text says how, as an OpenAI error message."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class StreamOptions(Struct):
    """What else a stream is to bring."""

    include_usage: bool = False


class _Function(Struct):
    name: str
    arguments: str = ""


class _Call(Struct):
    id: str
    function: _Function
    type: str = "function"


class _Message(Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    tool_calls: list[_Call] | None = None


class _ToolFunction(Struct):
    name: str
    parameters: dict[str, Any] = {}
    description: str = ""


class _Tool(Struct):
    function: _ToolFunction
    type: str = "function"


class CompletionRequest(Struct):
    """A ``POST /v1/chat/completions``; unknown fields are passed over."""

    model: str
    messages: list[_Message]
    stream: bool = False
    stream_options: StreamOptions | None = None
    tools: list[_Tool] = []
    reasoning_effort: str | None = None


def read_request(body: bytes) -> tuple[CompletionRequest, tuple[ChatMessage, ...]]:
    """Decode and check a request.

    Raises:
        Refused: Not JSON, a wrong field, or a history that OpenAI would not take.
    """
    try:
        request = msgspec.json.decode(body, type=CompletionRequest)
    except msgspec.DecodeError as error:
        raise Refused(f"We could not parse the JSON body of your request: {error}") from None
    for tool in request.tools:
        if not _TOOL_NAME.fullmatch(tool.function.name):
            raise Refused(f"Invalid 'tools[].function.name': {tool.function.name!r}", "tools")
    messages = tuple(_chat_message(message, at) for at, message in enumerate(request.messages))
    check_history(messages)
    return request, messages


def _chat_message(message: _Message, at: int) -> ChatMessage:
    if message.role not in _ROLES:
        raise Refused(f"Invalid value: {message.role!r}", f"messages[{at}].role")
    calls = tuple(
        ToolCallRequest(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or ()
    )
    if message.tool_calls is not None and (message.role != "assistant" or not calls):
        raise Refused(
            "'tool_calls' belongs to an assistant message and is not empty", f"messages[{at}].tool_calls"
        )
    if message.content is None and not calls:
        raise Refused("Invalid value for 'content': expected a string, got null.", f"messages[{at}].content")
    content = message.content or ""
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content)
    return ChatMessage(message.role, content, message.tool_call_id, calls)


def check_history(messages: Sequence[ChatMessage]) -> None:
    """Refuse what OpenAI refuses: tool messages out of place, calls without an answer, no messages.

    Raises:
        Refused: With the place.
    """
    if not messages:
        raise Refused("[] is too short - 'messages'", "messages")
    unanswered: list[str] = []
    for at, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in unanswered:
                raise Refused(
                    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
                    f"messages[{at}].role",
                )
            unanswered.remove(message.tool_call_id)
            continue
        _refuse_unanswered(unanswered, at)
        unanswered = [call.id for call in message.tool_calls]
        if len(set(unanswered)) != len(unanswered):
            raise Refused("Duplicate tool call ids", f"messages[{at}].tool_calls")
    _refuse_unanswered(unanswered, len(messages))


def _refuse_unanswered(unanswered: list[str], at: int) -> None:
    if unanswered:
        raise Refused(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(unanswered),
            f"messages[{at}].role",
        )


def error_body(
    message: str, *, kind: str = "invalid_request_error", code: str | None = None, param: str | None = None
) -> bytes:
    """An OpenAI error object."""
    return encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


class Chunks:
    """Encodes the chunks of one streamed answer; what all chunks share is encoded once."""

    def __init__(self, completion_id: str, model: str) -> None:
        self._head = (
            b'data: {"id":'
            + encode(completion_id)
            + b',"object":"chat.completion.chunk","created":'
            + str(int(time.time())).encode()
            + b',"model":'
            + encode(model)
            + b',"system_fingerprint":"fp_stub","choices":['
        )
        self._delta = self._head + b'{"index":0,"delta":'
        self._tail = b',"logprobs":null,"finish_reason":null}]}\n\n'

    def role(self) -> bytes:
        """The first chunk, as OpenAI sends it: a role and nothing said."""
        return self._delta + b'{"role":"assistant","content":"","refusal":null}' + self._tail

    def text(self, text: str) -> bytes:
        """A piece of the answer."""
        return self._delta + b'{"content":' + encode(text) + b"}" + self._tail

    def thinking(self, text: str) -> bytes:
        """A piece of reasoning."""
        return self._delta + b'{"reasoning_content":' + encode(text) + b"}" + self._tail

    def fragment(self, step: Fragment) -> bytes:
        """A piece of a tool call."""
        call: dict[str, Any] = {"index": step.index}
        if step.id is not None:
            call["id"] = step.id
        function: dict[str, Any] = {}
        if step.name is not None:
            call["type"] = "function"
            function["name"] = step.name
        call["function"] = {**function, "arguments": step.arguments}
        return self._delta + b'{"tool_calls":[' + encode(call) + b"]}" + self._tail

    def finish(self, reason: str) -> bytes:
        """The chunk that says why the answer is over."""
        return self._delta + b'{},"logprobs":null,"finish_reason":' + encode(reason) + b"}]}\n\n"

    def usage(self, usage: UsageCounts) -> bytes:
        """The chunk after the last choice."""
        return self._head + b'],"usage":' + encode(usage_body(usage)) + b"}\n\n"


def usage_body(usage: UsageCounts) -> dict[str, int]:
    """A usage object."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


class Whole:
    """Gathers an answer that is not streamed."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}

    def say(self, text: str) -> None:
        """Add to the answer."""
        self._text.append(text)

    def think(self, text: str) -> None:
        """Add to the reasoning."""
        self._thinking.append(text)

    def add(self, step: Fragment) -> None:
        """Add to a tool call."""
        call = self._calls.setdefault(
            step.index,
            {"id": step.id, "type": "function", "function": {"name": step.name, "arguments": ""}},
        )
        call["function"]["arguments"] += step.arguments

    def body(self, completion_id: str, model: str, reason: str, usage: UsageCounts | None) -> bytes:
        """The completion object."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(self._text) or None,
            "refusal": None,
        }
        if self._thinking:
            message["reasoning_content"] = "".join(self._thinking)
        if self._calls:
            message["tool_calls"] = list(self._calls.values())
        return encode(
            {
                "id": completion_id,
                "object": "chat.completion",
                "created": int(time.time()),
                "model": model,
                "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
                "usage": None if usage is None else usage_body(usage),
            }
        )
