"""Where a connection begins (CN6), as a table."""

from __future__ import annotations

import pytest

from protocol.server_frames import ResumeKind
from server.actors.resume import Kept, Plan, Wish, plan_resume

FRESH, REPLAYED, SNAPSHOT = ResumeKind.FRESH, ResumeKind.REPLAYED, ResumeKind.SNAPSHOT


def kept(
    first: int = 1, latest: int = 9, acked: int = 0, handed: int | None = 4, *, untold: bool = False
) -> Kept:
    return Kept("E", first, latest, acked, handed, untold)


@pytest.mark.parametrize(
    ("wish", "has", "plan"),
    [
        (Wish(), kept(1, 0, handed=None), Plan(FRESH, 0)),
        (Wish(epoch="E", last_seq=0), kept(1, 0), Plan(FRESH, 0)),
        (Wish(), kept(handed=None), Plan(REPLAYED, 0)),
        (Wish(), kept(), Plan(REPLAYED, 4)),
        (Wish(), kept(acked=2), Plan(REPLAYED, 2)),
        (Wish(), kept(handed=9), Plan(REPLAYED, 9)),
        (Wish(epoch="E", last_seq=7), kept(), Plan(REPLAYED, 7)),
        (Wish(epoch="E", last_seq=9), kept(), Plan(REPLAYED, 9)),
        (Wish(epoch="E", last_seq=0), kept(), Plan(REPLAYED, 0)),
        (Wish(epoch="E", last_seq=10), kept(), Plan(SNAPSHOT, 9)),
        (Wish(epoch="other", last_seq=7), kept(), Plan(SNAPSHOT, 9)),
        (Wish(epoch="E"), kept(), Plan(SNAPSHOT, 9)),
        (Wish(last_seq=7), kept(), Plan(SNAPSHOT, 9)),
        (Wish(epoch="E", last_seq=3), kept(first=5), Plan(SNAPSHOT, 9)),
        (Wish(epoch="E", last_seq=4), kept(first=5), Plan(REPLAYED, 4)),
        (Wish(), kept(first=8), Plan(SNAPSHOT, 9)),
        (Wish(snapshot=True), kept(), Plan(SNAPSHOT, 9)),
        (Wish(snapshot=True, epoch="E", last_seq=9), kept(), Plan(SNAPSHOT, 9)),
        (Wish(), kept(1, 0, handed=None, untold=True), Plan(SNAPSHOT, 0)),
        (Wish(epoch="old", last_seq=3), kept(1, 0, handed=None), Plan(FRESH, 0)),
        (Wish(snapshot=True), kept(1, 0, handed=None), Plan(FRESH, 0)),
        (Wish(epoch="E", last_seq=0), kept(1, 0, handed=0, untold=True), Plan(REPLAYED, 0)),
    ],
)
def test_CN6_begins_where_the_client_is_or_with_a_snapshot(wish: Wish, has: Kept, plan: Plan) -> None:
    assert plan_resume(wish, has) == plan
