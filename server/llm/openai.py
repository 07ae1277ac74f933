"""Any OpenAI-compatible endpoint, through the ``openai`` SDK.

The SDK makes requests and knows authentication, proxies and TLS; its parsed stream costs a hundred times
what the rest of a chunk's way costs, so the bytes are decoded by :mod:`server.llm.sse` and ``chunks``.
The SDK's own retries are off: they would sleep for as long as an endpoint likes, and they end at the status
line, while a connection that breaks before the first event may be tried again as well.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from email.utils import parsedate_to_datetime
from math import isfinite
from time import time
from typing import Any, Final

import httpx2
import openai
import structlog
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from protocol.codes import ErrorCode
from server.llm.base import ChatMessage, ModelEvent, ModelFault, ModelRequest
from server.llm.chunks import ChunkReader
from server.llm.failures import bad_response, unavailable, upstream_fault
from server.llm.sse import EventTooLong, SseDecoder

log = structlog.get_logger(__name__)

DEFAULT_BASE_URL: Final = "https://api.openai.com/v1"
_CONNECTIONS: Final = 2000
_IDLE_CONNECTIONS: Final = 500
_WRITE_TIMEOUT_S: Final = 30.0
_AFTER_FINISH_S: Final = 2.0
"""How long the usage and the end of the stream may take once the answer is finished."""
_BACKOFF_S: Final = 0.25
_LONGEST_WAIT_S: Final = 2.0
"""An endpoint that asks to wait longer is not waited for: the client is told when to come again."""


class OpenAIModel:
    """One endpoint. See :class:`server.llm.base.Model`.

    Args:
        base_url: The endpoint, mostly ending in ``/v1``; OpenAI's own if ``None``.
        api_key: Sent as a bearer token; local endpoints mostly need none.
        connect_timeout_ms: For connecting, also for getting a connection when all are in use.
        retries: How often a call is made again, before its first event, after failures that may pass.
    """

    def __init__(
        self, base_url: str | None, api_key: str | None, *, connect_timeout_ms: int = 5000, retries: int = 2
    ) -> None:
        connect_s = connect_timeout_ms / 1000
        timeout = httpx2.Timeout(connect=connect_s, pool=connect_s, write=_WRITE_TIMEOUT_S, read=None)
        limits = httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_IDLE_CONNECTIONS)
        self._retries = retries
        self._client = AsyncOpenAI(
            base_url=base_url or DEFAULT_BASE_URL,
            api_key=api_key or "none",
            max_retries=0,
            timeout=timeout,
            http_client=DefaultAsyncHttpxClient(limits=limits, timeout=timeout),
        )

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Sequence[ModelEvent]]]:
        """Call the model; entering returns with the first event."""
        arguments = request_arguments(request)
        attempt = 0
        while True:
            answer = _Answer(self._client, arguments)
            try:
                await answer.begin()
                break
            except ModelFault as fault:
                await answer.aclose()
                delay_s = _retry_delay_s(fault, attempt)
                if attempt == self._retries or delay_s is None:
                    raise
                attempt += 1
                log.info("model call is made again", code=fault.code, attempt=attempt)
                await asyncio.sleep(delay_s)
            except BaseException:
                await answer.aclose()
                raise
        try:
            async with aclosing(answer.batches()) as batches:
                yield batches
        finally:
            await answer.aclose()

    async def models(self) -> tuple[str, ...]:
        """Name the endpoint's models, in its order."""
        try:
            page = await self._client.models.list()
        except openai.OpenAIError as error:
            raise _request_fault(error) from None
        except (ValueError, TypeError, AttributeError):
            raise bad_response("the endpoint's list of models is not as the format has it") from None
        return tuple(model.id for model in page.data or ())

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


