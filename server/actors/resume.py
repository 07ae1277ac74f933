"""Where a connection continues: the decision of CN6, pure."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from protocol.server_frames import ResumeKind


class Wish(Struct, frozen=True, kw_only=True):
    """What a connection asks for with its query parameters."""

    client_id: str | None = None
    takeover: bool = False
    epoch: str | None = None
    last_seq: int | None = None
    snapshot: bool = False


class Kept(NamedTuple):
    """What a resource still has to offer."""

    epoch: str
    first: int
    """``seq`` of the oldest frame kept; ``latest + 1`` when there is none."""
    latest: int
    acked: int
    """The highest acknowledged ``seq``; 0 when none was."""
    handed: int | None
    """``seq`` of the last frame handed to the previous connection; ``None`` when there was none in this
    epoch."""
    untold: bool
    """Whether there is history from before this epoch, which only a snapshot can tell."""


class Plan(NamedTuple):
    """How the connection begins, and the position behind which its frames follow."""

    kind: ResumeKind
    position: int


def plan_resume(wish: Wish, kept: Kept) -> Plan:
    """Decide how a connection begins; total. Never a partial replay (CN6).

    What has never said anything is begun afresh whatever was asked for: there is nothing to tell.
    """
    if kept.latest == 0 and not kept.untold:
        return Plan(ResumeKind.FRESH, 0)
    snapshot = Plan(ResumeKind.SNAPSHOT, kept.latest)
    if wish.snapshot:
        return snapshot
    exact = wish.epoch is not None or wish.last_seq is not None
    if exact:
        if wish.epoch != kept.epoch or wish.last_seq is None:
            return snapshot
        position = wish.last_seq
    elif kept.acked:
        position = kept.acked
    elif kept.handed is not None:
        position = kept.handed
    elif kept.untold:
        return snapshot
    else:
        position = 0
    if not kept.first - 1 <= position <= kept.latest:
        return snapshot
    return Plan(ResumeKind.REPLAYED, position)
