"""A server of a few frames, in-process, for tests of the runner: it does right, or wrong on request.

It answers ``append_message`` and ``ping``; the content of a message can ask for a fault (see :data:`FAULTS`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from protocol.ids import new_ulid

LIMITS: Final = {
    "max_frame_bytes": 1_048_576,
    "rate_burst": 20,
    "rate_per_s": 10.0,
    "queue_limit": 8,
    "llm_first_token_timeout_ms": 100,
    "llm_gap_timeout_ms": 100,
    "slow_reader_bytes": 2_097_152,
    "outbox_bytes": 4_194_304,
}
FAULTS: Final = frozenset({"gap", "no seq", "garbage", "binary", "close", "silence", "again", "flood"})


class Peer:
    """The server's state: a sequence and a holder for each path."""

    def __init__(self) -> None:
        self.epoch = new_ulid()
        self.sequences: dict[str, list[dict[str, Any]]] = {}
        self.holders: dict[str, ServerConnection] = {}

    async def handle(self, connection: ServerConnection) -> None:
        """Serve one connection."""
        assert connection.request is not None
        path = urlsplit(connection.request.path).path
        if path in self.holders:
            await _send(connection, _error("resource_busy"))
            await connection.close(4009, "held")
            return
        self.holders[path] = connection
        try:
            await self._converse(connection, self.sequences.setdefault(path, []))
        except ConnectionClosed:
            pass
        finally:
            del self.holders[path]

    async def _converse(self, connection: ServerConnection, frames: list[dict[str, Any]]) -> None:
        await _send(connection, self._connected(len(frames)))
        async for text in connection:
            frame = msgspec.json.decode(text)
            if frame["type"] == "ping":
                await _send(connection, {"type": "pong", "t": frame.get("t")})
            elif frame["content"] in FAULTS:
                await self._misbehave(connection, frame["content"], frames)
            else:
                frames.append(_appended(frame, len(frames)))
                await _send(connection, frames[-1])

    def _connected(self, seq: int) -> dict[str, Any]:
        known = {
            "epoch": self.epoch,
            "resource": "x",
            "attachment": 1,
            "heartbeat_ms": 1000,
            "limits": LIMITS,
        }
        resume = {"resume": "replayed" if seq else "fresh", "replayed": 0}
        return {
            "type": "connected",
            "seq": seq,
            "from_seq": seq + 1,
            "protocol": "turnwire.v1",
            **known,
            **resume,
        }

    async def _misbehave(
        self, connection: ServerConnection, fault: str, frames: list[dict[str, Any]]
    ) -> None:
        appended = _appended({"request_id": "r", "content": fault, "role": "user"}, len(frames))
        match fault:
            case "gap":
                await _send(connection, appended | {"seq": appended["seq"] + 1})
            case "no seq":
                del appended["seq"]
                await _send(connection, appended)
            case "garbage":
                await connection.send('{"type": "sing"}')
            case "binary":
                await connection.send(b"\x00")
            case "again":
                await _send(connection, frames[-1])
            case "close":
                await connection.close(4010, "superseded")
            case "flood":
                for number in itertools.count():
                    await _send(connection, {"type": "pong", "t": [number, "x" * 4096]})


def _appended(frame: dict[str, Any], sequence: int) -> dict[str, Any]:
    told = {name: frame[name] for name in ("request_id", "role", "content")}
    own = {"type": "message_appended", "seq": sequence + 1, "message_id": new_ulid(), "sequence": sequence}
    return {**own, **told, "tool_call_id": None, "origin": "socket"}


def _error(code: str) -> dict[str, Any]:
    return {"type": "error", "code": code, "message": code, "retryable": True}


async def _send(connection: ServerConnection, frame: dict[str, Any]) -> None:
    await connection.send(msgspec.json.encode(frame).decode())


@contextlib.asynccontextmanager
async def open_peer(**options: Any) -> AsyncIterator[tuple[str, Peer]]:
    """Run the server; gives its address and state."""
    peer = Peer()
    async with serve(peer.handle, "127.0.0.1", 0, compression=None, **options) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}", peer
