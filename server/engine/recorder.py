"""What a run leaves: its row, its steps and its messages for the store, and the frames that tell its end.
Pure.

The same outcome makes both, so that wire, store and trace agree (ST3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

from msgspec.structs import replace

from protocol.codes import ERRORS
from protocol.ids import utc_now
from protocol.run import RunError, status_of
from protocol.server_frames import (
    AssistantMessageComplete,
    CompletionDone,
    CompletionStopped,
    ErrorFrame,
    FinishReason,
    ServerFrame,
    Timing,
)
from protocol.session import MessageRole, SessionMessage, TokenUsage
from server.engine.live_run import Failed, Finished, Interrupted, Stopped
from storage.records import RunEnd, StepRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from protocol.tool_call import ToolCall
    from server.engine.live_run import LiveRun, Outcome
    from storage.records import RequestKey, ToolRecord

Cost: TypeAlias = "Callable[[TokenUsage], float]"


def finish_reason(outcome: Outcome) -> FinishReason:
    """How the end of a run is named on the wire; total."""
    match outcome:
        case Finished(reason=reason):
            return reason
        case Failed():
            return FinishReason.ERROR
        case Stopped():
            return FinishReason.STOPPED
        case Interrupted():
            return FinishReason.INTERRUPTED
        case _:
            assert_never(outcome)


def turn_message(run: LiveRun, sequence: int, calls: Sequence[ToolCall] = ()) -> SessionMessage:
    """The assistant's message of the run's present turn."""
    metadata = {}
    if run.outcome is not None and (reason := finish_reason(run.outcome)) is not FinishReason.STOP:
        metadata["finish_reason"] = reason.value  # not whole: a reader must be able to tell
    return SessionMessage(
        message_id=run.turn.message_id,
        sequence=sequence,
        role=MessageRole.ASSISTANT,
        content=run.turn.text,
        tool_calls=tuple(calls),
        metadata=metadata,
        created_at=run.ended_at or utc_now(),
    )


def turn_step(run: LiveRun, reason: str) -> StepRecord:
    """The trace of the run's present turn (RU2)."""
    turn = run.turn
    return StepRecord(
        step_index=run.turns,
        model=run.model,
        content=turn.text,
        thinking=turn.thinking,
        finish_reason=reason,
        input_tokens=turn.input_tokens,
        output_tokens=turn.output_tokens,
        ttft_ms=run.ttft_ms if run.turns == 0 else None,
        started_at=run.turn_started_at,
        ended_at=run.ended_at or utc_now(),
    )


def build_end(
    run: LiveRun,
    sequence: int,
    cost: Cost,
    cancelled: Sequence[ToolRecord] = (),
    results: Sequence[SessionMessage] = (),
) -> RunEnd:
    """Make the rows of a run's end.

    Args:
        run: A run whose gate is closed.
        sequence: What its first message will have.
        cost: The price of a usage, USD.
        cancelled: Calls of the run that were open, as they are settled with it.
        results: Their tool messages, without regard to their sequence.
    """
    outcome, turn = run.outcome, run.turn
    assert outcome is not None
    reason = finish_reason(outcome)
    tokens = TokenUsage(
        input_tokens=run.input_tokens + turn.input_tokens,
        output_tokens=run.output_tokens + turn.output_tokens,
    )
    usage = replace(tokens, estimated_cost=cost(tokens))
    message = step = None
    waits = reason is FinishReason.TOOL_CALLS
    if run.turn_sequence is None and not run.unstorable and not waits:
        step = turn_step(run, reason.value)
        if turn.text or isinstance(outcome, Finished):
            message = turn_message(run, sequence)
    following = sequence + (message is not None)
    error = None
    if isinstance(outcome, Failed):
        error = RunError(code=outcome.code.value, message=outcome.message)
    return RunEnd(
        run_id=run.run_id,
        status=status_of(reason),
        finish_reason=reason.value,
        answer="" if run.unstorable else turn.text,
        usage=usage,
        error=error,
        message=message,
        step=step,
        ended_at=run.ended_at or utc_now(),
        messages=tuple(replace(result, sequence=following + at) for at, result in enumerate(results)),
        tools=tuple(cancelled),
    )


def stop_keys(run: LiveRun, end: RunEnd) -> list[RequestKey]:
    """What is to be remembered with a run's end: the stop that ended it, and the queued ones that it ended
    too.

    Each has what is needed to answer a repeat of it.
    """
    outcome = run.outcome
    if not isinstance(outcome, Stopped) or outcome.key is None:
        return []
    message_id, sequence = stopped_message(run, end)
    facts = {"request_id": run.request_id, "message_id": message_id, "sequence": sequence}
    stop = replace(outcome.key, outcome=facts)
    return [stop, *(replace(key, outcome={"stop_request_id": stop.request_id}) for key in outcome.queued)]


def stopped_message(run: LiveRun, end: RunEnd) -> tuple[str | None, int | None]:
    """Id and sequence of the message that a stopped or failed run was saying; of none, if nothing was
    stored."""
    if end.message is not None:
        return end.message.message_id, end.message.sequence
    if run.turn_sequence is not None:
        return run.turn.message_id, run.turn_sequence
    return None, None


def closing_frames(run: LiveRun, end: RunEnd) -> list[ServerFrame]:
    """The frames that tell a committed end, the last one being ``completion_done`` (ST1, ST3, ST6); total."""
    outcome = run.outcome
    assert outcome is not None
    frames: list[ServerFrame] = []
    message_id, sequence = stopped_message(run, end)
    match outcome:
        case Finished(reason=reason):
            if end.message is not None:
                frames.append(
                    AssistantMessageComplete(
                        request_id=run.request_id,
                        run_id=run.run_id,
                        message_id=end.message.message_id,
                        sequence=end.message.sequence,
                        content=end.message.content,
                        finish_reason=reason,
                    )
                )
        case Failed(code=code):
            frames.append(
                ErrorFrame(
                    request_id=run.request_id,
                    run_id=run.run_id,
                    code=code,
                    message=outcome.message,
                    retryable=ERRORS[code].retryable,
                    retry_after_ms=outcome.retry_after_ms,
                    details={**outcome.details, "message_id": message_id, "sequence": sequence},
                )
            )
        case Stopped(stop_request_id=stop_request_id):
            frames.append(
                CompletionStopped(
                    request_id=run.request_id,
                    run_id=run.run_id,
                    message_id=message_id,
                    sequence=sequence,
                    partial_text=end.answer if message_id is not None else "",
                    stop_request_id=stop_request_id,
                )
            )
        case Interrupted():
            pass
        case _:
            assert_never(outcome)
    frames.append(
        CompletionDone(
            request_id=run.request_id,
            run_id=run.run_id,
            finish_reason=finish_reason(outcome),
            usage=end.usage,
            timing=Timing(
                ttft_ms=run.ttft_ms,
                total_ms=max(0, round((end.ended_at - run.started_at).total_seconds() * 1000)),
            ),
        )
    )
    return frames
