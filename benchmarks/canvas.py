"""What a canvas batch and a tool call cost through a really started server, against a bare peer.

- Batches of 100 nodes, one after the other, and single nodes. The bare peer is a ``websockets`` server that
  decodes the frame, inserts the nodes in one transaction of the same Postgres and answers with them: no
  checks, versions, fences, request ids, sequence or replay.
- A turn with a call of ``current_time`` and one without, the model behind ``turnwire stub-llm``. The bare
  peer asks the same endpoint itself, does the same for the call and asks again, and stores nothing.

The sides run in turns and ratios are taken per round; Postgres is our own, with fsync, in a temporary
folder::

    python -m benchmarks.canvas [--batches 40] [--items 100] [--turns 30] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import asyncpg
import httpx2
import msgspec
import uvloop
from rich.console import Console
from rich.table import Table
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

from protocol.ids import new_ulid
from storage.embedded import EmbeddedPostgres
from storage.migrate import upgrade

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from multiprocessing.connection import Connection

    from websockets.asyncio.client import ClientConnection
    from websockets.asyncio.server import ServerConnection

Frame = dict[str, Any]

_ROOT: Final = Path(__file__).parents[1]
_NO_LIMITS: Final = {
    "TURNWIRE_RATE_BURST": "1000000",
    "TURNWIRE_RATE_PER_S": "1000000",
    "TURNWIRE_CANVAS_NODES": "1000000",
}
_SCRIPTS: Final = """
[[scripts.plain.turns]]
actions = [{ text = "It is late." }]

[[scripts.tool.turns]]
actions = [{ tool_call = { name = "current_time", arguments = {} } }]

