"""What a frame costs on its way to a client: Turnwire's outbox and socket against a bare ``websockets``
server.

Both encode the same struct for every frame and send it to every connection, on uvloop, without compression.
What is
compared is frames per second of CPU time of the server's process, so the reader's speed does not count. The
two sides
run in turns, and the ratio is taken per round::

    python -m benchmarks.frames [--connections 1 50 500] [--frames 200] [--bursts 1 4 32] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import selectors
import socket
import statistics
import time
from typing import TYPE_CHECKING, Any

import uvloop
from rich.console import Console
from rich.table import Table
from websockets.asyncio.server import serve

from protocol.codec import encode
from protocol.server_frames import LlmTextChunk
from server.actors.attachment import Attachment, Flusher
from server.actors.outbox import Budget, Outbox
from server.metrics import Metrics
from server.sockets import Socket

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from websockets.asyncio.server import ServerConnection

_TEXT = " the sea, and"
_HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def frame(seq: int) -> LlmTextChunk:
    """A frame as the engine makes it for every token."""
    return LlmTextChunk(
        seq=seq,
        request_id="01K7R3M5T8V2W4X6Y9Z0A1B2C3",
        run_id="run-01K7R3M5T8V2W4X6Y9Z0A1B2C3",
        message_id="01K7R3M5T8V2W4X6Y9Z0A1B2C4",
        text=_TEXT,
    )


def read_all(port: int, connections: int) -> None:
    """The other side: opens the connections and throws away what comes, until all are closed."""
    chosen = selectors.DefaultSelector()
    for _ in range(connections):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(_HANDSHAKE)
        sock.setblocking(False)
        chosen.register(sock, selectors.EVENT_READ)
    buffer = bytearray(1 << 20)
    while chosen.get_map():
        for key, _ in chosen.select():
            sock = key.fileobj  # type: ignore[assignment]
            try:
                while count := sock.recv_into(buffer):
                    if count < len(buffer):
                        break
                else:
                    chosen.unregister(sock)
                    sock.close()
            except BlockingIOError:
                continue
            except OSError:
                chosen.unregister(sock)
                sock.close()


async def bare(connections: int, frames: int, burst: int, ready: Connection) -> float:
    """``await ws.send`` for every frame; returns frames per CPU second."""
    arrived: list[ServerConnection] = []
    done = asyncio.Event()

    async def hold(ws: ServerConnection) -> None:
        arrived.append(ws)
        await done.wait()

    async def send(ws: ServerConnection) -> None:
        for first in range(0, frames, burst):
            for seq in range(first, first + burst):
                await ws.send(encode(frame(seq)), text=True)
            await asyncio.sleep(0)

    async with serve(hold, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        ready.send(next(iter(server.sockets)).getsockname()[1])
        while len(arrived) < connections:
            await asyncio.sleep(0.01)
        started = time.process_time()
        await asyncio.gather(*(send(ws) for ws in arrived))
        spent = time.process_time() - started
        done.set()
    return connections * frames / spent


async def turnwire(connections: int, frames: int, burst: int, ready: Connection) -> float:
    """Outbox, cursor, one write a turn; returns frames per CPU second."""
    arrived: list[tuple[Outbox, Attachment]] = []
    done = asyncio.Event()
    flusher, budget = Flusher(Metrics()), Budget(1 << 40)

    async def hold(ws: Any) -> None:
        outbox = Outbox(1 << 22, budget)
        attachment = Attachment(1, ws, outbox, 0, client_id=None, slow_bytes=1 << 30, flusher=flusher)
        ws.attached(attachment)
        arrived.append((outbox, attachment))
        await done.wait()

    async with serve(
        hold, "127.0.0.1", 0, compression=None, ping_interval=None, create_connection=Socket
    ) as server:
        ready.send(next(iter(server.sockets)).getsockname()[1])
        while len(arrived) < connections:
            await asyncio.sleep(0.01)
        started = time.process_time()
        for _ in range(0, frames, burst):
            for outbox, attachment in arrived:
                for _ in range(burst):
                    outbox.append(frame(0))
                    flusher.mark(attachment)
            await asyncio.sleep(0)
        while any(attachment.position < outbox.latest for outbox, attachment in arrived):
            await asyncio.sleep(0.001)
        spent = time.process_time() - started
        done.set()
    return connections * frames / spent


def _side(name: str, connections: int, frames: int, burst: int, ready: Connection) -> None:
    _pin(0)
    side = {"bare": bare, "turnwire": turnwire}[name]
    ready.send(uvloop.run(side(connections, frames, burst, ready)))


def _reader(port: int, connections: int) -> None:
    _pin(1)
    read_all(port, connections)


def _pin(core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core % len(os.sched_getaffinity(0))]})


def measure(name: str, connections: int, frames: int, burst: int) -> float:
    """One side once, in processes of its own."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    server = spawn.Process(target=_side, args=(name, connections, frames, burst, theirs))
    server.start()
    reader = spawn.Process(target=_reader, args=(ours.recv(), connections))
    reader.start()
    rate: float = ours.recv()
    server.join(30)
    reader.terminate()
    reader.join()
    return rate


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 50, 500])
    parser.add_argument("--frames", type=int, default=192, help="to each connection, at 500 connections")
    parser.add_argument("--bursts", type=int, nargs="+", default=[1, 4, 32])
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    table = Table(title="Frames per CPU second; median of rounds, ratio per round", box=None)
    for heading in ("connections", "frames waiting", "bare websockets", "Turnwire", "ratio"):
        table.add_column(heading, justify="right")
    for connections in chosen.connections:
        frames = chosen.frames * max(1, 500 // connections)
        for burst in chosen.bursts:
            pairs = [
                (measure("bare", connections, frames, burst), measure("turnwire", connections, frames, burst))
                for _ in range(chosen.rounds)
            ]
            table.add_row(
                str(connections),
                str(burst),
                f"{statistics.median(bare for bare, _ in pairs):,.0f}",
                f"{statistics.median(ours for _, ours in pairs):,.0f}",
                f"{statistics.median(ours / bare for bare, ours in pairs):.1f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
