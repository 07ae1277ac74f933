"""What a run leaves: its row, its step and its message for the store, and the frames that tell its end. Pure.

The same outcome makes both, so that wire, store and trace agree (ST3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

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
    from collections.abc import Callable

    from server.engine.live_run import LiveRun, Outcome
    from storage.records import RequestKey

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


def build_end(run: LiveRun, sequence: int, cost: Cost) -> RunEnd:
    """Make the rows of a run's end.

    Args:
        run: A run whose gate is closed.
        sequence: What the message will have, if there is one.
        cost: The price of a usage, USD.
    """
    outcome, turn = run.outcome, run.turn
    assert outcome is not None
    reason = finish_reason(outcome)
    ended_at = run.ended_at or utc_now()
    tokens = TokenUsage(input_tokens=turn.input_tokens, output_tokens=turn.output_tokens)
    usage = TokenUsage(
        input_tokens=tokens.input_tokens, output_tokens=tokens.output_tokens, estimated_cost=cost(tokens)
    )
    message = None
    if run.answered or isinstance(outcome, Finished):
        message = SessionMessage(
            message_id=turn.message_id,
            sequence=sequence,
            role=MessageRole.ASSISTANT,
            content=turn.text,
            metadata={} if isinstance(outcome, Finished) else {"finish_reason": reason.value},
            created_at=ended_at,
        )
    step = StepRecord(
        step_index=0,
        model=run.model,
        content=turn.text,
        thinking=turn.thinking,
        finish_reason=reason.value,
        input_tokens=tokens.input_tokens,
        output_tokens=tokens.output_tokens,
        ttft_ms=run.ttft_ms,
        started_at=run.started_at,
        ended_at=ended_at,
    )
    error = None
    if isinstance(outcome, Failed):
        error = RunError(code=outcome.code.value, message=outcome.message)
    return RunEnd(
        run_id=run.run_id,
        status=status_of(reason),
        finish_reason=reason.value,
        answer=turn.text,
        usage=usage,
        error=error,
        message=message,
        step=step,
        ended_at=ended_at,
    )


def stop_key(run: LiveRun, end: RunEnd) -> RequestKey | None:
    """The stop's own request with what is needed to answer a repeat of it; ``None`` when no stop frame ended
    the run."""
    outcome = run.outcome
    if not isinstance(outcome, Stopped) or outcome.key is None:
        return None
    facts = {
        "request_id": run.request_id,
        "message_id": end.message.message_id if end.message else None,
        "sequence": end.message.sequence if end.message else None,
    }
    return replace(outcome.key, outcome=facts)


def closing_frames(run: LiveRun, end: RunEnd) -> list[ServerFrame]:
    """The frames that tell a committed end, the last one being ``completion_done`` (ST1, ST3, ST6); total."""
    outcome = run.outcome
    assert outcome is not None
    frames: list[ServerFrame] = []
    message_id = end.message.message_id if end.message else None
    sequence = end.message.sequence if end.message else None
    match outcome:
        case Finished(reason=reason):
            assert end.message is not None
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
                    partial_text=end.answer,
                    stop_request_id=stop_request_id,
                )
            )
        case Interrupted():
            pass
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