[[scripts.tool.turns]]
actions = [{ text = "It is late." }]
"""
_CREATE: Final = "create table bare_node (id uuid primary key, type text, x float, y float, data jsonb)"
_INSERT: Final = """
insert into bare_node
select gen_random_uuid(), 'default', 0, 0, data from unnest($1::jsonb[]) as data returning id, data
"""


class Cost(NamedTuple):
    """One round of one side: seconds of each request, in the order of sending."""

    batches: list[float]
    singles: list[float]


class Turns(NamedTuple):
    """One round of one side: seconds of each turn, with a tool call and without."""

    tool: list[float]
    plain: list[float]


async def _bare(dsn: str, ready: Connection) -> None:
    """The peer that does nothing but insert and answer; until it is ended."""
    async with asyncpg.create_pool(dsn, min_size=1, max_size=2) as pool:

        async def answer(ws: ServerConnection) -> None:
            async for message in ws:
                frame = msgspec.json.decode(message)
                nodes = frame["nodes"] if "nodes" in frame else [frame["node"]]
                rows = await pool.fetch(_INSERT, [json.dumps(node["data"]) for node in nodes])
                made = [{"id": str(row["id"]), "data": json.loads(row["data"])} for row in rows]
                await ws.send(
                    msgspec.json.encode({"request_id": frame["request_id"], "nodes": made}), text=True
                )

        async with serve(answer, "127.0.0.1", 0, compression=None) as server:
            ready.send(next(iter(server.sockets)).getsockname()[1])
            await asyncio.get_running_loop().create_future()


def _run_bare(dsn: str, ready: Connection) -> None:
    uvloop.run(_bare(dsn, ready))


@contextlib.contextmanager
def _bare_process(dsn: str) -> Iterator[str]:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_run_bare, args=(dsn, theirs), daemon=True)
    process.start()
    try:
        yield f"ws://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


@contextlib.contextmanager
def _program(arguments: list[str], variables: dict[str, str]) -> Iterator[str]:
    """One of the project's own commands; gives the address that it says when it is ready."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TURNWIRE_", "OPENAI_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "server", *arguments],
        cwd=_ROOT,
        env={**inherited, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = next((line for line in process.stdout if "ready" in line), None)
        if line is None:
            sys.exit(f"{arguments[0]} did not start")
        yield line.split()[-1]
    finally:
        process.terminate()
        process.wait()


async def _timed(ws: ClientConnection, frames: list[Frame]) -> list[float]:
    """Send one frame after the other, each when the one before was answered."""
    taken = []
    for frame in frames:
        request_id = new_ulid()
        began = time.perf_counter()
        await ws.send(json.dumps({**frame, "request_id": request_id}), text=True)
        while (answer := json.loads(await ws.recv())).get("request_id") != request_id:
            pass
        taken.append(time.perf_counter() - began)
        assert answer["nodes"], answer
    return taken


async def _changes(url: str, batches: int, items: int) -> Cost:
    node = {"data": {"label": "a node of some size", "tags": ["one", "two"], "done": False}}
    batch = {"type": "canvas_batch_create", "domain": "canvas", "nodes": [node] * items}
    single = {"type": "canvas_node_create", "domain": "canvas", "node": node}
    async with connect(f"{url}/ws/projects/{new_ulid()}", compression=None, max_size=None) as ws:
        await _timed(ws, [single, batch])
        return Cost(await _timed(ws, [batch] * batches), await _timed(ws, [single] * batches))


async def _conversation(ws_url: str, model: str, turns: int) -> AsyncIterator[float]:
    """The time from each request of a completion to its end, in conversations of their own."""
    for _ in range(turns):
        async with connect(f"{ws_url}/ws/conversations/{new_ulid()}", compression=None) as ws:
            ask = {"type": "append_message", "request_id": "q", "role": "user", "content": "How late is it?"}
            await ws.send(json.dumps(ask), text=True)
            while json.loads(await ws.recv())["type"] != "message_appended":
                pass
            began = time.perf_counter()
            await ws.send(
                json.dumps({"type": "request_completion", "request_id": "r", "model": f"script/{model}"}),
                text=True,
            )
            while (frame := json.loads(await ws.recv()))["type"] != "completion_done":
                pass
            assert frame["finish_reason"] == "stop", frame
            yield time.perf_counter() - began


async def _ask(http: httpx2.AsyncClient, model: str, messages: list[Frame]) -> Frame:
    """One call of the model, streamed and put together."""
    said: Frame = {"role": "assistant", "content": ""}
    body = {"model": f"script/{model}", "stream": True, "messages": messages}
    async with http.stream("POST", "/v1/chat/completions", json=body) as response:
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line[6:])["choices"]:
                said["content"] += choice["delta"].get("content") or ""
                for part in choice["delta"].get("tool_calls") or ():
                    if part.get("id"):
                        said["tool_calls"] = [part]
                    else:
                        said["tool_calls"][0]["function"]["arguments"] += part["function"]["arguments"]
    return said


async def _alone(stub_url: str, model: str, turns: int) -> AsyncIterator[float]:
    """The same turns without a server."""
    async with httpx2.AsyncClient(base_url=stub_url) as http:
        for _ in range(turns):
            began = time.perf_counter()
            messages: list[Frame] = [{"role": "user", "content": "How late is it?"}]
            said = await _ask(http, model, messages)
            if "tool_calls" in said:
                result = {
                    "role": "tool",
                    "tool_call_id": said["tool_calls"][0]["id"],
                    "content": json.dumps({"time": datetime.now(UTC).isoformat()}),
                }
                said = await _ask(http, model, [*messages, said, result])
            assert said["content"] == "It is late.", said
            yield time.perf_counter() - began


async def _turns(side: Callable[[str, str, int], AsyncIterator[float]], url: str, turns: int) -> Turns:
    _ = [took async for took in side(url, "tool", 1)]
    return Turns(
        [took async for took in side(url, "tool", turns)], [took async for took in side(url, "plain", turns)]
    )


