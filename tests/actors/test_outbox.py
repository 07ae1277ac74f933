"""The outbox: numbering, taking, bounds (CN6, CN7)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.server_frames import LlmTextChunk, ServerFrame
from server.actors.outbox import Budget, Outbox, wire_bytes
from tests.harness.peer import unwire

TEXTS = st.lists(st.one_of(st.text(max_size=40), st.integers(100, 70000).map("x".__mul__)), max_size=40)


def chunk(text: str) -> ServerFrame:
    return LlmTextChunk(request_id="r", run_id="run", message_id="m", text=text)


def read_all(outbox: Outbox, position: int, max_bytes: int = 1000) -> bytes:
    out = b""
    while position < outbox.latest:
        data, position = outbox.take(position, max_bytes)
        assert data
        out += data
    return out


def new_outbox(max_bytes: int = 1 << 30) -> Outbox:
    return Outbox(max_bytes, Budget(1 << 40))


@given(TEXTS, st.integers(1, 100_000))
@settings(deadline=None)
def test_CN7_for_every_cut_point_prefix_and_replay_are_the_whole(texts: list[str], max_bytes: int) -> None:
    outbox = new_outbox()
    wire = [b""]
    for text in texts:
        before = outbox.latest
        outbox.append(chunk(text))
        wire.append(wire[-1] + outbox.take(before, 1)[0])
    for cut in range(len(texts) + 1):
        assert wire[cut] + read_all(outbox, cut, max_bytes) == wire[-1]
    frames = unwire(wire[-1])
    assert [frame["seq"] for frame in frames] == list(range(1, len(texts) + 1))
    assert [frame["text"] for frame in frames] == texts


@given(TEXTS, st.data())
@settings(deadline=None)
def test_CN6_what_is_forgotten_is_never_replayed_in_part(texts: list[str], data: st.DataObject) -> None:
    outbox = new_outbox(max_bytes=data.draw(st.integers(1, 200_000)))
    sent: list[int] = []
    for text in texts:
        outbox.append(chunk(text))
        sent.append(len(outbox.take(outbox.latest - 1, 1)[0]))
        if data.draw(st.booleans()):
            outbox.acknowledge(data.draw(st.integers(0, outbox.latest + 3)))
    for position in range(outbox.latest + 1):
        if outbox.holds(position):
            assert outbox.bytes_after(position) == sum(sent[position:]) == len(read_all(outbox, position))
    assert outbox.holds(outbox.latest)
    assert not outbox.holds(outbox.latest + 1)
    assert outbox.size_bytes == outbox.bytes_after(outbox.first - 1)


def test_CN7_keeps_at_most_its_bound_and_one_segment() -> None:
    outbox = new_outbox(max_bytes=300_000)
    for _ in range(2000):
        outbox.append(chunk("y" * 900))
    assert outbox.size_bytes <= 300_000 + 66_000
    assert outbox.latest == 2000
    assert outbox.first > 1000


def test_CN6_an_ahead_or_foolish_acknowledgement_forgets_nothing() -> None:
    outbox = new_outbox()
    outbox.append(chunk("a"))
    outbox.acknowledge(5)
    outbox.acknowledge(0)
    assert outbox.acked == 0
    assert outbox.holds(0)


def test_CN7_the_budget_counts_all_outboxes_and_tells_of_an_excess_once() -> None:
    budget = Budget(1000)
    told: list[int] = []
    budget.exceeded = lambda: told.append(budget.used_bytes)
    first, second = Outbox(1 << 20, budget), Outbox(1 << 20, budget)
    for _ in range(20):
        first.append(chunk("z" * 50))
        second.append(chunk("z" * 50))
    assert budget.used_bytes == first.size_bytes + second.size_bytes
    assert len(told) == 1
    first.clear()
    second.clear()
    assert budget.used_bytes == 0


def test_wire_bytes_have_the_three_forms_of_length() -> None:
    for size in (0, 125, 126, 65535, 65536):
        data = wire_bytes(b"x" * size)
        assert data.endswith(b"x" * size)
        assert len(data) - size == (2 if size < 126 else 4 if size < 65536 else 10)
