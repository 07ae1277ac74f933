"""What a running completion has its actor commit: turns, the starts and the ends of calls; in order, until
it is done.

The completion's task asks and waits; the actor commits and tells. While the store is away the request stays
at the
head and is tried again; it is dropped when the run is ended otherwise, for its end settles what was open.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from protocol.server_frames import AssistantMessageComplete, FinishReason
from server.engine.completion import Begun, CallOver, CallsOver, DecidedCalls, Execution, Progress, TurnOver
from server.engine.recorder import turn_message, turn_step
from server.tools.base import ToolContext
from server.tools.confirmation import Running, arguments_of, to_call, waits_for_person

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.actors.calls import Call, Calls
    from server.actors.host import Host
    from server.actors.ledger import Ledger
    from server.agents import Agent
    from server.engine.live_run import LiveRun
    from server.llm.base import ChatMessage
    from server.tools.base import Policy, Tool
    from storage.records import TurnWrite


class Asked(NamedTuple):
    """A request of the completion's task, with the future of its answer; a message of the actor's own."""

    progress: Progress
    answer: asyncio.Future[Any]


class ProgressDesk:
    """Carries out, one by one, what the running completion asks for."""

    def __init__(
        self,
        host: Host,
        ledger: Ledger,
        calls: Calls,
        agent: Callable[[], Agent],
        prompt: Callable[[], tuple[ChatMessage, ...]],
    ) -> None:
        self._host = host
        self._ledger = ledger
        self._calls = calls
        self._agent = agent
        self._prompt = prompt
        self._asked: deque[Asked] = deque()
        self._classified: tuple[str, list[Call]] = ("", [])
        """The calls of the turn whose commit was tried last, by its message: a second try is of the same."""

    async def ask(self, progress: Progress) -> Any:
        """For the completion's task: have something done and wait for the answer."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._host.post(Asked(progress, answer))
        return await answer

    def take(self, asked: Asked) -> None:
        """For the actor: a request came out of the mailbox."""
        self._asked.append(asked)

    async def work(self) -> None:
        """Do what was asked for.

        Raises:
            Fenced, StorageUnavailable: What was not done stays at the head.
        """
        while self._asked:
            progress, answer = self._asked[0]
            if progress.run.open and not answer.done():
                result = await self._do(progress)
                if not answer.done():
                    answer.set_result(result)
            self._asked.popleft()

    @property
    def idle(self) -> bool:
        """Whether nothing is asked for."""
        return not self._asked

    async def _do(self, progress: Progress) -> Any:
        match progress:
            case TurnOver(run=run):
                return await self._turn_over(run)
            case DecidedCalls(run=run):
                started = await self._calls.start(run.run_id, run.request_id)
                return Begun(self._executions(started), waits=bool(self._calls.waiting))
            case CallOver(run=run, tool_call_id=tool_call_id, event=event):
                await self._calls.finish(tool_call_id, event, run.run_id, run.request_id)
                return None
            case CallsOver(run=run):
                self._complete(run)
                return self._prompt()
            case _:
                assert_never(progress)

    async def _turn_over(self, run: LiveRun) -> Begun:
        """Commit the turn's message with its calls, then tell the calls (TL3)."""
        turn = run.turn
        if self._classified[0] != turn.message_id:
            classified = self._calls.classify(
                turn.calls.values(), self._tool_of, run.run_id, turn.message_id, run.turns
            )
            self._classified = (turn.message_id, classified)
        calls = self._classified[1]

        def build(sequence: int) -> TurnWrite:
            message = turn_message(run, sequence, [to_call(call.state) for call in calls])
            return self._calls.write(
                calls,
                sequence,
                before=(message,),
                run_id=run.run_id,
                steps=(turn_step(run, FinishReason.TOOL_CALLS.value),),
            )

        write = await self._ledger.commit(build)
        run.turn_sequence = write.messages[0].sequence
        self._calls.recent.clear()
        self._calls.moved(calls, write, run.request_id, of_turn=True)
        running = [call for call in calls if isinstance(call.state, Running)]
        return Begun(self._executions(running), waits=any(waits_for_person(call.state) for call in calls))

    def find_turn(self, run: LiveRun) -> None:
        """For a run that was ended while its turn's commit was in doubt: take over what was committed."""
        message = self._ledger.find(run.turn.message_id)
        if run.turn_sequence is None and message is not None and self._classified[0] == message.message_id:
            run.turn_sequence = message.sequence
            calls = self._classified[1]
            write = self._calls.write(calls, message.sequence, before=(message,))
            settled = [call for call in calls if call.settled]
            self._calls.moved(settled, write, run.request_id, of_turn=True)

    def _complete(self, run: LiveRun) -> None:
        """Tell that the turn is complete, its calls as they are now; nothing, when only decided calls ran."""
        if run.turn_sequence is None:
            return
        message = self._ledger.find(run.turn.message_id)
        self._host.emit(
            AssistantMessageComplete(
                request_id=run.request_id,
                run_id=run.run_id,
                message_id=run.turn.message_id,
                sequence=run.turn_sequence,
                content=run.turn.text if message is None else message.content,
                tool_calls=list(self._calls.recent.values()),
                finish_reason=FinishReason.TOOL_CALLS,
            )
        )

    def _tool_of(self, name: str) -> tuple[Tool, Policy] | None:
        """A tool that this conversation's agent may call, and what has to happen before it runs.

        One that is not offered for want of a canvas is still a tool: a person is asked, and it says why it
        fails.
        """
        tool = self._host.services.toolbox.get(name)
        agent = self._agent()
        if tool is None or not agent.allows(name):
            return None
        return tool, agent.policy(tool)

    def _executions(self, calls: Sequence[Call]) -> tuple[Execution, ...]:
        executions = []
        for call in calls:
            name = call.state.asked.name
            context = ToolContext(
                principal=self._ledger.owner,
                session_id=self._ledger.session_id,
                project_id=self._ledger.project_id,
                run_id=call.run_id,
                tool_call_id=call.id,
                store=self._host.services.store,
                canvas=self._host.canvas,
            )
            tool = self._host.services.toolbox.get(name)
            executions.append(Execution(name, tool, arguments_of(call.state), context))
        return tuple(executions)
