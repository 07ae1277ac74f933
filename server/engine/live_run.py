"""A run while it runs: what the actor and the completion's task share, and the gate between them.

The gate makes exactly one end of any race of finish, stop, error and crash (ST3): whoever closes it first
says how the
run ends, and from that turn on nothing more of the run reaches the outbox except what the actor sends after
its commit.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from protocol.codes import ErrorCode
from protocol.ids import new_message_id, utc_now
from protocol.server_frames import FinishReason
from server.engine.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Callable

    import anyio

    from protocol.server_frames import ServerFrame
    from storage.records import RequestKey


class Finished(Struct, frozen=True):
    """The model came to its end."""

    reason: FinishReason


class Failed(Struct, frozen=True):
    """The model failed, or the server did (ST6)."""

    code: ErrorCode
    message: str
    retry_after_ms: int | None = None
    details: dict[str, object] = {}


class Stopped(Struct, frozen=True):
    """A person stopped it, or a newer request took its place (ST3, ST5)."""

    stop_request_id: str
    key: RequestKey | None
    """The stop's own request, to be remembered with the run's end; ``None`` for ``on_busy`` ``interrupt``."""


class Interrupted(Struct, frozen=True):
    """The server goes away (CN10)."""


Outcome: TypeAlias = Finished | Failed | Stopped | Interrupted


class LiveRun:
    """One run from its start to the commit of its end.

    - Made and ended by the actor; :attr:`turn` is fed by the completion's task, in turns of the same loop.
    - ``emit`` appends a frame to the outbox in the same turn; :meth:`tell` is the only way to it and asks
      the gate.
    """

    __slots__ = (
        "_emit",
        "answered",
        "ended_at",
        "model",
        "outcome",
        "reasoning",
        "request_id",
        "run_id",
        "scope",
        "started",
        "started_at",
        "ttft_ms",
        "turn",
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
    ) -> None:
        self.request_id: Final = request_id
        self.run_id: Final = run_id
        self.model = model
        """The model's name as it is reported; known for certain once the provider was found."""
        self.reasoning: Final = reasoning
        self.started: Final = started
        """Loop time of the start, seconds."""
        self.started_at: Final[datetime] = utc_now()
        self.ended_at: datetime | None = None
        self.ttft_ms: int | None = None
        """From the start to the first text, thinking or tool call, milliseconds."""
        self.turn = Turn(request_id, run_id, new_message_id(), reasoning=reasoning)
        self.outcome: Outcome | None = None
        """How it ends, once the gate is closed."""
        self.scope: anyio.CancelScope | None = None
        """Ends the completion's task, and with it the upstream request."""
        self.answered = False
        """Whether any text was told; then the message is stored, however the run ends."""
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

    def close(self, outcome: Outcome) -> bool:
        """End the run in this turn: tell the sentence begun, close the gate, end the upstream request.

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
