"""A plain client for tests: raw frames over the ``websockets`` client, nothing of the server's code.

It checks on every frame what must always hold: JSON text, and a ``seq`` without gaps.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any, Self
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from protocol.ids import new_ulid

Frame = dict[str, Any]
_ids = itertools.count(1)
_sockets: set[ClientConnection] = set()


async def abort_all() -> None:
    """Destroy what a test left open."""
    while _sockets:
        socket = _sockets.pop()
        if socket.loop is asyncio.get_running_loop():
            socket.transport.abort()
            await socket.wait_closed()


def next_request_id() -> str:
    return f"t-{next(_ids)}"


class Refused(Exception):
    """The server closed instead of letting in; ``frame`` is the error it sent, if any."""

    def __init__(self, code: int | None, frame: Frame | None) -> None:
        super().__init__(code, frame)
        self.code = code
        self.frame = frame


class Client:
    """One connection to a conversation."""

    place = "conversations"

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.connected: Frame = {}
        self.snapshot: Frame | None = None
        self.seq = 0
        self.frames: list[Frame] = []
        """Everything received after `connected` and `snapshot`."""

    @classmethod
    async def open(
        cls, ws_url: str, resource_id: str | None = None, *, token: str | None = None, **query: object
    ) -> Self:
        """Connect and be let in; :class:`Refused` otherwise."""
        path = f"{ws_url}/ws/{cls.place}/{resource_id or new_ulid()}"
        if query:
            path += "?" + urlencode(
                {k: str(v).lower() if isinstance(v, bool) else v for k, v in query.items()}
            )
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        socket = await connect(path, additional_headers=headers, ping_interval=None, max_size=None)
        _sockets.add(socket)
        client = cls(socket)
        frame = None
        try:
            frame = await client.receive()
            if frame["type"] != "connected":
                await client.receive()
        except ConnectionClosed as closed:
            raise Refused(closed.rcvd.code if closed.rcvd else None, frame) from None
        client.connected = frame
        client.seq = frame["from_seq"] - 1
        if frame["resume"] == "snapshot":
            client.snapshot = await client.receive()
            assert client.snapshot["type"] == "snapshot"
            assert client.snapshot["as_of_seq"] == client.seq
        return client

    @property
    def position(self) -> dict[str, object]:
        """The query parameters with which the next connection goes on from here."""
        return {"epoch": self.connected["epoch"], "last_seq": self.seq}

    async def receive(self, timeout_s: float = 20.0) -> Frame:
        """The next frame, whatever it is."""
        async with asyncio.timeout(timeout_s):
            text = await self.socket.recv()
        assert isinstance(text, str)
        frame: Frame = json.loads(text)
        if "seq" in frame and frame["type"] != "connected":
            assert frame["seq"] == self.seq + 1, f"gap: {self.seq} then {frame}"
            self.seq = frame["seq"]
        if self.connected:
            self.frames.append(frame)
        return frame

    async def send(self, kind: str, **fields: object) -> str:
        """Send a frame; returns its request id."""
        request_id = str(fields.pop("request_id", "") or next_request_id())
        await self.socket.send(json.dumps({"type": kind, "request_id": request_id, **fields}))
        return request_id

    async def until(self, *kinds: str, timeout_s: float = 20.0, **fields: object) -> list[Frame]:
        """Frames up to and with the first of one of these types and these field values."""
        seen: list[Frame] = []
        while True:
            frame = await self.receive(timeout_s)
            seen.append(frame)
            if frame["type"] in kinds and all(frame.get(k) == v for k, v in fields.items()):
                return seen

    async def quiet(self, for_s: float = 2.0) -> list[Frame]:
        """Everything until nothing came for a while."""
        seen: list[Frame] = []
        try:
            while True:
                seen.append(await self.receive(for_s))
        except TimeoutError:
            return seen

    async def say(self, content: str, **fields: object) -> Frame:
        """Append a user message and await its confirmation."""
        request_id = await self.send("append_message", role="user", content=content, **fields)
        return (await self.until("message_appended", "error", request_id=request_id))[-1]

    async def complete(self, model: str, **fields: object) -> list[Frame]:
        """Request a completion and take all its frames."""
        request_id = await self.send("request_completion", model=model, **fields)
        return await self.until("completion_done", request_id=request_id)

    async def closed(self, timeout_s: float = 20.0) -> tuple[int | None, list[Frame]]:
        """Read to the end: the close code, and the frames before it."""
        seen: list[Frame] = []
        try:
            while True:
                seen.append(await self.receive(timeout_s))
        except ConnectionClosed as closed:
            return (closed.rcvd.code if closed.rcvd else None), seen

    def drop(self) -> None:
        """Destroy the socket: no close frame."""
        self.socket.transport.abort()

    async def close(self) -> None:
        await self.socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.socket.close()


def text_of(frames: list[Frame], kind: str = "llm_text_chunk") -> str:
    """The concatenated text of frames of a kind."""
    return "".join(frame["text"] for frame in frames if frame["type"] == kind)