class _Answer:
    """One attempt at one answer: its connection and what it has said so far."""

    def __init__(self, client: AsyncOpenAI, arguments: dict[str, Any]) -> None:
        self._client = client
        self._arguments = arguments
        self._stack = AsyncExitStack()
        self._events = SseDecoder()
        self._chunks = ChunkReader()
        self._first: list[ModelEvent] = []
        self._failure: ModelFault | None = None  # what came in one read with the first events
        self._pieces: AsyncIterator[bytes]

    async def begin(self) -> None:
        """Make the request and wait for its first event.

        Raises:
            ModelFault: The request failed, or the stream did before it said anything.
        """
        try:
            response = await self._stack.enter_async_context(
                self._client.chat.completions.with_streaming_response.create(**self._arguments)
            )
        except openai.OpenAIError as error:
            raise _request_fault(error) from None
        self._pieces = response.http_response.aiter_bytes()
        try:
            while not self._first and not self._chunks.finished and await self._read(self._first):
                pass
        except ModelFault as fault:
            if not self._first:
                raise
            self._failure = fault

    async def batches(self) -> AsyncGenerator[Sequence[ModelEvent], None]:
        """All events, those of one network read together."""
        events = self._first
        loop = asyncio.get_running_loop()
        until: float | None = None
        try:
            while True:
                if events:
                    yield events
                    events = []
                if self._failure is not None:
                    raise self._failure
                if not self._chunks.finished:
                    if not await self._read(events):
                        break
                    continue
                until = until or loop.time() + _AFTER_FINISH_S
                async with asyncio.timeout_at(until):
                    if not await self._read(events):
                        break
        except ModelFault as fault:
            if not self._chunks.finished:
                if events:
                    yield events
                raise
            log.info("model stream broke after its finish", code=fault.code)
        except TimeoutError:
            log.info("model stream stayed open after its finish")
        yield events + self._chunks.finish()
        await self._drain()

    async def aclose(self) -> None:
        """Close the connection, unless all of it was read and it can be used again."""
        await self._stack.aclose()

    async def _read(self, events: list[ModelEvent]) -> bool:
        """Read once and append what came; false at the end."""
        if self._chunks.complete:
            return False
        try:
            try:
                piece = await anext(self._pieces)
                found = self._events.feed(piece)
            except StopAsyncIteration:
                found = self._events.finish()
                if not found:
                    return False
        except EventTooLong:
            raise bad_response("an event of the answer is too long") from None
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise _broken_stream(error) from None
        for data in found:
            if self._chunks.complete:
                break
            self._chunks.feed(data, events)
        return True

    async def _drain(self) -> None:
        """Read the end of the body, so that the connection can be used again."""
        try:
            async with asyncio.timeout(_AFTER_FINISH_S):
                async for _ in self._pieces:
                    pass
        except (TimeoutError, httpx2.HTTPError, httpx2.StreamError, OSError):
            pass


def request_arguments(request: ModelRequest) -> dict[str, Any]:
    """What a request says to the SDK.

    Messages and tools go as ``extra_body``, which the SDK sends as it is: looking through 200 messages for
    something to rename costs it 25 ms of the loop's time.
    """
    body: dict[str, Any] = {"messages": [_message(message) for message in request.messages]}
    arguments: dict[str, Any] = {
        "model": request.model,
        "messages": [],
        "extra_body": body,
        "stream": True,
        "stream_options": {"include_usage": True},
        "extra_headers": {"Accept-Encoding": "identity"},
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in request.tools
        ]
    if request.reasoning:
        arguments["reasoning_effort"] = "medium"
    return arguments


def _message(message: ChatMessage) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "content": message.content, "tool_call_id": message.tool_call_id}
    if not message.tool_calls:
        return {"role": message.role, "content": message.content}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": message.content or None, "tool_calls": calls}


def _retry_delay_s(fault: ModelFault, attempt: int) -> float | None:
    """How long to wait before trying again; ``None`` if that would not help, or is too long to wait."""
    if fault.code not in {ErrorCode.LLM_UNAVAILABLE, ErrorCode.LLM_RATE_LIMITED}:
        return None
    if fault.details.get("status") in {401, 402, 403, 404}:
        return None
    if fault.retry_after_ms is not None:
        wait_s = fault.retry_after_ms / 1000
        return wait_s if wait_s <= _LONGEST_WAIT_S else None
    return min(_BACKOFF_S * float(2**attempt), _LONGEST_WAIT_S) * random.uniform(0.75, 1)


def _request_fault(error: openai.OpenAIError) -> ModelFault:
    """Map what the SDK raises for a request; its messages may hold anything and go nowhere."""
    if isinstance(error, openai.APITimeoutError):
        return unavailable("the model's endpoint could not be reached in time")
    if isinstance(error, openai.APIConnectionError):
        return unavailable("the model's endpoint could not be reached")
    if not isinstance(error, openai.APIStatusError):
        return bad_response("the model's endpoint gave an answer that is not as the format has it")
    body = error.body if isinstance(error.body, Mapping) else {}
    inner = body.get("error")
    if isinstance(inner, Mapping):
        body = inner
    words = body.get("message") or body.get("detail") or inner or error.body or ""
    return upstream_fault(
        error.status_code,
        code=str(body.get("code") or ""),
        kind=str(body.get("type") or ""),
        message=str(words),
        retry_after_ms=retry_after_ms(error.response.headers),
    )


def retry_after_ms(headers: Mapping[str, str]) -> int | None:
    """What ``Retry-After-Ms`` or ``Retry-After`` (seconds or a date) asks for; at most an hour."""
    milliseconds: float | None = None
    for name, unit in (("retry-after-ms", 1.0), ("retry-after", 1000.0)):
        value = headers.get(name)
        if value is None or milliseconds is not None:
            continue
        try:
            milliseconds = float(value) * unit
        except ValueError:
            try:
                milliseconds = (parsedate_to_datetime(value).timestamp() - time()) * 1000
            except (ValueError, OverflowError):
                continue
    if milliseconds is None or not isfinite(milliseconds):
        return None
    return round(min(max(milliseconds, 0.0), 3_600_000.0))


def _broken_stream(error: Exception) -> ModelFault:
    if isinstance(error, httpx2.DecodingError):
        return bad_response("the answer's encoding is broken")
    if isinstance(error, httpx2.RemoteProtocolError) and "malformed" in str(error).lower():
        return bad_response("the answer is broken HTTP")
    return unavailable("the connection to the model broke in the middle of its answer")
