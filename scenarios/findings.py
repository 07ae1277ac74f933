"""What steps share: time-outs, and failing with a diff and what came last."""

from __future__ import annotations

from typing import Any

import anyio

from scenarios import format as fmt
from scenarios.client import Client, Received
from scenarios.matchers import Mismatch, compare, show
from scenarios.values import take
from scenarios.wire import Closed
from scenarios.world import StepFailed, World


class Deadline:
    """Bound a step; when the time is over it fails with what did not happen and what came last."""

    def __init__(
        self, world: World, timeout_ms: fmt.Number, missing: Any, client: Client | None = None
    ) -> None:
        self._ms = world.variables.number(timeout_ms)
        self._scope = anyio.CancelScope(deadline=anyio.current_time() + world.seconds(self._ms))
        self._missing = missing
        self._client = client

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(self, *exc: Any) -> bool | None:
        suppressed = self._scope.__exit__(*exc)
        if self._scope.cancelled_caught:
            missing = self._missing() if callable(self._missing) else self._missing
            raise StepFailed("\n".join([f"{missing} within {self._ms} ms", *recent(self._client)]))
        return suppressed


def recent(client: Client | None) -> list[str]:
    """The last frames of a client, as lines of a report."""
    if client is None:
        return []
    state = f"closed with {client.closed.code}" if client.closed else "open"
    lines = [f"{client.name} ({state}) received last:", *(f"  {show(frame)}" for frame in client.recent)]
    return lines if client.recent else [f"{client.name} ({state}) has received nothing"]


def frame_of(received: Received | Closed, wanted: str, client: Client | None = None) -> Received:
    """What came, if it is a frame.

    Raises:
        StepFailed: The connection was closed instead.
    """
    if isinstance(received, Closed):
        closed = f"closed with {received.code} {received.reason}".rstrip()
        raise StepFailed("\n".join([f"the connection was {closed} where {wanted} was due", *recent(client)]))
    return received


def must_match(wanted: Any, frame: Any, client: Client) -> None:
    """Fail unless the frame is as wanted."""
    if mismatches := compare(wanted, frame):
        fail_frame(wanted, frame, mismatches, client)


def fail_frame(wanted: Any, frame: Any, mismatches: list[Mismatch], client: Client, where: str = "") -> None:
    """Fail with the mismatches, the frame wanted and the one that came."""
    raise StepFailed(
        "\n".join(
            [
                *map(str, mismatches),
                f"expected{where}: {show(wanted)}",
                f"received: {show(frame, 800)}",
                *recent(client),
            ]
        )
    )


def fail_if(mismatches: list[Mismatch], client: Client | None) -> None:
    """Fail if there are mismatches."""
    if mismatches:
        raise StepFailed("\n".join([*map(str, mismatches), *recent(client)]))


def keep(name: str | None, received: Received, world: World) -> None:
    """Put a frame into a list, where the step says so."""
    if name is not None:
        world.lists.setdefault(name, []).append(received)


def capture(captures: dict[str, str], source: Any, world: World) -> None:
    """Take the values that a step captures."""
    for name, path in captures.items():
        world.variables[name] = take(source, path)
