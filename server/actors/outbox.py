"""The outbox: everything a resource has told the world, as bytes that are ready for the wire.

An outbox is a dense sequence of frames under one epoch (CN6). It does not know connections: a connection is a
position in it, and asks with :meth:`Outbox.take` for what lies behind that position. Live delivery, replay
after
a drop and slow reading are the same call.

Frames lie in segments of consecutive bytes, WebSocket header included: a server's frames are unmasked and,
here,
uncompressed, so the same bytes serve every reader, and a reader that is far behind gets many frames in one
copy.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from protocol.codec import encode
from protocol.ids import new_ulid

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.server_frames import ServerFrame

_SEGMENT_BYTES: Final = 65536
_SHORT_HEADERS: Final = tuple(bytes((0x81, length)) for length in range(126))


def wire_bytes(payload: bytes) -> bytes:
    """Put the WebSocket header of an unmasked, final text frame before a payload (RFC 6455, section 5.2)."""
    return _header(len(payload)) + payload


def _header(length: int) -> bytes:
    if length < 126:
        return _SHORT_HEADERS[length]
    if length < 65536:
        return b"\x81\x7e" + length.to_bytes(2, "big")
    return b"\x81\x7f" + length.to_bytes(8, "big")


class _Segment:
    """Consecutive frames in one buffer."""

    __slots__ = ("base", "data", "ends", "first")

    def __init__(self, first: int, base: int) -> None:
        self.first = first
        """``seq`` of the first frame here."""
        self.base = base
        """Bytes that the outbox had written before this segment."""
        self.data = bytearray()
        self.ends = array("Q")
        """For each frame, where it ends within ``data``."""

    def start_of(self, seq: int) -> int:
        """Where frame ``seq`` begins within ``data``; for one past the last frame, where that one ends."""
        index = seq - self.first
        return self.ends[index - 1] if index else 0


class Budget:
    """What all outboxes of the process hold together, bytes.

    ``exceeded`` is called, once until it is told otherwise, when the bound is passed.
    """

    __slots__ = ("_armed", "exceeded", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes: Final = limit_bytes
        self.used_bytes = 0
        self.exceeded: Callable[[], None] = lambda: None
        self._armed = True

    def add(self, size: int) -> None:
        """Count bytes that came, or with a negative size, that went."""
        self.used_bytes += size
        if size < 0 and self.used_bytes <= self.limit_bytes:
            self._armed = True
        if self.used_bytes > self.limit_bytes and self._armed:
            self._armed = False
            self.exceeded()

    def relieved(self) -> None:
        """Room was made, as far as there was any; once there is enough, the next excess is told again."""
        self._armed = self.used_bytes <= self.limit_bytes


class Outbox:
    """A bounded sequence of sequenced frames under one epoch.

    - Written by the resource's actor and by its running completion's ``emit``, both in the event loop's turn.
    - Keeps about ``max_bytes`` on the wire, but always the last segment, which may be one long frame: the
      oldest segments go first, and
      what is
      gone can only be made up for by a snapshot.
    """

    __slots__ = ("_budget", "_max_bytes", "_segments", "_written", "acked", "epoch", "latest")

    def __init__(self, max_bytes: int, budget: Budget) -> None:
        self.epoch: Final = new_ulid()
        """Names this life of the sequence; a position of another epoch means nothing here."""
        self.latest = 0
        """``seq`` of the newest frame; 0 before the first."""
        self.acked = 0
        """The highest ``seq`` that a client acknowledged; 0 when none did."""
        self._budget = budget
        self._max_bytes = max_bytes
        self._segments: list[_Segment] = []
        self._written = 0

    @property
    def first(self) -> int:
        """``seq`` of the oldest frame still here; ``latest + 1`` when there is none."""
        return self._segments[0].first if self._segments else self.latest + 1

    @property
    def size_bytes(self) -> int:
        """Bytes held, headers included."""
        return self._written - self._segments[0].base if self._segments else 0

    def append(self, frame: ServerFrame) -> int:
        """Number a frame, encode it once and keep it; returns its ``seq``."""
        seq = self.latest + 1
        frame.seq = seq
        payload = encode(frame)
        segments = self._segments
        if segments and len(segments[-1].data) < _SEGMENT_BYTES:
            segment = segments[-1]
        else:
            segment = _Segment(seq, self._written)
            segments.append(segment)
            if self._written - segments[0].base > self._max_bytes:
                self._trim()
        data = segment.data
        before = len(data)
        data += _header(len(payload))
        data += payload
        end = len(data)
        segment.ends.append(end)
        self._written += end - before
        self._budget.add(end - before)
        self.latest = seq
        return seq

    def take(self, position: int, max_bytes: int) -> tuple[bytes, int]:
        """The wire bytes that follow a position, and the position behind them.

        Args:
            position: ``seq`` of the last frame that the reader has; :meth:`holds` must be true of it.
            max_bytes: About how much to take: at least one frame, and never past the end of a segment.
        """
        segment = self._segment_of(position + 1)
        start = segment.start_of(position + 1)
        ends = segment.ends
        last = len(ends) - 1
        if ends[last] - start > max_bytes:
            last = self._last_within(ends, position + 1 - segment.first, start + max_bytes)
        with memoryview(segment.data) as view:
            return bytes(view[start : ends[last]]), segment.first + last

    def holds(self, position: int) -> bool:
        """Whether a reader at this position can be given exactly what it missed."""
        return self.first - 1 <= position <= self.latest

    def bytes_after(self, position: int) -> int:
        """How far behind a reader is, in bytes; what is no longer here counts as far behind."""
        if position >= self.latest:
            return 0
        if position + 1 < self.first:
            return self._written
        segment = self._segment_of(position + 1)
        return self._written - segment.base - segment.start_of(position + 1)

    def acknowledge(self, seq: int) -> None:
        """Note that the client has all frames up to ``seq``; whole segments of such frames are dropped."""
        if not self.acked < seq <= self.latest:
            return
        self.acked = seq
        while self._segments and self._segments[0].first + len(self._segments[0].ends) - 1 <= seq:
            self._drop()

    def clear(self) -> None:
        """Forget all frames, not their numbers: a reader that needs them gets a snapshot."""
        while self._segments:
            self._drop()

    def _drop(self) -> None:
        self._budget.add(-len(self._segments.pop(0).data))

    def _trim(self) -> None:
        while len(self._segments) > 1 and self._written - self._segments[0].base > self._max_bytes:
            self._drop()

    def _segment_of(self, seq: int) -> _Segment:
        segments = self._segments
        low, high = 0, len(segments) - 1
        if seq >= segments[high].first:
            return segments[high]
        while low < high:
            middle = (low + high + 1) // 2
            if segments[middle].first <= seq:
                low = middle
            else:
                high = middle - 1
        return segments[low]

    @staticmethod
    def _last_within(ends: array[int], low: int, limit: int) -> int:
        """Index of the last frame that ends at or before ``limit``, but at least ``low``."""
        high = len(ends) - 1
        first = low
        while low < high:
            middle = (low + high + 1) // 2
            if ends[middle] <= limit:
                low = middle
            else:
                high = middle - 1
        return max(first, low)
