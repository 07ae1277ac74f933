"""The open tool calls of a conversation: what becomes of each, committed and then told (TL1 to TL8).

The decisions are :mod:`server.tools.confirmation`'s, which is pure; this is their memory and their writes. A
call is
open until it is settled: it waits for a person, or was accepted and has not run, or runs.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import asdict, replace

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import new_message_id, utc_now
from protocol.server_frames import ServerFrame, ToolCallFrame, ToolCallView, ToolConfirmationProcessed
from protocol.session import MessageRole, SessionMessage
from protocol.tool_call import ConfirmationState, Decision, ExecutionState, ToolCall
from server.tools.base import Policy, ToolFault
from server.tools.confirmation import (
    Accepted,
    Asked,
    AwaitingInput,
    Cancel,
    Decided,
    Expire,
    Fail,
    Finish,
    Lose,
    Moved,
    Pending,
    Ready,
    Refused,
    Reject,
    Rejected,
    Repeated,
    Running,
    Settled,
    Start,
    decided_of,
    execution_of,
    settle,
    text_for_model,
    to_call,
    waits_for_person,
)
from storage.records import ToolRecord, TurnWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from server.actors.ledger import Ledger
    from server.engine.turn import OpenCall
    from server.tools.base import Tool
    from server.tools.confirmation import Accept, Answer, Event, State
    from server.tools.registry import Toolbox
    from storage.records import RequestKey


class Call(NamedTuple):
    """One open call and where it comes from."""

    state: State
    run_id: str
    """The run that asked for it."""
    message_id: str
    """The assistant's message that has it."""
    step_index: int
    created_at: datetime
    result_id: str
    """The id that its tool message will have."""

    @property
    def id(self) -> str:
        """The ``tool_call_id``."""
        return self.state.asked.tool_call_id

    @property
    def settled(self) -> bool:
        """Whether nothing can change any more."""
        return isinstance(self.state, Settled | Rejected)


