"""Splits a byte stream into server-sent events; pure, linear in the bytes, bounded in what it holds."""

from __future__ import annotations

from typing import Final

MAX_EVENT_BYTES: Final = 8 * 1024 * 1024
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_PIECE_BYTES: Final = 41
"""What Python keeps beside the bytes of a piece, so that many small ones are bounded too."""


class EventTooLong(Exception):
    """An event is longer than :data:`MAX_EVENT_BYTES`."""


class SseDecoder:
    """Decodes one stream, in any pieces.

    Only the data of events matters here; names, ids and comments are passed over. Lines may end with LF,
    CRLF or CR.
    """

    __slots__ = ("_begun", "_carriage_return", "_data", "_data_size", "_line", "_line_size")

    def __init__(self) -> None:
        self._begun = False  # a byte order mark may only begin the stream
        self._line: list[bytes] = []  # pieces of the line begun
        self._data: list[bytes] = []  # data lines of the event begun
        self._line_size = self._data_size = 0  # what they hold, in bytes
        self._carriage_return = False  # the last piece ended with one, whose LF may follow

    def feed(self, piece: bytes) -> list[bytes]:
        """Take bytes and return the data of all events that are now complete.

        Raises:
            EventTooLong: The stream cannot be used any further.
        """
        if self._carriage_return or b"\r" in piece:
            piece = self._with_line_feeds(piece)
        if b"\n" not in piece:
            self._hold(piece)
            return []
        first, *lines = piece.split(b"\n")
        if self._line:
            self._hold(first)
            first = b"".join(self._line)
            self._line.clear()
            self._line_size = 0
        rest = first if not lines else lines.pop()
        events: list[bytes] = []
        self._take(first, events)
        for line in lines:
            self._take(line, events)
        if rest:
            self._hold(rest)
        return events

    def finish(self) -> list[bytes]:
        """The stream has ended: return the data of an event whose closing blank line is missing."""
        events: list[bytes] = []
        self._take(b"".join(self._line), events)
        self._take(b"", events)
        self._line.clear()
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            if self._data:
                event = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                self._data.clear()
                self._data_size = 0
                events.append(event)
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            self._data_size += len(line) + _PIECE_BYTES
            self._check_size()
        elif line == b"data":
            self._take(b"data:", events)

    def _hold(self, piece: bytes) -> None:
        """Keep a piece of a line."""
        self._line.append(piece)
        self._line_size += len(piece) + _PIECE_BYTES
        self._check_size()

    def _check_size(self) -> None:
        if self._line_size + self._data_size > MAX_EVENT_BYTES:
            raise EventTooLong

    def _with_line_feeds(self, piece: bytes) -> bytes:
        if self._carriage_return and piece.startswith(b"\n"):
            piece = piece[1:]
            self._carriage_return = False
        if piece:
            self._carriage_return = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
