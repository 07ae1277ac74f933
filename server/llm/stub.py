"""``turnwire stub-llm``: an OpenAI-compatible endpoint that plays scripts over a real socket (SCRIPTS.md).

Plain asyncio streams and just enough HTTP/1.1: it has to reset connections, send broken bytes and notice at
once that a client hangs up, and to send thousands of chunks a second as a load peer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from msgspec import Struct

from protocol.codes import ErrorCode
from protocol.ids import new_ulid
from server.llm.base import ChatMessage, ModelFault
from server.llm.player import (
    Bytes,
    End,
    Fail,
    Fragment,
    Hang,
    Pause,
    Performance,
    Player,
    Reset,
    Say,
    Think,
)
from server.llm.scripts import ErrorBody, Script, read_scripts
from server.llm.stub_http import HangUp, HttpConnection, HttpRequest
from server.llm.stub_wire import (
    DONE,
    Chunks,
    CompletionRequest,
    Refused,
    Whole,
    error_body,
    read_request,
)

_REMEMBERED: Final = 1000
_RESET_AFTER_S: Final = 0.02
"""Before a reset, for what was sent to arrive: a reset overtakes it."""


class RequestRecord(Struct):
    """What the stub remembers of a request, for tests."""

    model: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[str, ...]
    stream: bool
    reasoning_effort: str | None
    turn: int = 0
    chunks: int = 0
    finished: bool = False
    hung_up: bool = False


class StubServer:
    """A running stub; made by :func:`open_stub`.

    - ``base_url``: what to give to an OpenAI client.
    - ``requests``: the last thousand, oldest first.
    """

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.base_url = ""
        self.requests: deque[RequestRecord] = deque(maxlen=_REMEMBERED)
        self._player = Player(scripts)
        self._changed = asyncio.Event()
        self._handlers: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    async def until(self, holds: Callable[[StubServer], bool]) -> None:
        """Wait until something is true of the requests (for tests)."""
        while not holds(self):
            await self._changed.wait()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._handlers[task] = writer
        connection = HttpConnection(reader, writer)
        try:
            while (request := await connection.next_request()) is not None:
                await self._answer(connection, request)
        except (HangUp, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            del self._handlers[task]

    async def aclose(self) -> None:
        """End all connections."""
        for writer in list(self._handlers.values()):
            writer.transport.abort()
        if self._handlers:
            await asyncio.wait(list(self._handlers))

    async def _answer(self, connection: HttpConnection, request: HttpRequest) -> None:
        match request.method, request.path:
            case "POST", "/v1/chat/completions":
                await self._complete(connection, request)
            case "GET", "/v1/models":
                models = [
                    {"id": name, "object": "model", "created": 0, "owned_by": "scripts"}
                    for name in self._player.names()
                ]
                await connection.reply(200, msgspec.json.encode({"object": "list", "data": models}))
            case "GET", "/stub/requests":
                await connection.reply(200, msgspec.json.encode({"requests": list(self.requests)}))
            case "DELETE", "/stub/requests":
                self.requests.clear()
                await connection.reply(200, b"{}")
            case method, path:
                body = error_body(f"Unknown request URL: {method} {path}.", code="unknown_url")
                await connection.reply(404, body)

    async def _complete(self, connection: HttpConnection, http: HttpRequest) -> None:
        try:
            request, messages = read_request(http.body)
        except Refused as refused:
            await connection.reply(400, error_body(str(refused), param=refused.param))
            return
        record = RequestRecord(
            request.model,
            messages,
            tuple(tool.function.name for tool in request.tools),
            request.stream,
            request.reasoning_effort,
        )
        self.requests.append(record)
        self._change()
        try:
            performance = self._player.perform(request.model, messages)
        except ModelFault as fault:
            if fault.code is ErrorCode.UNKNOWN_MODEL:
                text = f"The model `{request.model}` does not exist or you do not have access to it."
                await connection.reply(404, error_body(text, code="model_not_found"))
            else:
                await connection.reply(500, error_body(fault.message, kind="server_error"))
            return
        record.turn = performance.number
        try:
            if request.stream:
                await _Streaming(connection, request, record, performance).play()
            else:
                await _play_whole(connection, request, record, performance)
            record.finished = True
        except (HangUp, ConnectionError):
            record.hung_up = True
            raise
        finally:
            self._change()


class _Streaming:
    """Plays one answer as server-sent events.

    Events gather until time passes, so an unpaced script costs one write for many chunks.
    """

    def __init__(
        self,
        connection: HttpConnection,
        request: CompletionRequest,
        record: RequestRecord,
        performance: Performance,
    ) -> None:
        self._connection = connection
        self._record = record
        self._performance = performance
        self._usage = request.stream_options is not None and request.stream_options.include_usage
        self._chunks = Chunks(f"chatcmpl-{new_ulid()}", request.model)
        self._waiting: list[bytes] = []
        self._size = 0
        self._begun = False

    async def play(self) -> None:
        """Play to the end.

        Raises:
            HangUp: The client closed.
        """
        loop = asyncio.get_running_loop()
        due = loop.time()
        chunks = self._chunks
        for step in self._performance.steps:
            self._record.chunks += isinstance(step, Say | Think | Fragment)
            match step:
                case Say():
                    self._add(chunks.text(step.text))
                case Think():
                    self._add(chunks.thinking(step.text))
                case Fragment():
                    self._add(chunks.fragment(step))
                case Bytes():
                    self._add(step.data, event=False)
                case Pause():
                    due += step.ms / 1000
                    if due > loop.time():
                        await self._flush()
                        await self._connection.wait_until(due)
                case _:
                    await self._end(step)
            if self._size > 65536:
                await self._flush()

    async def _end(self, step: End | Fail | Reset | Hang) -> None:
        match step:
            case End():
                if step.reason != "none":
                    self._add(self._chunks.finish(step.reason))
                    if self._usage and step.usage is not None:
                        self._add(self._chunks.usage(step.usage))
                    self._add(DONE, event=False)
                await self._flush()
                await self._connection.end_chunked()
            case Fail(error=error) if not self._begun and not error.in_stream:
                await _reply_error(self._connection, error)
            case Fail(error=error):
                body = error_body(error.message, kind=error.type, code=error.code)
                self._add(b"data: " + body + b"\n\n", event=False)
                await self._flush()
                await self._connection.end_chunked()
            case Reset():
                await self._flush()
                await self._connection.wait_until(asyncio.get_running_loop().time() + _RESET_AFTER_S)
                self._connection.reset()
            case Hang():
                await self._flush()
                await self._connection.wait_until(None)

    def _add(self, data: bytes, *, event: bool = True) -> None:
        if not self._begun:
            self._begun = True
            if event:
                data = self._chunks.role() + data
        self._waiting.append(data)
        self._size += len(data)

    async def _flush(self) -> None:
        if not self._connection.chunked and (self._waiting or self._begun):
            self._connection.begin_chunked()
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        split = self._performance.turn.split_bytes
        if split is None:
            await self._connection.write_chunk(data)
            return
        for at in range(0, len(data), split):
            await self._connection.write_chunk(data[at : at + split])
            await asyncio.sleep(0)


async def _play_whole(
    connection: HttpConnection, request: CompletionRequest, record: RequestRecord, performance: Performance
) -> None:
    """Play an answer that is not streamed: it comes in one piece when it is over."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    whole = Whole()
    for step in performance.steps:
        match step:
            case Say():
                whole.say(step.text)
            case Think():
                whole.think(step.text)
            case Fragment():
                whole.add(step)
            case Bytes():
                pass
            case Pause():
                due += step.ms / 1000
                await connection.wait_until(due)
            case End():
                body = whole.body(f"chatcmpl-{new_ulid()}", request.model, step.reason, step.usage)
                await connection.reply(200, body)
            case Fail(error=error):
                await _reply_error(connection, error)
            case Reset():
                connection.reset()
            case Hang():
                await connection.wait_until(None)
        record.chunks += isinstance(step, Say | Think | Fragment)


