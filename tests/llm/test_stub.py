"""The stub endpoint, as any client of the OpenAI format sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import openai
import pytest

from server.llm.base import ChatMessage, ToolCallRequest
from server.llm.scripts import parse_script
from server.llm.stub import StubServer, open_stub, serve_stub
from server.llm.stub_wire import Refused, check_history

HI: Any = [{"role": "user", "content": "Hi"}]


@asynccontextmanager
async def stub_of(*actions: dict[str, Any]) -> AsyncIterator[tuple[StubServer, httpx2.AsyncClient]]:
    script = parse_script("s", {"turns": [{"actions": list(actions)}]}, "test")
    async with open_stub({"s": script}) as stub, httpx2.AsyncClient(base_url=stub.base_url) as client:
        yield stub, client


def calling(*ids: str) -> ChatMessage:
    return ChatMessage("assistant", "", None, tuple(ToolCallRequest(name, "search", "{}") for name in ids))


def result(call_id: str) -> ChatMessage:
    return ChatMessage("tool", "x", call_id)


USER = ChatMessage("user", "Hi")


@pytest.mark.parametrize(
    "messages",
    [
        (USER,),
        (USER, calling("a", "b"), result("b"), result("a"), USER),
        (USER, calling("a"), result("a"), calling("a"), result("a")),
    ],
)
def test_ST8_a_history_in_order_is_taken(messages: tuple[ChatMessage, ...]) -> None:
    check_history(messages)


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (result("a"),),
        (USER, result("a")),
        (USER, calling("a")),
        (USER, calling("a"), USER),
        (USER, calling("a", "b"), result("a"), USER, result("b")),
        (USER, calling("a"), result("a"), result("a")),
        (USER, calling("a"), result("b")),
        (USER, calling("a", "a"), result("a"), result("a")),
    ],
)
def test_ST8_a_history_that_openai_refuses_is_refused(messages: tuple[ChatMessage, ...]) -> None:
    with pytest.raises(Refused):
        check_history(messages)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"messages":[]}',
        b'{"model":"s","messages":[]}',
        b'{"model":"s","messages":[{"role":"user"}]}',
        b'{"model":"s","messages":[{"role":"boss","content":"x"}]}',
        b'{"model":"s","messages":[{"role":"assistant","content":"x","tool_calls":[]}]}',
        b'{"model":"s","messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"a b"}}]}',
    ],
)
async def test_wrong_requests_are_answered_400(body: bytes) -> None:
    async with stub_of({"text": "x"}) as (stub, client):
        answer = await client.post("chat/completions", content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert not stub.requests


async def test_the_sdk_understands_the_stream_and_the_whole() -> None:
    actions = ({"text": "Hello there"}, {"tool_call": {"name": "search", "arguments": {"q": 1}, "id": "c"}})
    async with stub_of(*actions) as (stub, _), openai.AsyncOpenAI(base_url=stub.base_url, api_key="x") as sdk:
        streamed = await sdk.chat.completions.create(
            model="script/s",
            messages=HI,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in streamed]
        whole: Any = await sdk.chat.completions.create(model="script/s", messages=HI)
        record = stub.requests[0]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content == "Hello there"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason == "tool_calls"
    assert whole.choices[0].message.tool_calls[0].function.arguments == '{"q":1}'
    assert record.finished
    assert record.turn == 1


async def test_errors_carry_status_object_and_retry_after() -> None:
    error = {"status": 429, "code": "rate_limit_exceeded", "type": "requests", "retry_after_ms": 1500}
    async with stub_of({"error": error}) as (_, client):
        for stream in (True, False):
            request = {"model": "s", "messages": HI, "stream": stream}
            answer = await client.post("chat/completions", json=request)
            assert answer.status_code == 429
            assert answer.headers["retry-after"] == "2"
            assert answer.headers["retry-after-ms"] == "1500"
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"
        unknown = await client.post("chat/completions", json={"model": "x", "messages": HI})
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
        assert (await client.get("elsewhere")).status_code == 404


async def test_requests_are_remembered_and_forgotten() -> None:
    async with stub_of({"text": "Hello", "chunk": 1}) as (stub, client):
        await client.post("chat/completions", json={"model": "s", "messages": HI, "stream": True})
        url = stub.base_url.replace("/v1", "/stub/requests")
        (request,) = (await client.get(url)).json()["requests"]
        assert request["model"] == "s"
        assert request["messages"][0]["content"] == "Hi"
        assert (request["chunks"], request["finished"], request["hung_up"]) == (5, True, False)
        await client.delete(url)
        assert (await client.get(url)).json() == {"requests": []}


async def test_a_raw_script_is_sent_byte_for_byte() -> None:
    raw = 'data: {"a":\r\n\n: x\n\ndata: \\ud83d é'
    async with stub_of({"raw": raw, "chunk": 3}, {"finish": "none"}) as (_, client):
        answer = await client.post("chat/completions", json={"model": "s", "messages": HI, "stream": True})
    assert answer.content == raw.encode()
    assert answer.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_drop_resets_the_connection(stream: bool) -> None:
    async with stub_of({"text": "Hello"}, {"drop": True}) as (_, client):
        with pytest.raises(httpx2.HTTPError):
            await client.post("chat/completions", json={"model": "s", "messages": HI, "stream": stream})


async def test_a_client_that_hangs_up_is_noticed() -> None:
    async with stub_of({"text": "x", "repeat": 10_000, "every_ms": 1}) as (stub, client):
        request = {"model": "s", "messages": HI, "stream": True}
        async with client.stream("POST", "chat/completions", json=request):
            pass
        with anyio.fail_after(5):
            await stub.until(lambda stub: stub.requests[0].hung_up)


@pytest.mark.parametrize(
    "data", [b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n", b"x"]
)
async def test_what_is_not_http_ends_only_its_connection(data: bytes) -> None:
    async with stub_of({"text": "x"}) as (stub, client):
        host, port = stub.base_url.removeprefix("http://").removesuffix("/v1").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        assert (await client.get("models")).status_code == 200


async def test_it_is_fast_enough_to_be_a_load_peer() -> None:
    async with stub_of({"text": "hello", "repeat": 20_000}) as (_, client):
        began = asyncio.get_running_loop().time()
        answer = await client.post("chat/completions", json={"model": "s", "messages": HI, "stream": True})
        assert answer.content.count(b'"content":"hello"') == 20_000
        assert asyncio.get_running_loop().time() - began < 4


async def test_serving_says_when_it_is_ready(tmp_path: Path) -> None:
    (tmp_path / "hello.toml").write_text("[[turns]]\nactions = [ { text = 'Hi' } ]")
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_stub, [tmp_path], "127.0.0.1", 0, ready.set_result)
        async with httpx2.AsyncClient(base_url=await ready) as client:
            assert (await client.get("models")).json()["data"][0]["id"] == "script/hello"
        tasks.cancel_scope.cancel()