def _ms(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1000


def _row(table: Table, name: str, bare: list[list[float]], ours: list[list[float]], per_s: int) -> None:
    """Medians of all rounds; the ratio is ours over bare, of each round's medians."""
    ratio = statistics.median(_ms(o) / _ms(b) for b, o in zip(bare, ours, strict=True))
    flat = [[took for some in side for took in some] for side in (bare, ours)]
    rates = [f"{per_s * len(side) / sum(side):,.0f}" for side in flat]
    table.add_row(name, *(f"{_ms(side):.2f}" for side in flat), f"{ratio:.2f}", *rates)


def _table(title: str, per_s: str) -> Table:
    table = Table(title=title, box=None)
    table.add_column("")
    for heading in ("bare ms", "Turnwire ms", "ratio", f"bare {per_s}", f"Turnwire {per_s}"):
        table.add_column(heading, justify="right")
    return table


async def _prepare(dsn: str) -> None:
    await upgrade(dsn)
    connection = await asyncpg.connect(dsn)
    await connection.execute(_CREATE)
    await connection.close()


def _measure(dsn: str, scripts: Path, chosen: argparse.Namespace) -> None:
    changes: list[tuple[Cost, Cost]] = []
    turns: list[tuple[Turns, Turns]] = []
    with contextlib.ExitStack() as stack:
        stub = stack.enter_context(_program(["stub-llm", "--script", str(scripts), "--port", "0"], {}))
        variables = {"TURNWIRE_PORT": "0", "DATABASE_URL": dsn, **_NO_LIMITS}
        variables |= {"OPENAI_BASE_URL": f"{stub.removesuffix('/v1')}/v1", "OPENAI_API_KEY": "unused"}
        server = stack.enter_context(_program(["serve"], variables)).replace("http", "ws", 1)
        bare = stack.enter_context(_bare_process(dsn))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for _ in range(chosen.rounds):
                sides = [runner.run(_changes(url, chosen.batches, chosen.items)) for url in (bare, server)]
                changes.append((sides[0], sides[1]))
                alone = runner.run(_turns(_alone, stub.removesuffix("/v1"), chosen.turns))
                turns.append((alone, runner.run(_turns(_conversation, server, chosen.turns))))
    _report(changes, turns, chosen.items)


def _report(changes: list[tuple[Cost, Cost]], turns: list[tuple[Turns, Turns]], items: int) -> None:
    console = Console()
    table = _table("Canvas, one change after the other; median of all, ratio per round", "items/s")
    _row(table, f"batch of {items}", [b.batches for b, _ in changes], [o.batches for _, o in changes], items)
    _row(table, "single node", [b.singles for b, _ in changes], [o.singles for _, o in changes], 1)
    console.print(table)
    cheaper = statistics.median(items * _ms(o.singles) / _ms(o.batches) for _, o in changes)
    batches = [took for _, ours in changes for took in ours.batches]
    console.print(
        f"{len(batches) / sum(batches):,.0f} batches/s through the server;"
        f" an item of a batch costs 1/{cheaper:.0f} of a single one\n"
    )
    table = _table("A completion, from the request to its end", "turns/s")
    _row(table, "with a tool call", [b.tool for b, _ in turns], [o.tool for _, o in turns], 1)
    _row(table, "without", [b.plain for b, _ in turns], [o.plain for _, o in turns], 1)
    console.print(table)
    added = [[_ms(side.tool) - _ms(side.plain) for side in (bare, ours)] for bare, ours in turns]
    console.print(
        f"A call with its second turn takes {statistics.median(bare for bare, _ in added):.2f} ms bare and"
        f" {statistics.median(ours for _, ours in added):.2f} ms through the server,"
        f" which adds {statistics.median(ours - bare for bare, ours in added):.2f} ms"
        f" (ratio {statistics.median(ours / bare for bare, ours in added):.1f}) and stores all of it."
    )


def main() -> None:
    """Start everything, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=40, help="a round and side, and as many single nodes")
    parser.add_argument("--items", type=int, default=100, help="of a batch")
    parser.add_argument("--turns", type=int, default=30, help="a round and side, of each kind")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tw-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        folder.chmod(0o755)
        scripts = folder / "scripts"
        scripts.mkdir()
        (scripts / "canvas.toml").write_text(_SCRIPTS)
        with EmbeddedPostgres.attached(folder / "postgres") as dsn:
            asyncio.run(_prepare(dsn))
            _measure(dsn, scripts, chosen)


if __name__ == "__main__":
    main()