async def _reply_error(connection: HttpConnection, error: ErrorBody) -> None:
    headers = {}
    if error.retry_after_ms is not None:
        headers = {
            "retry-after": str(-(-error.retry_after_ms // 1000)),
            "retry-after-ms": str(error.retry_after_ms),
        }
    await connection.reply(error.status, error_body(error.message, kind=error.type, code=error.code), headers)


@asynccontextmanager
async def open_stub(
    scripts: dict[str, Script] | Sequence[Path], host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[StubServer]:
    """Run the stub.

    Args:
        scripts: Scripts by name, or the files and folders to read them from.
        host: Address to listen on.
        port: Port; 0 takes a free one.

    Raises:
        ScriptError: A script is wrong.
        OSError: The port is taken.
    """
    stub = StubServer(scripts if isinstance(scripts, dict) else read_scripts(scripts))
    server = await asyncio.start_server(stub.handle, host, port, backlog=1024)
    bound = server.sockets[0].getsockname()[1]
    stub.base_url = f"http://{f'[{host}]' if ':' in host else host}:{bound}/v1"
    try:
        yield stub
    finally:
        server.close()
        await stub.aclose()


async def serve_stub(
    paths: Iterable[Path], host: str = "127.0.0.1", port: int = 0, ready: Callable[[str], None] = print
) -> None:
    """Serve until cancelled.

    Args:
        paths: Scripts, scenarios, or folders of them.
        host: Address to listen on.
        port: Port; 0 takes a free one.
        ready: Told the base URL when requests can be made.
    """
    async with open_stub(list(paths), host, port) as stub:
        ready(stub.base_url)
        await anyio.sleep_forever()
