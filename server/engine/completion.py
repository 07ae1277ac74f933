"""A completion's task: model call after model call, the tools between them, and how it ends.

Chunks take the short way: fed, told and in the outbox in the same turn of the loop. What changes state is the
actor's: this task asks it by ``ask`` and waits for its commit. It never writes to the store and never sends
what
confirms or ends something (ER5).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import anyio
import structlog
from msgspec import Struct

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import new_ulid
from protocol.server_frames import FinishReason
from server.engine.live_run import Failed, Finished
from server.engine.model_call import ModelCall
from server.llm.base import ModelRequest
from server.tools.base import ToolFault
from server.tools.confirmation import Fail, Finish

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from server.engine.live_run import LiveRun, Outcome
    from server.engine.model_call import TimeLimits
    from server.llm.base import ChatMessage, ToolDefinition
    from server.llm.catalog import Catalog
    from server.tools.base import Tool, ToolContext
    from server.tools.registry import Toolbox

log = structlog.get_logger(__name__)


class DecidedCalls(NamedTuple):
    """Asks the actor to begin the calls that a person accepted; answered with :class:`Begun`."""

    run: LiveRun


class TurnOver(NamedTuple):
    """Asks the actor to commit the turn's message and calls; answered with :class:`Begun`."""

    run: LiveRun


class CallOver(NamedTuple):
    """Asks the actor to commit what came of a call; answered with ``None``."""

    run: LiveRun
    tool_call_id: str
    event: Finish | Fail


class CallsOver(NamedTuple):
    """Asks the actor to tell that the turn is complete; answered with the next prompt."""

    run: LiveRun


Progress: TypeAlias = DecidedCalls | TurnOver | CallOver | CallsOver


class Execution(NamedTuple):
    """One call to be carried out; ``tool`` is ``None`` when it is away, as one of an MCP server may be."""

    name: str
    tool: Tool | None
    arguments: str
    context: ToolContext


class Begun(NamedTuple):
    """What the actor says of calls that it has committed."""

    executions: tuple[Execution, ...]
    waits: bool
    """Whether a call waits for a person; then the completion ends with ``tool_calls`` (TL4)."""


class Plan(Struct, frozen=True):
    """What a completion is to do."""

    model: str | None
    """As the client or the agent named it; ``None`` is the default."""
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolDefinition, ...]
    decided_calls: bool
    """Whether there are accepted calls to carry out first (TL5)."""
    call_model: bool
    """False with ``on_pending`` ``run_decided``: the decided calls run, and that is all."""
    max_turns: int
    max_characters: int
    limits: TimeLimits
    checkpoint_s: float


class Completion:
    """Runs one completion to its end.

    Args:
        run: The run; its gate may be closed by the actor at any moment, which also cancels this task.
        ask: Has the actor do something and waits for its answer.
        checkpoint: Told the run when its text should be written down; called at most once per
        ``checkpoint_s``.
        over: Told the run once, when this task has closed its gate.
    """

    def __init__(
        self,
        run: LiveRun,
        plan: Plan,
        *,
        catalog: Catalog,
        toolbox: Toolbox,
        ask: Callable[[Progress], Awaitable[Any]],
        checkpoint: Callable[[LiveRun], None],
        over: Callable[[LiveRun], None],
    ) -> None:
        self._run: Final = run
        self._plan: Final = plan
        self._catalog: Final = catalog
        self._toolbox: Final = toolbox
        self._ask: Final = ask
        self._checkpoint: Final = checkpoint
        self._over: Final = over
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Stream the answer; whatever happens, the run's gate is closed and its actor told."""
        run = self._run
        if not run.open:
            return
        timer = self._loop.call_later(self._plan.checkpoint_s, self._write_down)
        self._timer = timer
        try:
            with anyio.CancelScope() as scope:
                run.scope = scope
                outcome = await self._attempt()
                run.scope = None
                if run.close(outcome):
                    self._over(run)
        finally:
            self._timer.cancel()

    async def _attempt(self) -> Outcome:
        try:
            return await self._turns()
        except Fault as fault:
            return Failed(fault.code, fault.message, fault.retry_after_ms, fault.details)
        except Exception:
            correlation_id = new_ulid()
            log.exception("completion failed", run_id=self._run.run_id, correlation_id=correlation_id)
            return Failed(ErrorCode.INTERNAL, "internal error", None, {"correlation_id": correlation_id})

    async def _turns(self) -> Outcome:
        run, plan = self._run, self._plan
        messages = plan.messages
        if plan.decided_calls:
            begun: Begun = await self._ask(DecidedCalls(run))
            await self._carry_out(begun.executions)
            messages = await self._ask(CallsOver(run))
        if not plan.call_model:
            return Finished(FinishReason.TOOL_CALLS)
        model, run.model = self._catalog.resolve(plan.model)
        while True:
            call = ModelCall(run, plan.limits, plan.max_characters)
            outcome = await call.stream(
                model, ModelRequest(run.model, messages, plan.tools, reasoning=run.reasoning)
            )
            if outcome is not None:
                return outcome
            run.tell([*run.turn.finish_text(), *run.turn.finish_calls()])
            begun = await self._ask(TurnOver(run))
            await self._carry_out(begun.executions)
            messages = await self._ask(CallsOver(run))
            if begun.waits:
                return Finished(FinishReason.TOOL_CALLS)
            if run.turns + 1 >= plan.max_turns:
                return Finished(FinishReason.LENGTH)
            run.next_turn()

    async def _carry_out(self, executions: Sequence[Execution]) -> None:
        """Run calls in parallel; each result is committed as soon as it is there."""
        if not executions:
            return
        async with anyio.create_task_group() as group:
            for execution in executions:
                group.start_soon(self._execute, execution, name=f"tool {execution.name}")

    async def _execute(self, execution: Execution) -> None:
        event: Finish | Fail
        if not self._run.open:
            return
        try:
            if execution.tool is None:
                raise ToolFault(f"{execution.name} is not available now")
            result = await self._toolbox.execute(execution.tool, execution.arguments, execution.context)
            event = Finish(result.content)
        except ToolFault as fault:
            event = Fail(fault.code, fault.message)
        await self._ask(CallOver(self._run, execution.context.tool_call_id, event))

    def _write_down(self) -> None:
        """Have the text so far written down, while the run is open and its turn is not committed."""
        run = self._run
        if run.open:
            if run.turn_sequence is None and run.turn.characters:
                self._checkpoint(run)
            self._timer = self._loop.call_later(self._plan.checkpoint_s, self._write_down)
