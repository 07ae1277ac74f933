"""A connection in memory, for tests of an actor without sockets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from protocol.codec import encode

if TYPE_CHECKING:
    from protocol.codes import CloseCode
    from protocol.server_frames import ServerFrame
    from server.actors.attachment import Attachment


class MemoryPeer:
    """Takes everything at once; keeps what it was told and what was written."""

    def __init__(self) -> None:
        self.gone = False
        self.writable = True
        self.closed: tuple[CloseCode, str] | None = None
        self.told: list[dict[str, Any]] = []
        self.wire = bytearray()
        self.attachment: Attachment | None = None

    def write(self, data: bytes) -> None:
        self.wire += data

    def tell(self, frame: ServerFrame) -> None:
        self.told.append(json.loads(encode(frame)))

    def attached(self, attachment: Attachment) -> None:
        self.attachment = attachment

    def close_soon(self, code: CloseCode, reason: str) -> None:
        self.closed = self.closed or (code, reason)
        self.gone = True

    async def answers(self, timeout_ms: int) -> bool:
        return not self.gone

    @property
    def frames(self) -> list[dict[str, Any]]:
        """The sequenced frames handed over so far."""
        return unwire(bytes(self.wire))


def unwire(data: bytes) -> list[dict[str, Any]]:
    """Parse a server's unmasked text frames the way a client would (RFC 6455, section 5.2)."""
    frames = []
    while data:
        assert data[0] == 0x81
        length, start = data[1], 2
        if length == 126:
            length, start = int.from_bytes(data[2:4], "big"), 4
        elif length == 127:
            length, start = int.from_bytes(data[2:10], "big"), 10
        frames.append(json.loads(data[start : start + length]))
        data = data[start + length :]
    return frames