class Calls:
    """The open calls of one conversation, in the order in which they were made.

    - ``open`` changes only in the actor's task, in the turn that follows a commit.
    - Every write goes through the ledger, with the tool message of each call that it settles; so no history
      ever
      has a call without its result, except those that are open here.
    """

    def __init__(self, ledger: Ledger, emit: Callable[[ServerFrame], None], toolbox: Toolbox) -> None:
        self._ledger = ledger
        self._emit = emit
        self._toolbox = toolbox
        self.open: dict[str, Call] = {}
        self.ids: set[str] = set()
        """The ids that calls of this conversation have had; all of them after :meth:`know_ids`."""
        self._all_ids = False
        self.recent: dict[str, ToolCallView] = {}
        """The calls of the turn that came last, as they were told last; for
        ``assistant_message_complete``."""
        self.adopt()

    def adopt(self) -> None:
        """Take over what the store says, when the session was read; calls that run here stay as they are."""
        running = {id_: call for id_, call in self.open.items() if isinstance(call.state, Running)}
        self.open = {record.tool_call_id: _from_record(record) for record in self._ledger.tools}
        self.open.update(running)
        self.ids |= self.open.keys()
        self.ids.update(call.tool_call_id for message in self._ledger.messages for call in message.tool_calls)

    async def know_ids(self) -> None:
        """Find out about the calls of messages that are not in memory. Raises StorageUnavailable."""
        if not self._all_ids:
            if not self._ledger.whole:
                self.ids |= await self._ledger.tool_ids()
            self._all_ids = True

    @property
    def waiting(self) -> list[Call]:
        """Those that wait for a person."""
        return [call for call in self.open.values() if waits_for_person(call.state)]

    @property
    def accepted(self) -> list[Call]:
        """Those that a person accepted and that have not begun."""
        return [call for call in self.open.values() if isinstance(call.state, Accepted)]

    @property
    def running(self) -> list[Call]:
        """Those that run."""
        return [call for call in self.open.values() if isinstance(call.state, Running)]

    def undecided(self, tool_call_id: str) -> bool:
        """Whether a call waits for a person."""
        call = self.open.get(tool_call_id)
        return call is not None and waits_for_person(call.state)

    def of_run(self, run_id: str) -> list[Call]:
        """The open calls that a run asked for or carries out."""
        return [
            call for call in self.open.values() if call.run_id == run_id or isinstance(call.state, Running)
        ]

    def views(self, run_id: str | None = None) -> list[ToolCallView]:
        """Open calls as a snapshot shows them: those that wait, or all of a run."""
        calls = self.waiting + self.accepted if run_id is None else self.of_run(run_id)
        return [view_of(to_call(call.state), call.run_id, call.message_id) for call in calls]

    # What the model asks for.

    def classify(
        self,
        asked: Iterable[OpenCall],
        tool_of: Callable[[str], tuple[Tool, Policy] | None],
        run_id: str,
        message_id: str,
        step_index: int,
    ) -> list[Call]:
        """Decide what is to be done with each call of a turn, before anybody is asked or anything runs (TL1,
        TL3)."""
        now, asked = utc_now(), list(asked)
        self.ids.update(one.tool_call_id for one in asked)
        return [
            Call(
                _first_state(one, tool_of(one.name), now),
                run_id,
                message_id,
                step_index,
                now,
                new_message_id(),
            )
            for one in asked
        ]

    def write(self, calls: Sequence[Call], sequence: int, **fields: Any) -> TurnWrite:
        """What the store gets of changed calls: their rows, and a tool message for each that is settled.

        Args:
            sequence: Of the first tool message.
            fields: Further fields of the :class:`~storage.records.TurnWrite`.
        """
        before: tuple[SessionMessage, ...] = fields.pop("before", ())
        settled = [call for call in calls if call.settled]
        messages = [_result(call, sequence + len(before) + at) for at, call in enumerate(settled)]
        ids = {message.tool_call_id: message.message_id for message in messages}
        return TurnWrite(
            messages=(*before, *messages),
            tools=tuple(_to_record(call, ids.get(call.id)) for call in calls),
            **fields,
        )

    def moved(
        self,
        calls: Sequence[Call],
        write: TurnWrite,
        request_id: str | None = None,
        *,
        of_turn: bool = False,
    ) -> None:
        """Take committed changes over and tell them.

        Args:
            request_id: The request that they answer: of the completion that runs, or of the decision.
            of_turn: Whether these are the calls of a turn that has just ended.
        """
        sequences = {
            message.tool_call_id: message.sequence
            for message in write.messages
            if message.role is MessageRole.TOOL
        }
        for call in calls:
            if call.settled:
                self.open.pop(call.id, None)
            else:
                self.open[call.id] = call
            view = view_of(to_call(call.state), call.run_id, call.message_id, sequences.get(call.id))
            if of_turn or call.id in self.recent:
                self.recent[call.id] = view
            self._ledger.show_call(call.message_id, to_call(call.state))
            self._emit(_frame(view, request_id))

    # What people say.

    async def decide(
        self, tool_call_id: str, event: Accept | Reject, key: RequestKey
    ) -> ToolConfirmationProcessed:
        """Record a decision; a repeat of it is answered the same (TL5).

        Returns:
            What the outbox told, or with ``repeated`` the unsequenced answer to a repeat.

        Raises:
            Fault: ``unknown_tool_call``, ``decision_conflict``, ``invalid_message``.
            DuplicateRequest, Fenced, StorageUnavailable.
        """
        call = self.open.get(tool_call_id)
        if call is None:
            call = await self._closed(tool_call_id)
        match settle(call.state, event):
            case Moved(state=state):
                return await self._decided(call._replace(state=state), key)
            case Repeated(state=state, decided=decided):
                answer = _processed(call._replace(state=state), decided, key.request_id)
                answer.repeated = True
                return answer
            case Refused() as refused:
                raise refused.fault()
            case _:
                raise _unknown()

    async def answer(
        self,
        tool_call_id: str,
        event: Answer,
        draft: Callable[[int], SessionMessage],
        key: RequestKey,
        *,
        origin: str,
    ) -> TurnWrite:
        """Settle a question with a person's answer, which is the call's tool message (TL7).

        Raises:
            Fault: ``unknown_tool_call``, ``invalid_message``.
            DuplicateRequest, Fenced, StorageUnavailable.
        """
        call = self.open.get(tool_call_id)
        if call is None:
            raise _unknown()
        match settle(call.state, event):
            case Moved(state=state):
                tool = self._toolbox.get(call.state.asked.name)
                if tool is not None:
                    tool.check_answer(call.state.asked.arguments, event.content)
            case Refused() as refused:
                raise refused.fault()
            case _:
                raise _unknown()
        settled = call._replace(state=state)

        def build(sequence: int) -> TurnWrite:
            message = draft(sequence)
            return TurnWrite(
                messages=(message,),
                tools=(_to_record(settled, message.message_id),),
                requests=(key,),
                origin=origin,
            )

        write = await self._ledger.commit(build)
        self.moved([settled], write, key.request_id)
        return write

    async def decline(self, by: str, reason: str, requests: tuple[RequestKey, ...] = ()) -> None:
        """Reject or cancel whatever is undecided, so that the conversation can go on (TL5)."""
        now = utc_now()
        moved: list[Call] = []
        for call in self.waiting:
            event: Event = Reject(by, now, reason) if isinstance(call.state, Pending) else Cancel(reason)
            outcome = settle(call.state, event)
            assert isinstance(outcome, Moved)
            moved.append(call._replace(state=outcome.state))
        if moved:
            await self._commit(moved, requests)

    def cancelled_questions(self) -> list[Call]:
        """The questions that a plain message cancels, as they are then (TL7)."""
        cancelled = []
        for call in self.open.values():
            if isinstance(call.state, AwaitingInput):
                outcome = settle(
                    call.state, Cancel("cancelled: the user wrote something else instead of answering")
                )
                assert isinstance(outcome, Moved)
                cancelled.append(call._replace(state=outcome.state))
        return cancelled

    # What running them brings.

    async def start(self, run_id: str, request_id: str) -> list[Call]:
        """Commit that the accepted calls run, before they do (TL5, ST7).

        Returns:
            All that run now: also those of an earlier attempt of unknown outcome that was committed.
        """
        now = utc_now()
        started = self._settled(self.accepted, Start(now))
        if started:
            write = await self._ledger.commit(lambda sequence: self.write(started, sequence, run_id=run_id))
            self.moved(started, write, request_id)
        return self.running

    async def finish(self, tool_call_id: str, event: Finish | Fail, run_id: str, request_id: str) -> None:
        """Commit what came of a call, with its tool message; late ones of settled calls do nothing."""
        call = self.open.get(tool_call_id)
        if call is None:
            return
        outcome = settle(call.state, event)
        if isinstance(outcome, Moved):
            moved = [call._replace(state=outcome.state)]
            write = await self._ledger.commit(lambda sequence: self.write(moved, sequence, run_id=run_id))
            self.moved(moved, write, request_id)

    def cancelled(self, run_id: str, why: str, *, accepted: bool) -> list[Call]:
        """The open calls of a run as its early end settles them (ST3); with ``accepted`` also those that it
        was about to carry out."""
        calls = {call.id: call for call in self.of_run(run_id)}
        if accepted:
            calls |= {call.id: call for call in self.accepted}
        return self._settled(calls.values(), Cancel(why))

    def lost(self) -> list[Call]:
        """The calls that run, as the server's end settles them; what waits for a person goes on waiting
        (TL4, ST7)."""
        return self._settled(self.running, Lose())

    # What time brings.

    def expiry(self) -> datetime | None:
        """When the next call expires, if any does."""
        times = [getattr(call.state, "expires_at", None) for call in self._timed()]
        return min((at for at in times if at is not None), default=None)

    async def expire(self, now: datetime) -> None:
        """Settle the calls whose tools set them a time that is over, and tell that."""
        expired = self._settled(self._timed(), Expire(now))
        if expired:
            await self._commit(expired, ())

    def _timed(self) -> list[Call]:
        """The calls that wait for a person and do so for a while only."""
        timed = []
        for call in self.waiting:
            tool = self._toolbox.get(call.state.asked.name)
            if tool is not None and tool.expires_s is not None:
                assert isinstance(call.state, Pending | AwaitingInput)
                expires_at = call.created_at + timedelta(seconds=tool.expires_s)
                timed.append(call._replace(state=replace(call.state, expires_at=expires_at)))
        return timed

    @staticmethod
    def _settled(calls: Iterable[Call], event: Event) -> list[Call]:
        """Calls as an event makes them; those that it does not concern are left out."""
        moved = []
        for call in calls:
            outcome = settle(call.state, event)
            if isinstance(outcome, Moved):
                moved.append(call._replace(state=outcome.state))
        return moved

    async def _decided(self, call: Call, key: RequestKey) -> ToolConfirmationProcessed:
        decided = decided_of(call.state)
        assert decided is not None
        processed = _processed(call, decided, key.request_id)
        facts = {
            "tool_call_id": call.id,
            "decision": processed.decision,
            "confirmation_state": processed.confirmation_state,
            "arguments_sha256": processed.arguments_sha256,
        }
        remembered = replace(key, outcome=facts)
        write = await self._ledger.commit(
            lambda sequence: self.write([call], sequence, requests=(remembered,))
        )
        self._emit(processed)
        self.moved([call], write, key.request_id)
        return processed

    async def _commit(self, calls: Sequence[Call], requests: tuple[RequestKey, ...]) -> None:
        write = await self._ledger.commit(lambda sequence: self.write(calls, sequence, requests=requests))
        self.moved(calls, write)

    async def _closed(self, tool_call_id: str) -> Call:
        """A call that is not open any more, for the answer to a late decision."""
        record = await self._ledger.find_tool(tool_call_id)
        if record is None:
            raise _unknown()
        return _from_record(record)


