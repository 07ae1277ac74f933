"""The OpenAI provider over real sockets, against the stub endpoint and against a socket that misbehaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any

import anyio
import pytest

from protocol.codes import ErrorCode
from server.llm.base import (
    ChatMessage,
    ModelEvent,
    ModelFault,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallRequest,
    ToolDefinition,
    TurnFinished,
    UsageReport,
)
from server.llm.openai import OpenAIModel, retry_after_ms
from server.llm.scripts import parse_script
from server.llm.sse import MAX_EVENT_BYTES
from server.llm.stub import StubServer, open_stub

QUESTION = (ChatMessage("user", "What?"),)


@asynccontextmanager
async def endpoint(
    *actions: dict[str, Any], retries: int = 0, **turn: Any
) -> AsyncIterator[tuple[OpenAIModel, StubServer]]:
    """A stub whose model ``s`` plays these actions, and a provider for it."""
    script = parse_script("s", {"turns": [{"actions": list(actions), **turn}]}, "test")
    async with open_stub({"s": script}) as stub:
        model = OpenAIModel(stub.base_url, "secret-key", retries=retries)
        try:
            yield model, stub
        finally:
            await model.aclose()


async def ask(
    model: OpenAIModel, name: str = "s", events: list[ModelEvent] | None = None, **more: Any
) -> list[ModelEvent]:
    events = [] if events is None else events
    async with model.stream(ModelRequest(name, more.pop("messages", QUESTION), **more)) as batches:
        async for batch in batches:
            assert batch
            events += batch
    return events


async def fault_of(model: OpenAIModel, name: str = "s", events: list[ModelEvent] | None = None) -> ModelFault:
    with pytest.raises(ModelFault) as caught:
        await ask(model, name, events)
    shown = f"{caught.value} {caught.value.details}"
    assert "secret" not in shown
    assert "What?" not in shown
    return caught.value


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_ST2_text_thinking_and_usage_arrive_as_sent() -> None:
    text = "Héllo 日本語 👩‍👩‍👧 e\u0301. "
    async with endpoint(
        {"thinking": "Hm. "},
        {"text": text, "repeat": 50, "chunk": 3},
        {"usage": {"input_tokens": 11, "output_tokens": 22}},
        {"finish": "length"},
    ) as (model, stub):
        events = await ask(model)
    assert text_of(events) == text * 50
    assert "".join(event.text for event in events if isinstance(event, ThinkingDelta)) == "Hm. "
    assert events[-2:] == [UsageReport(11, 22), TurnFinished("length")]
    assert stub.requests[0].reasoning_effort is None


@pytest.mark.parametrize("size", [1, 7, 64])
async def test_ST2_packets_may_cut_anywhere(size: int) -> None:
    text = "Héllo 日本語 👩‍👩‍👧. "
    async with endpoint({"text": text, "chunk": 2}, split_bytes=size) as (model, _):
        assert text_of(await ask(model)) == text


async def test_all_events_of_one_read_come_together() -> None:
    async with (
        endpoint({"text": "x" * 1000, "chunk": 1}) as (model, _),
        model.stream(ModelRequest("s", QUESTION)) as batches,
    ):
        sizes = [len(batch) async for batch in batches]
    assert sum(sizes) == 1002
    assert len(sizes) < 100


async def test_the_request_carries_history_tools_and_reasoning() -> None:
    messages = (
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "Look."),
        ChatMessage("assistant", "", None, (ToolCallRequest("c1", "search", '{"q":1}'),)),
        ChatMessage("tool", "", "c1"),
        ChatMessage("user", "And?"),
    )
    tool = ToolDefinition("search", "Finds.", {"type": "object", "properties": {}})
    async with endpoint({"text": "Ok"}) as (model, stub):
        await ask(model, messages=messages, tools=(tool,), reasoning=True)
        request = stub.requests[0]
    assert request.messages == messages
    assert request.tools == ("search",)
    assert request.reasoning_effort == "medium"


async def test_TL1_interleaved_calls_of_an_upstream_that_repeats_ids() -> None:
    calls = [
        {"name": "one", "id": "a", "arguments": {"x": 1}, "chunks": 4, "repeat_id": True},
        {"name": "two", "id": "", "arguments": {"y": [2]}, "chunks": 3},
    ]
    async with endpoint({"tool_calls": calls}) as (model, _):
        events = await ask(model)
    deltas = [event for event in events if isinstance(event, ToolCallDelta)]
    for index, name, arguments in ((0, "one", '{"x":1}'), (1, "two", '{"y":[2]}')):
        own = [delta for delta in deltas if delta.index == index]
        assert own[0].id
        assert own[0].name == name
        assert all(delta.id is None and delta.name is None for delta in own[1:])
        assert "".join(delta.arguments for delta in own) == arguments
    assert [delta.index for delta in deltas[:4]] == [0, 1, 0, 1]
    assert events[-1] == TurnFinished("tool_calls")


async def test_ER2_a_surrogate_pair_split_over_two_deltas_is_joined() -> None:
    chunks = [
        f'data: {{"choices":[{{"delta":{{"content":"{half}"}}}}]}}\n\n'
        for half in (r"\ud83d", r"\ude00\u0000")
    ]
    async with endpoint({"text": "a"}, {"raw": "".join(chunks)}) as (model, _):
        assert text_of(await ask(model)) == "a😀\ufffd"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"status": 401, "code": "invalid_api_key", "message": "secret-key"}, ErrorCode.LLM_UNAVAILABLE),
        ({"status": 403}, ErrorCode.LLM_UNAVAILABLE),
        ({"status": 404, "code": "model_not_found"}, ErrorCode.UNKNOWN_MODEL),
        ({"status": 404, "message": 'model "secret" not found, try pulling it'}, ErrorCode.UNKNOWN_MODEL),
        ({"status": 404, "message": "Not Found"}, ErrorCode.LLM_UNAVAILABLE),
        ({"status": 429, "code": "rate_limit_exceeded"}, ErrorCode.LLM_RATE_LIMITED),
        ({"status": 400, "code": "context_length_exceeded"}, ErrorCode.LLM_CONTEXT_LENGTH),
        ({"status": 400, "message": "the maximum context length is 10 tokens"}, ErrorCode.LLM_CONTEXT_LENGTH),
        ({"status": 400, "type": "exceed_context_size_error"}, ErrorCode.LLM_CONTEXT_LENGTH),
        ({"status": 400, "code": "content_filter"}, ErrorCode.LLM_CONTENT_FILTER),
        ({"status": 400, "code": "content_policy_violation"}, ErrorCode.LLM_CONTENT_FILTER),
        ({"status": 400, "message": "secret is not of type 'object'"}, ErrorCode.LLM_BAD_RESPONSE),
        ({"status": 500}, ErrorCode.LLM_UNAVAILABLE),
        ({"status": 503}, ErrorCode.LLM_UNAVAILABLE),
    ],
)
async def test_ST6_http_errors_have_their_codes(error: dict[str, Any], code: ErrorCode) -> None:
    async with endpoint({"error": error}) as (model, _):
        fault = await fault_of(model)
    assert fault.code is code
    assert fault.details["status"] == error["status"]


async def test_ST6_a_rate_limit_says_when_to_come_again() -> None:
    async with endpoint({"error": {"status": 429, "retry_after_ms": 12_345}}, retries=2) as (model, stub):
        assert (await fault_of(model)).retry_after_ms == 12_345
        assert len(stub.requests) == 1


@pytest.mark.parametrize(
    ("headers", "milliseconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2000),
        ({"retry-after-ms": "15.4", "retry-after": "2"}, 15),
        ({"retry-after": "1e99"}, 3_600_000),
        ({"retry-after": "-1"}, 0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": formatdate(time.time() - 100, usegmt=True)}, 0),
    ],
)
def test_ST6_retry_after_is_read_in_all_its_forms(headers: dict[str, str], milliseconds: int | None) -> None:
    assert retry_after_ms(headers) == milliseconds


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ({"drop": True}, ErrorCode.LLM_UNAVAILABLE),
        ({"finish": "none"}, ErrorCode.LLM_BAD_RESPONSE),
        ({"finish": "content_filter"}, ErrorCode.LLM_CONTENT_FILTER),
        ({"raw": "data: {oops\n\n"}, ErrorCode.LLM_BAD_RESPONSE),
        ({"raw": "<html>secret</html>"}, ErrorCode.LLM_BAD_RESPONSE),
        ({"error": {"code": "context_length_exceeded", "message": "secret"}}, ErrorCode.LLM_CONTEXT_LENGTH),
        ({"error": {"type": "server_error", "message": "secret"}}, ErrorCode.LLM_UNAVAILABLE),
    ],
)
async def test_ST6_what_was_streamed_precedes_a_failure(action: dict[str, Any], code: ErrorCode) -> None:
    actions = [action] if "raw" not in action else [action, {"finish": "none"}]
    async with endpoint({"text": "Hello there"}, *actions, retries=2) as (model, stub):
        events: list[ModelEvent] = []
        fault = await fault_of(model, events=events)
        assert len(stub.requests) == 1
    assert fault.code is code
    assert text_of(events) == "Hello there"


async def test_ST6_retries_happen_only_before_the_first_event() -> None:
    turns = [
        {"when": {"attempt": 1}, "actions": [{"error": {"status": 503}}]},
        {"when": {"attempt": 2}, "actions": [{"raw": ": hello\n\n"}, {"drop": True}]},
        {"actions": [{"text": "At last"}]},
    ]
    async with open_stub({"s": parse_script("s", {"turns": turns}, "test")}) as stub:
        model = OpenAIModel(stub.base_url, None, retries=2)
        assert text_of(await ask(model)) == "At last"
        assert len(stub.requests) == 3
        await model.aclose()


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_ST6_what_will_not_pass_is_not_tried_again(status: int) -> None:
    async with endpoint({"error": {"status": status}}, retries=2) as (model, stub):
        await fault_of(model)
        assert len(stub.requests) == 1


async def test_ST6_an_unknown_model_and_nobody_listening() -> None:
    async with endpoint({"text": "x"}) as (model, stub):
        assert (await fault_of(model, "nope")).code is ErrorCode.UNKNOWN_MODEL
        base_url = stub.base_url
    gone = OpenAIModel(base_url, None, retries=0)
    assert (await fault_of(gone)).code is ErrorCode.LLM_UNAVAILABLE
    with pytest.raises(ModelFault):
        await gone.models()
    await gone.aclose()


@pytest.mark.parametrize("said", ["", "Hello"])
async def test_ST3_leaving_closes_the_upstream_connection(said: str) -> None:
    actions = [{"text": said}] if said else []
    async with endpoint(*actions, {"stall": True}) as (model, stub):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, model)
            await stub.until(lambda stub: bool(stub.requests) and stub.requests[0].chunks == len(actions))
            tasks.cancel_scope.cancel()
        with anyio.fail_after(5):
            await stub.until(lambda stub: stub.requests[0].hung_up)


async def test_ST3_leaving_in_the_middle_without_a_cancellation_closes_too() -> None:
    async with endpoint({"text": "x", "repeat": 1000, "every_ms": 5}) as (model, stub):
        async with model.stream(ModelRequest("s", QUESTION)) as batches:
            await anext(batches)
        with anyio.fail_after(5):
            await stub.until(lambda stub: stub.requests[0].hung_up)


async def test_a_finished_stream_leaves_its_connection_to_the_next() -> None:
    opened = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await handle(reader, writer)

    script = parse_script("s", {"turns": [{"actions": [{"text": "Hi"}]}]}, "test")
    async with open_stub({"s": script}) as stub:
        handle = stub.handle
        async with listen(count) as base_url:
            model = OpenAIModel(base_url, None)
            for _ in range(3):
                assert text_of(await ask(model)) == "Hi"
            await model.aclose()
    assert opened == 1


async def test_five_hundred_conversations_at_once() -> None:
    async with endpoint({"text": "x", "repeat": 5, "chunk": 1, "every_ms": 20}) as (model, stub):
        texts: list[str] = []

        async def converse() -> None:
            texts.append(text_of(await ask(model)))

        async with anyio.create_task_group() as tasks:
            for _ in range(500):
                tasks.start_soon(converse)
        assert texts == ["xxxxx"] * 500
        assert all(request.finished for request in stub.requests)


async def test_the_endpoint_names_its_models() -> None:
    async with endpoint({"text": "x"}) as (model, _):
        assert await model.models() == ("script/s",)


@asynccontextmanager
async def listen(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", ErrorCode.LLM_UNAVAILABLE),
        (b"SSH-2.0-OpenSSH\r\n", ErrorCode.LLM_UNAVAILABLE),
        (HEAD + b"\r\n", ErrorCode.LLM_BAD_RESPONSE),
        (HEAD + b"\r\ndata: [DONE]\n\n", ErrorCode.LLM_BAD_RESPONSE),
        (HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n", ErrorCode.LLM_UNAVAILABLE),
        (HEAD + b"content-length: 100\r\n\r\ndata: ", ErrorCode.LLM_UNAVAILABLE),
        (HEAD + b"content-encoding: gzip\r\n\r\nno gzip", ErrorCode.LLM_BAD_RESPONSE),
        (HEAD + b"\r\n" + b"data: " + b"x" * (MAX_EVENT_BYTES + 1), ErrorCode.LLM_BAD_RESPONSE),
        (b"HTTP/1.1 500 No\r\ncontent-length: 5\r\n\r\nHello", ErrorCode.LLM_UNAVAILABLE),
    ],
)
async def test_ST6_an_endpoint_that_speaks_something_else(answer: bytes, code: ErrorCode) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async with listen(handler) as base_url:
        model = OpenAIModel(base_url, None, retries=0)
        assert (await fault_of(model)).code is code
        await model.aclose()


async def test_a_stream_that_stays_open_after_its_finish_is_over() -> None:
    finished = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'
    ended = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"\r\n" + finished)
        while await reader.read(65536):
            pass
        writer.close()
        ended.set()

    async with listen(handler) as base_url:
        model = OpenAIModel(base_url, None)
        with anyio.fail_after(20):
            assert await ask(model) == [TextDelta("Hi"), TurnFinished("stop")]
            await ended.wait()
        await model.aclose()
