"""Random batches with a bad item at a random place, killed at random and raced by a second server (CV1).

The canvas is always some sequence of whole batches; somebody who looks all the time never sees anything else.
``TURNWIRE_TEST_BATCHES`` says how many, 100 if it is not set.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from websockets.exceptions import ConnectionClosed

from protocol.ids import new_ulid
from tests.harness.client import Refused
from tests.harness.processes import ServerProcess
from tests.harness.project import Canvas, ProjectClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.client import Frame

BATCHES = int(os.environ.get("TURNWIRE_TEST_BATCHES", "100"))
SETTINGS = {"rate_burst": 10_000, "rate_per_s": 10_000}

_LOOK = """
select p.canvas_version,
       coalesce((select json_agg(json_build_array(node_id, version, type) order by node_id)
                   from canvas_node where project_id = $1), '[]') as nodes,
       coalesce((select json_agg(json_build_array(edge_id, version, source, target) order by edge_id)
                   from canvas_edge where project_id = $1), '[]') as edges
  from project p where p.project_id = $1
"""


def digest(canvas: Canvas) -> str:
    """What identifies a state of the canvas, as the database would tell it."""
    nodes = [[n["id"], n["version"], n["type"]] for _, n in sorted(canvas.nodes.items())]
    edges = [[e["id"], e["version"], e["source"], e["target"]] for _, e in sorted(canvas.edges.items())]
    return hashlib.sha256(json.dumps([nodes, edges]).encode()).hexdigest()


class Observer:
    """Looks at the database all the time, one statement at a time, and notes what it sees."""

    def __init__(self, dsn: str, project_id: str) -> None:
        self._dsn = dsn
        self._project_id = project_id
        self.seen: set[tuple[int, str]] = set()
        self.looks = 0

    async def run(self) -> None:
        connection = await asyncpg.connect(self._dsn)
        try:
            while True:
                self.note(await connection.fetchrow(_LOOK, self._project_id))
        finally:
            connection.terminate()

    async def look(self) -> tuple[int, str]:
        """The state now."""
        connection = await asyncpg.connect(self._dsn)
        try:
            return self.note(await connection.fetchrow(_LOOK, self._project_id))
        finally:
            await connection.close()

    def note(self, row: asyncpg.Record | None) -> tuple[int, str]:
        self.looks += 1
        if row is None:
            return 0, digest(Canvas())
        nodes, edges = json.loads(row["nodes"]), json.loads(row["edges"])
        found = row["canvas_version"], hashlib.sha256(json.dumps([nodes, edges]).encode()).hexdigest()
        self.seen.add(found)
        return found


class Storm:
    """One project, two servers, and a client that repeats what it does not know the outcome of."""

    def __init__(self, servers: tuple[ServerProcess, ServerProcess], project_id: str, seed: int) -> None:
        self.servers = servers
        self.project_id = project_id
        self.chance = random.Random(seed)
        self.known = Canvas()
        self.states = {(0, digest(self.known))}
        self.client: ProjectClient
        self.kills = self.races = self.bad = self.repeats = 0

    async def connect(self, server: ServerProcess) -> ProjectClient:
        return await ProjectClient.open(server.ws_url, self.project_id, client_id="storm", resume="snapshot")

    def batch(self) -> tuple[str, dict[str, Any], bool]:
        """A batch for the canvas as it is known; whether it has a bad item."""
        chance, nodes, edges = self.chance, list(self.known.nodes), list(self.known.edges)
        kind = chance.choice(["create", "update", "delete"] if len(nodes) > 20 else ["create"])
        some = chance.sample(nodes, min(len(nodes), chance.randint(1, 8)))
        links = chance.sample(edges, min(len(edges), chance.randint(0, 4)))
        items: dict[str, list[Any]]
        if kind == "create":
            count = chance.randint(1, 20)
            items = {
                "nodes": [{"temp_id": f"n{n}", "data": {"n": n}} for n in range(count)],
                "edges": [
                    {"source": f"n{chance.randrange(count)}", "target": chance.choice([*nodes, "n0"])}
                    for _ in range(chance.randint(0, 10))
                ],
            }
            bad: list[Any] = [5, {"temp_id": "n0"}, {"position": {"x": "y"}}]
        elif kind == "update":
            items = {
                "nodes": [
                    {"id": n, "version": self.known.nodes[n]["version"], "type": f"t{chance.randrange(9)}"}
                    for n in some
                ],
                "edges": [
                    {"id": e, "version": self.known.edges[e]["version"], "target": some[0]} for e in links
                ],
            }
            bad = [{"id": some[0], "version": 10**6}, {"id": new_ulid(), "version": 1}, {}]
        else:
            items = {"node_ids": some, "edge_ids": links}
            bad = ["00000000-0000-7000-8000-000000000000", some[0], None]
        spoilt = chance.random() < 0.5
        if spoilt:
            first = next(iter(items.values()))
            first.insert(chance.randint(1, len(first)), chance.choice(bad))
            self.bad += 1
        return f"batch_{kind}", items, spoilt

    async def step(self) -> None:
        kind, items, spoilt = self.batch()
        request_id = new_ulid()
        fate = self.chance.random()
        if fate < 0.08:
            await self.kill_within(kind, items, request_id)
        elif fate < 0.16:
            await self.race(kind, items, request_id)
        result = await self.client.canvas(kind, request_id=request_id, **items)
        assert result["type"] == "canvas_batch_result", result
        assert result["success"] is not spoilt, result
        self.repeats += "repeated" in result
        if result["success"]:
            version = self.known.version + 1
            assert result["canvas_version"] == version
            self.known.take({**result, "seq": 0})
            self.states.add((version, digest(self.known)))
        else:
            assert result["errors"]

    async def kill_within(self, kind: str, items: dict[str, Any], request_id: str) -> None:
        """The power goes out at a random moment of a batch."""
        self.kills += 1
        server = self.servers[0]
        await self.client.send(f"canvas_{kind}", domain="canvas", request_id=request_id, **items)
        await asyncio.sleep(self.chance.uniform(0.0, 0.012))
        server.kill()
        await asyncio.to_thread(server.start)
        self.client = await self.connect(server)

    async def race(self, kind: str, items: dict[str, Any], request_id: str) -> None:
        """Another server takes the project while the batch is on its way, and then sends it too."""
        self.races += 1
        other = self.servers[1]
        old = self.client

        async def send() -> None:
            with contextlib.suppress(ConnectionClosed):
                await old.send(f"canvas_{kind}", domain="canvas", request_id=request_id, **items)

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            taken = group.create_task(self.connect(other))
        self.client = taken.result()
        self.servers = (other, self.servers[0])
        late = new_ulid()
        with contextlib.suppress(ConnectionClosed):
            # Whoever lost the project must not change it any more.
            await old.send("canvas_node_create", domain="canvas", request_id=late, node={})
            code, frames = await old.closed()
            assert code == 4012, frames
            assert not [f for f in frames if f.get("request_id") == late]


@pytest.fixture
def two_servers(database_url: str) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    servers = (ServerProcess(database_url, **SETTINGS), ServerProcess(database_url, **SETTINGS))
    for server in servers:
        server.start()
    yield servers
    for server in servers:
        server.close()


@pytest.mark.timeout(max(300, BATCHES))
async def test_CV1_the_canvas_is_always_a_sequence_of_whole_batches(
    two_servers: tuple[ServerProcess, ServerProcess], database_url: str
) -> None:
    storm = Storm(two_servers, new_ulid(), seed=7)
    observer = Observer(database_url, storm.project_id)
    storm.client = await storm.connect(two_servers[0])
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(observer.run())
        for _ in range(BATCHES):
            await storm.step()
            assert await observer.look() == (storm.known.version, digest(storm.known))
        looking.cancel()
    assert observer.seen <= storm.states
    assert storm.kills
    assert storm.races
    assert storm.bad > BATCHES / 4
    print(
        f"{BATCHES} batches: {storm.bad} bad, {storm.kills} kills, {storm.races} races,"
        f" {storm.repeats} repeats;"
        f" {observer.looks} looks saw {len(observer.seen)} of {len(storm.states)} states and nothing else"
    )
    assert (await storm.client.whole_canvas()) == storm.known


async def test_two_servers_race_for_one_project_and_the_fence_holds(
    two_servers: tuple[ServerProcess, ServerProcess], database_url: str
) -> None:
    """Both clients send as fast as they can, and each takes the project back whenever it lost it."""
    project_id = new_ulid()
    done: list[Frame] = []
    codes: set[int | None] = set()

    async def insist(server: ServerProcess, name: str) -> None:
        made = 0
        while made < 15:
            try:
                client = await ProjectClient.open(
                    server.ws_url, project_id, client_id=name, resume="snapshot"
                )
            except Refused as refused:
                codes.add(refused.code)
                continue
            try:
                while made < 15:
                    result = await client.canvas(
                        "batch_create", request_id=f"{name}-{made}", nodes=[{"type": name}, {"type": name}]
                    )
                    assert result["success"], result
                    made += 1
                    done.append(result)
                    await asyncio.sleep(0)
            except ConnectionClosed as closed:
                codes.add(closed.rcvd.code if closed.rcvd else None)
            finally:
                client.drop()

    async with asyncio.TaskGroup() as group:
        for server, name in zip(two_servers, ("a", "b"), strict=True):
            group.create_task(insist(server, name))
    assert codes <= {4012}
    versions = sorted(result["canvas_version"] for result in done)
    assert versions == list(range(1, 31))
    connection = await asyncpg.connect(database_url)
    row = await connection.fetchrow(_LOOK, project_id)
    await connection.close()
    assert row is not None
    assert (row["canvas_version"], len(json.loads(row["nodes"]))) == (30, 60)
