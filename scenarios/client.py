"""A named client of a scenario: its connection, the frames that wait to be looked at, its position.

A reader task takes frames off the wire as they come and checks each at once: it must decode as a frame of
the protocol, and its ``seq`` must be the one that is due. Whatever is wrong is kept in
:attr:`Client.faults` and fails the scenario.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from protocol.codec import decode_server_frame
from scenarios.canvas import Canvas
from scenarios.invariants import Ledger, address_fault, sequence_fault
from scenarios.wire import Closed, Message, Wire

_RECENT: Final = 12
_RATE_SLICE_S: Final = 0.02
_MIN_READ: Final = 256


class Received(Struct, frozen=True):
    """A frame as it came, and as JSON."""

    data: bytes
    frame: dict[str, Any]
    at: float


class Position(Struct, frozen=True):
    """Where a client stands in a resource's sequence."""

    epoch: str
    seq: int


class Client:
    """One client. A connection that ended leaves its position and frames; the next connect begins anew.

    The reader task fills the queue and sets ``closed``; steps take from the queue, and the position is that
    of the last frame taken, so that what the scenario has looked at and what a resume asks for fit together.
    """

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.faults: list[str] = []
        self.recent: deque[dict[str, Any]] = deque(maxlen=_RECENT)
        self.connected: dict[str, Any] = {}
        self.position: Position | None = None
        self.closed: Closed | None = None
        self._ledger = ledger
        self._resource = ""
        self._asked: Position | None = None
        self._due: int | None = None
        self._snapshot_due = False
        self._wire: Wire | None = None
        self._queue: deque[Received] = deque()
        self._changed = anyio.Event()
        self._may_read = anyio.Event()
        self._may_read.set()
        self._reading = anyio.CancelScope()
        self._rate = 0

    # -- the reader --------------------------------------------------------------------------------

    def attach(self, wire: Wire, tasks: TaskGroup, resource: str, asked: Position | None) -> None:
        """Begin to read a new connection to ``resource``; ``asked`` is the position given with it."""
        assert self._wire is None or self.closed is not None, "the step has looked"
        self._wire, self._resource, self._asked = wire, resource, asked
        self.connected, self.closed = {}, None
        self._due, self._snapshot_due, self._rate = None, False, 0
        self._queue.clear()
        self._may_read.set()
        tasks.start_soon(self._read, wire, name=f"reader of {self.name}")

    async def _read(self, wire: Wire) -> None:
        while True:
            await self._may_read.wait()
            if not self._may_read.is_set():
                continue  # the wait lets others run, also when there is nothing to wait for
            limit = max(_MIN_READ, int(self._rate * _RATE_SLICE_S)) if self._rate else None
            result: list[Message] | Closed = []
            with anyio.CancelScope() as self._reading:
                result = await wire.receive(limit)
            if wire is not self._wire:
                return
            if isinstance(result, Closed):
                self.closed = result
                self._wake()
                await wire.destroy()
                return
            for message in result:
                self._take(message)
            if result:
                self._wake()
            if self._rate:
                await anyio.sleep(_RATE_SLICE_S)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _take(self, message: Message) -> None:
        if not message.text:
            self.faults.append(f"a binary message came: {message.data[:80]!r}")
            return
        try:
            decode_server_frame(message.data)
            frame = msgspec.json.decode(message.data)
        except Exception as error:  # noqa: BLE001 - whatever the codec says, the frame is not one
            self.faults.append(f"not a server frame ({error}): {message.data[:300]!r}")
            return
        self.recent.append(frame)
        self._check(frame, message.data)
        self._queue.append(Received(message.data, frame, time.monotonic()))

    def _check(self, frame: dict[str, Any], data: bytes) -> None:
        in_project = self._resource.startswith("/ws/projects/")
        for fault in (sequence_fault(frame), address_fault(frame, in_project=in_project)):
            if fault is not None:
                self.faults.append(fault)
        match frame["type"]:
            case "connected":
                self._check_connected(frame)
            case "snapshot":
                self._check_snapshot(frame)
        if self._snapshot_due and frame["type"] not in ("connected", "snapshot"):
            self.faults.append(f"{frame['type']} came where the snapshot was due (CN6)")
        seq = frame.get("seq")
        if frame["type"] == "connected" or seq is None:
            return
        if self._due is None:
            self.faults.append(f"{frame['type']} came before connected")
        elif seq != self._due:
            self.faults.append(f"seq {seq} ({frame['type']}) came where {self._due} was due (CN6)")
        self._due = seq + 1
        epoch = str(self.connected.get("epoch", ""))
        self.faults += self._ledger.add(self._resource, epoch, frame, data)

    def _check_connected(self, frame: dict[str, Any]) -> None:
        if self.connected:
            self.faults.append("connected came twice")
        self.connected = frame
        self._due = due = frame["from_seq"]
        begins, asked, resume = Position(frame["epoch"], due - 1), self._asked, frame["resume"]
        self._snapshot_due = resume == "snapshot"
        if resume == "replayed" and frame["replayed"] != frame["seq"] - due + 1:
            self.faults.append(
                f"connected says replayed {frame['replayed']}, but from_seq {due} and seq {frame['seq']}"
            )
        if resume != "replayed" and due != frame["seq"] + 1:
            self.faults.append(f"connected ({resume}) has from_seq {due} after seq {frame['seq']}")
        if asked and resume == "replayed" and asked != begins:
            self.faults.append(f"resumed from {asked}, but from_seq is {due} of epoch {frame['epoch']} (CN6)")

    def _check_snapshot(self, frame: dict[str, Any]) -> None:
        if not self._snapshot_due:
            self.faults.append("a snapshot came that connected did not announce (CN6)")
        elif frame["as_of_seq"] + 1 != self._due:
            self.faults.append(f"snapshot as_of_seq {frame['as_of_seq']}, but from_seq is {self._due} (CN6)")
        self._snapshot_due = False

    # -- what steps use ----------------------------------------------------------------------------

    async def next(self) -> Received | Closed:
        """Take the next frame, or learn how the connection ended once all frames are taken."""
        while not self._queue and self.closed is None:
            await self._changed.wait()
        if not self._queue:
            return self.closed or Closed(1006)
        received = self._queue.popleft()
        frame = received.frame
        if frame["type"] == "connected":
            self.position = Position(frame["epoch"], frame["from_seq"] - 1)
        elif "seq" in frame:
            self.position = Position(str(self.connected.get("epoch", "")), frame["seq"])
        return received

    async def wait_closed(self) -> Closed:
        """Wait for the end of the connection, taking no frames."""
        while self.closed is None:
            await self._changed.wait()
        return self.closed

    @property
    def canvas(self) -> Canvas:
        """What the frames of this connection's epoch, whoever received them, tell of the canvas."""
        return self._ledger.canvas(self._resource, str(self.connected.get("epoch", "")))

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that nobody has ended."""
        return self._wire is not None and self.closed is None

    @property
    def wire(self) -> Wire:
        """The connection.

        Raises:
            ConnectionError: This client never connected.
        """
        if self._wire is None:
            raise ConnectionError(f"client {self.name} is not connected")
        return self._wire

    def stop_reading(self) -> None:
        """Take nothing more off the socket until :meth:`resume_reading`."""
        if self._may_read.is_set():
            self._may_read = anyio.Event()
        self._reading.cancel()

    def resume_reading(self) -> None:
        """Read again."""
        self._may_read.set()

    def read_at(self, bytes_per_s: int) -> None:
        """Bound the rate of reading; 0 lifts the bound."""
        self._rate = bytes_per_s

    async def drop(self, *, reset: bool) -> None:
        """Destroy the socket; frames not yet taken are forgotten, the position stays."""
        wire, self._wire = self.wire, None
        self._queue.clear()
        self.closed = Closed(1006)
        self._wake()
        await wire.destroy(reset=reset)
        self._reading.cancel()
        self._may_read.set()