def _first_state(asked: OpenCall, found: tuple[Tool, Policy] | None, now: datetime) -> State:
    arguments = asked.arguments if asked.arguments.strip() else "{}"
    shown = Asked(asked.tool_call_id, asked.name, arguments)
    if found is None:
        return _failed(shown, f"there is no tool named {asked.name}")
    tool, policy = found
    try:
        tool.check(arguments)
    except ToolFault as fault:
        return _failed(shown, fault.message)
    match policy:
        case Policy.IMMEDIATE:
            return Running(shown, arguments, None, now)
        case Policy.CONFIRM:
            return Pending(shown)
        case Policy.ASK_USER:
            return AwaitingInput(shown)


def _failed(asked: Asked, message: str) -> State:
    outcome = settle(Ready(asked), Fail(ErrorCode.TOOL_FAILED, message))
    assert isinstance(outcome, Moved)
    return outcome.state


def _unknown() -> Fault:
    return Fault(ErrorCode.UNKNOWN_TOOL_CALL, "no tool call of this id waits for that")


def _result(call: Call, sequence: int) -> SessionMessage:
    assert isinstance(call.state, Settled | Rejected)
    return SessionMessage(
        message_id=call.result_id,
        sequence=sequence,
        role=MessageRole.TOOL,
        content=text_for_model(call.state),
        tool_call_id=call.id,
        metadata={"execution_state": execution_of(call.state).value},
        created_at=utc_now(),
    )


