"""A run while it runs: what the actor and the completion's task share, and the gate between them.

The gate makes exactly one end of any race of finish, stop, error and crash (ST3): whoever closes it first
says how
the run ends, and from that turn on nothing more of the run reaches the outbox except what the actor sends
after its
commit.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from protocol.codes import ErrorCode
from protocol.ids import new_message_id, utc_now
from protocol.server_frames import FinishReason
from server.engine.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    import anyio

    from protocol.server_frames import ServerFrame
    from storage.records import RequestKey


class Finished(Struct, frozen=True):
    """The model came to its end, or the run waits for a person."""

    reason: FinishReason


class Failed(Struct, frozen=True):
    """The model failed, or the server did (ST6)."""

    code: ErrorCode
    message: str
    retry_after_ms: int | None = None
    details: dict[str, Any] = {}


class Stopped(Struct, frozen=True):
    """A person stopped it, or a newer request took its place (ST3, ST5)."""

    stop_request_id: str
    key: RequestKey | None
    """The stop's own request, to be remembered with the run's end; ``None`` for ``on_busy`` ``interrupt``."""
    queued: tuple[RequestKey, ...] = ()
    """The queued completions that the same stop ended (``scope`` ``all``)."""


class Interrupted(Struct, frozen=True):
    """The server goes away (CN10)."""


Outcome: TypeAlias = Finished | Failed | Stopped | Interrupted


class LiveRun:
    """One run from its start to the commit of its end.

    - Made and ended by the actor. :attr:`turn` is fed by the completion's task as long as the gate is open,
      in
      turns of the same loop; from the close on nothing of the run changes.
    - ``emit`` appends a frame to the outbox in the same turn; :meth:`tell` is the only way to it and asks
      the gate.
    - ``taken_ids`` are those of the conversation's tool calls, at any time.
    """

    __slots__ = (
        "_emit",
        "_taken_ids",
        "continues_run_id",
        "ended_at",
        "input_tokens",
        "model",
        "outcome",
        "output_tokens",
        "reasoning",
        "request_id",
        "run_id",
        "scope",
        "started",
        "started_at",
        "ttft_ms",
        "turn",
        "turn_sequence",
        "turn_started_at",
        "turns",
        "unstorable",
    )

    def __init__(
        self,
        request_id: str,
        run_id: str,
        model: str,
        *,
        reasoning: bool,
        started: float,
        emit: Callable[[ServerFrame], None],
        continues_run_id: str | None = None,
        taken_ids: Container[str] = (),
    ) -> None:
        self.request_id: Final = request_id
        self.run_id: Final = run_id
        self.model = model
        """The model's name as it is reported; known for certain once the provider was found."""
        self.reasoning: Final = reasoning
        self.continues_run_id: Final = continues_run_id
        self.started: Final = started
        """Loop time of the start, seconds."""
        self.started_at: Final[datetime] = utc_now()
        self.ended_at: datetime | None = None
        self.ttft_ms: int | None = None
        """From the start to the first frame of an answer, milliseconds."""
        self.turns = 0
        """Model turns before this one: the ``step_index`` of this one."""
        self._taken_ids: Final = taken_ids
        self.turn = Turn(request_id, run_id, new_message_id(), reasoning=reasoning, taken_ids=taken_ids)
        """What the model says now."""
        self.turn_started_at = self.started_at
        self.turn_sequence: int | None = None
        """The sequence of this turn's message once that is committed, as it is before the turn's calls
        run."""
        self.input_tokens = 0
        """Tokens of the turns before this one."""
        self.output_tokens = 0
        self.unstorable = False
        """Whether the store refused what the run said; its end is then written without it."""
        self.outcome: Outcome | None = None
        """How it ends, once the gate is closed."""
        self.scope: anyio.CancelScope | None = None
        """Ends the completion's task, and with it the upstream request."""
        self._emit = emit

    @property
    def open(self) -> bool:
        """Whether the gate is open: nobody has ended the run yet."""
        return self.outcome is None

    def tell(self, frames: list[ServerFrame]) -> None:
        """Put frames into the outbox, unless the gate is closed."""
        if self.outcome is None:
            emit = self._emit
            for frame in frames:
                emit(frame)

    def next_turn(self) -> None:
        """The model is called again within the same run."""
        self.input_tokens += self.turn.input_tokens
        self.output_tokens += self.turn.output_tokens
        self.turns += 1
        self.turn = Turn(
            self.request_id,
            self.run_id,
            new_message_id(),
            reasoning=self.reasoning,
            taken_ids=self._taken_ids,
        )
        self.turn_started_at = utc_now()
        self.turn_sequence = None

    def close(self, outcome: Outcome) -> bool:
        """End the run in this turn of the loop: tell the sentence begun, close the gate, end the upstream
        request.

        Returns:
            Whether this was the first end; a later one changes nothing.
        """
        if self.outcome is not None:
            return False
        self.tell(self.turn.finish_text())
        self.outcome = outcome
        self.ended_at = utc_now()
        if self.scope is not None:
            self.scope.cancel()
        return True
