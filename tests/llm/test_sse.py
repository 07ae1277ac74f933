"""Server-sent events from bytes, in any pieces."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.llm.sse import MAX_EVENT_BYTES, EventTooLong, SseDecoder


def decode(data: bytes, size: int | None = None) -> list[bytes]:
    decoder = SseDecoder()
    size = size or max(len(data), 1)
    events = [event for at in range(0, len(data), size) for event in decoder.feed(data[at : at + size])]
    return events + decoder.finish()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\r\n\r\ndata: b\r\rdata: c\n\n", [b"a", b"b", b"c"]),
        (b": comment\nid: 1\nevent: x\nretry: 5\ndata: a\n\n", [b"a"]),
        (b"data: a\ndata: b\ndata\ndata:\n\n", [b"a\nb\n\n"]),
        (b"\n\n\n: ping\n\ndata: a\n\n\n\n", [b"a"]),
        (b"data:  two spaces\n\n", [b" two spaces"]),
        (b"data: unfinished", [b"unfinished"]),
        (b"data: a\n\ndata: b\n", [b"a", b"b"]),
        (b"database: x\n\n", []),
        (b"", []),
    ],
)
def test_events_whatever_the_pieces(stream: bytes, events: list[bytes]) -> None:
    for size in (None, 1, 2, 3, 5):
        assert decode(stream, size) == events


@given(
    st.lists(st.sampled_from([b"data: ", b"data:", b"x", b"\n", b"\r", b"\r\n", b"\n\n", b": ", b"y" * 50]))
)
def test_the_pieces_do_not_matter(parts: list[bytes]) -> None:
    stream = b"".join(parts)
    assert decode(stream) == decode(stream, 1) == decode(stream, 3)


@pytest.mark.parametrize("stream", [b"data: " + b"x" * (1 << 20), b"data: x\n" * (1 << 17)])
def test_ST6_an_endless_event_is_refused_with_bounded_memory(stream: bytes) -> None:
    assert any(refuses(decoder, stream) for decoder in [SseDecoder()] for _ in range(9))


def refuses(decoder: SseDecoder, data: bytes) -> bool:
    try:
        decoder.feed(data)
    except EventTooLong:
        return True
    return False


def test_an_event_below_the_limit_passes_again_and_again() -> None:
    decoder = SseDecoder()
    body = b"x" * (MAX_EVENT_BYTES - 200)
    for _ in range(3):
        assert decoder.feed(b"data: ") == []
        assert decoder.feed(body) == []
        assert decoder.feed(b"\n\n") == [body]


def test_the_time_is_linear_in_the_bytes() -> None:
    def seconds(count: int) -> float:
        decoder, began = SseDecoder(), time.process_time()
        for _ in range(count):
            decoder.feed(b"d")
        decoder.feed(b"\n")
        for _ in range(count):
            decoder.feed(b"data:\n")
        return time.process_time() - began

    assert seconds(80_000) < 20 * (seconds(10_000) + 0.01)


def test_ST6_a_byte_order_mark_before_the_stream_is_no_part_of_it() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"\xef\xbb\xbfdata: one\n\ndata: \xef\xbb\xbftwo\n\n") == [b"one", b"\xef\xbb\xbftwo"]
