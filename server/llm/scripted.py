"""The provider that plays scripts inside of the server; its models are named ``script/NAME``."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from importlib import resources
from typing import Final

import anyio

from protocol.codec import clean_text
from protocol.ids import new_ulid
from server.llm.base import (
    ModelEvent,
    ModelFault,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    TurnFinished,
    UsageReport,
)
from server.llm.failures import bad_response, content_filtered, unavailable, upstream_fault
from server.llm.player import (
    Bytes,
    End,
    Fail,
    Fragment,
    Hang,
    Pause,
    Player,
    Reset,
    Say,
    Step,
    Think,
)
from server.llm.scripts import ErrorBody, Script, parse_script

DEMO: Final = "demo"
"""The built-in script's name."""

_BATCH: Final = 64
"""Events handed over at once when the script is not paced."""


def demo_script() -> Script:
    """The script for a server without a model; it says plainly what it is."""
    text = resources.files("server.llm").joinpath("demo.toml").read_text(encoding="utf-8")
    return parse_script(DEMO, tomllib.loads(text), "demo.toml")


class ScriptedModel:
    """Plays scripts by name. See :class:`server.llm.base.Model`."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self._player = Player(scripts)
        self.names = self._player.names()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Sequence[ModelEvent]]]:
        """Play the turn that the history asks for."""
        performance = self._player.perform(request.model, request.messages)
        async with aclosing(_events(performance.steps)) as events:
            yield events

    async def models(self) -> tuple[str, ...]:
        """Name the scripts."""
        return self.names

    async def aclose(self) -> None:
        """Nothing is held."""


async def _events(steps: Iterator[Step]) -> AsyncGenerator[Sequence[ModelEvent], None]:
    """Play the steps in time; what came before a failure is handed over before it is raised."""
    due = asyncio.get_running_loop().time()
    batch: list[ModelEvent] = []
    begun: set[int] = set()
    for step in steps:
        if isinstance(step, Say):
            batch.append(TextDelta(clean_text(step.text)))
        elif isinstance(step, Think):
            batch.append(ThinkingDelta(clean_text(step.text)))
        elif isinstance(step, Fragment):
            batch.append(_tool_call_delta(step, first=step.index not in begun))
            begun.add(step.index)
        elif isinstance(step, End) and step.usage is not None:
            batch.append(UsageReport(step.usage.input_tokens, step.usage.output_tokens))
        failure = _failure(step)
        if isinstance(step, End) and failure is None:
            batch.append(TurnFinished(step.reason))
        if batch and (len(batch) >= _BATCH or failure is not None or isinstance(step, Pause | Hang | End)):
            yield batch
            batch = []
            await asyncio.sleep(0)
        if failure is not None:
            raise failure
        if isinstance(step, Hang):
            await anyio.sleep_forever()
        elif isinstance(step, Pause):
            due += step.ms / 1000
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))


def _tool_call_delta(step: Fragment, *, first: bool) -> ToolCallDelta:
    if not first:
        return ToolCallDelta(step.index, None, None, step.arguments)
    return ToolCallDelta(step.index, step.id or f"call_{new_ulid()}", step.name, step.arguments)


def _failure(step: Step) -> ModelFault | None:
    match step:
        case Fail(error=error):
            return _scripted_fault(error)
        case Reset():
            return unavailable("the connection to the model was reset")
        case Bytes():
            return bad_response("`raw` actions are for the stub endpoint only")
        case End(reason="none"):
            return bad_response("the answer ended without a finish")
        case End(reason="content_filter"):
            return content_filtered()
        case _:
            return None


def _scripted_fault(error: ErrorBody) -> ModelFault:
    return upstream_fault(
        error.status,
        code=error.code or "",
        kind=error.type,
        message=error.message,
        retry_after_ms=error.retry_after_ms,
    )
