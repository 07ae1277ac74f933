"""The real small model in this process; skipped where the extra ``local`` is not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from protocol.codes import ErrorCode
from server.llm.base import (
    ChatMessage,
    ModelEvent,
    ModelFault,
    ModelRequest,
    TextDelta,
    ToolCallRequest,
    TurnFinished,
    UsageReport,
)
from server.llm.local import LocalModel, is_available

pytestmark = pytest.mark.skipif(not is_available(), reason="the extra `local` is not installed")


@asynccontextmanager
async def local_model() -> AsyncIterator[LocalModel]:
    model = LocalModel(max_answer_tokens=24)
    try:
        yield model
    finally:
        await model.aclose()


def request(text: str) -> ModelRequest:
    return ModelRequest("smollm2-135m", (ChatMessage("user", text),))


async def ask(model: LocalModel, asked: ModelRequest) -> list[ModelEvent]:
    async with model.stream(asked) as batches:
        return [event async for batch in batches for event in batch]


async def test_ST1_it_answers_in_a_stream_and_counts() -> None:
    async with local_model() as model:
        events = await ask(model, request("Say hello."))
    assert sum(isinstance(event, TextDelta) for event in events) > 1
    assert isinstance(events[-1], TurnFinished)
    usage = events[-2]
    assert isinstance(usage, UsageReport)
    assert usage.input_tokens > 5
    assert usage.output_tokens > 1


async def test_ST6_a_conversation_that_is_too_long_says_so() -> None:
    async with local_model() as model:
        with pytest.raises(ModelFault) as caught:
            await ask(model, request("word " * 9000))
        assert caught.value.code is ErrorCode.LLM_CONTEXT_LENGTH


async def test_ST3_it_can_be_left_at_any_moment_and_goes_on_with_others() -> None:
    async with local_model() as model:
        for long in ("word " * 3000, "Count to a hundred in words."):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(ask, model, request(long))
                async with model.stream(request("Say hello.")) as batches:
                    if not long.startswith("word"):
                        await anext(batches)
                tasks.cancel_scope.cancel()
        assert isinstance((await ask(model, request("Say hello.")))[-1], TurnFinished)


async def test_a_history_with_tools_is_told_in_words() -> None:
    messages = (
        ChatMessage("system", "You are brief."),
        ChatMessage("user", "What time is it?"),
        ChatMessage("assistant", "", None, (ToolCallRequest("a", "current_time", "{}"),)),
        ChatMessage("tool", "12:30", "a"),
    )
    async with local_model() as model:
        assert isinstance((await ask(model, ModelRequest("local", messages)))[-1], TurnFinished)


PROGRAM = """
import asyncio
from server.llm.base import ChatMessage, ModelRequest
from server.llm.local import LocalModel

async def main() -> None:
    model = LocalModel()
    async with model.stream(ModelRequest("local", (ChatMessage("user", "Say hello."),))) as batches:
        await anext(batches)
    CLOSE

asyncio.run(main())
"""


@pytest.mark.parametrize("close", ["await model.aclose()", "pass"])
def test_the_process_ends_cleanly_with_and_without_closing(close: str) -> None:
    program = PROGRAM.replace("CLOSE", close)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