def _processed(call: Call, decided: Decided, request_id: str) -> ToolConfirmationProcessed:
    shown = to_call(call.state)
    return ToolConfirmationProcessed(
        request_id=request_id,
        tool_call_id=call.id,
        decision=decided.decision,
        confirmation_state=(
            ConfirmationState.ACCEPTED if decided.decision is Decision.ACCEPT else ConfirmationState.REJECTED
        ),
        arguments_sha256=decided.arguments_sha256
        if decided.decision is Decision.ACCEPT
        else shown.arguments_sha256,
    )


def view_of(call: ToolCall, run_id: str, message_id: str, sequence: int | None = None) -> ToolCallView:
    """A call with all fields of a ``tool_call`` frame."""
    return ToolCallView(
        run_id=run_id,
        message_id=message_id,
        tool_call_id=call.tool_call_id,
        name=call.name,
        arguments=call.arguments,
        arguments_sha256=call.arguments_sha256,
        confirmation_state=call.confirmation_state,
        execution_state=call.execution_state,
        result=call.result,
        error=call.error,
        sequence=sequence,
    )


def _frame(view: ToolCallView, request_id: str | None) -> ToolCallFrame:
    return ToolCallFrame(request_id=UNSET if request_id is None else request_id, **asdict(view))


def _to_record(call: Call, message_id: str | None) -> ToolRecord:
    shown, decided, state = to_call(call.state), decided_of(call.state), call.state
    return ToolRecord(
        tool_call_id=call.id,
        name=shown.name,
        arguments=shown.arguments,
        arguments_sha256=shown.arguments_sha256,
        confirmation_state=shown.confirmation_state,
        execution_state=shown.execution_state,
        run_id=call.run_id,
        step_index=call.step_index,
        assistant_message_id=call.message_id,
        message_id=message_id,
        result=shown.result,
        error_code=None if shown.error is None else shown.error.code,
        error_message=None if shown.error is None else shown.error.message,
        decision=None if decided is None else decided.decision.value,
        decided_by=None if decided is None else decided.by,
        decision_reason=None if decided is None else decided.reason,
        decided_at=None if decided is None else decided.at,
        started_at=state.started_at if isinstance(state, Running) else None,
        ended_at=utc_now() if call.settled else None,
        created_at=call.created_at,
    )


def _from_record(record: ToolRecord) -> Call:
    """An open call, or a settled one, as the store has it."""
    asked = Asked(record.tool_call_id, record.name, record.arguments)
    decided = None
    if record.decision is not None:
        decided = Decided(
            Decision(record.decision),
            record.decided_by or "",
            record.decided_at or record.created_at,
            record.arguments,
            record.decision_reason,
        )
    return Call(
        _state_of(record, asked, decided),
        record.run_id or "",
        record.assistant_message_id or "",
        record.step_index or 0,
        record.created_at,
        record.message_id or new_message_id(),
    )


def _state_of(record: ToolRecord, asked: Asked, decided: Decided | None) -> State:
    if record.execution_state.settled:
        return Settled(
            asked, record.arguments, record.confirmation_state, record.execution_state, decided, record.result
        )
    if record.execution_state is ExecutionState.RUNNING:
        return Running(asked, record.arguments, decided, record.started_at or record.created_at)
    match record.confirmation_state:
        case ConfirmationState.ACCEPTED if decided is not None:
            return Accepted(asked, decided)
        case ConfirmationState.AWAITING_INPUT:
            return AwaitingInput(asked)
        case ConfirmationState.NOT_REQUIRED:
            return Ready(asked)
        case _:
            return Pending(asked)
