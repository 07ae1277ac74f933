"""Canvases: whole changes in, pages out.

A change is one statement, guarded by the fence of its project and by the version of the canvas: two writers
can never mix their changes, and half of one is never seen (CV1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from protocol.canvas import CreatedBy, Edge, EntityKind, Node, Position, Size
from protocol.codes import CloseCode, ErrorCode
from protocol.errors import Fault
from storage import requests
from storage.cursors import from_canvas_cursor, to_canvas_cursor
from storage.database import Database
from storage.errors import DuplicateRequest, Fenced
from storage.records import CanvasPage, CanvasWrite, RequestKey, RequestRecord

if TYPE_CHECKING:
    from asyncpg import Record

    from storage.database import Connection

_PAGE: Final = 1000
"""Rows read at once when a whole canvas is read; in between, others have their turn."""

_WRITE: Final = """
with locked as (
    select project_id from project
     where project_id = $1 and fence = $2 and canvas_version = $3 and status = 'active' and $4::jsonb is null
       for no key update
), seeded as (
    insert into project (project_id, owner, metadata, canvas_version, fence, owner_node, created_at,
        updated_at)
    select $1, s.owner, s.metadata, 1, $2, $5, s.created_at, now()
      from jsonb_to_recordset($4) as s (owner text, metadata jsonb, created_at timestamptz)
     where not exists (select from client_request r, jsonb_to_recordset($6)
                           as q (resource_id text, request_id text)
                        where r.resource_id = q.resource_id and r.request_id = q.request_id)
    on conflict do nothing
    returning project_id
), mine as (
    select project_id from locked union all select project_id from seeded
), requested as (
    insert into client_request (resource_id, request_id, kind, body_sha256, outcome)
    select q.resource_id, q.request_id, q.kind, q.body_sha256, q.outcome
      from mine, jsonb_to_recordset($6) as q (resource_id text, request_id text, kind text, body_sha256 text,
           outcome jsonb)
    on conflict do nothing
    returning request_id
), allowed as (
    select project_id from mine where not $7 or exists (select from requested)
), nodes_gone as (
    delete from canvas_node n using allowed where n.project_id = $1 and n.node_id = any ($8::uuid[])
), edges_gone as (
    delete from canvas_edge e using allowed where e.project_id = $1 and e.edge_id = any ($9::uuid[])
), nodes_put as (
    insert into canvas_node as old (project_id, node_id, type, x, y, width, height, data, version, run_id,
        tool_call_id)
    select $1, n.id, n.type, (n.position->>'x')::double precision, (n.position->>'y')::double precision,
           (n.size->>'width')::double precision, (n.size->>'height')::double precision, n.data, n.version,
           n.created_by->>'run_id', n.created_by->>'tool_call_id'
      from allowed, json_to_recordset($10::json) as n (id uuid, type text, position json, size json,
           data json, version bigint, created_by json)
    on conflict (project_id, node_id) do update
       set type = excluded.type, x = excluded.x, y = excluded.y, width = excluded.width,
           height = excluded.height, data = excluded.data, version = excluded.version, updated_at = now()
), edges_put as (
    insert into canvas_edge as old (project_id, edge_id, source, target, type, data, version, run_id,
        tool_call_id)
    select $1, e.id, e.source, e.target, e.type, e.data, e.version, e.created_by->>'run_id',
           e.created_by->>'tool_call_id'
      from allowed, json_to_recordset($11::json) as e (id uuid, source uuid, target uuid, type text,
           data json, version bigint, created_by json)
    on conflict (project_id, edge_id) do update
       set source = excluded.source, target = excluded.target, type = excluded.type, data = excluded.data,
           version = excluded.version, updated_at = now()
), advanced as (
    update project p set canvas_version = p.canvas_version + 1, updated_at = now()
      from locked, allowed where p.project_id = locked.project_id
)
select project_id from allowed
"""
_OWNED: Final = """
select exists (select from project where project_id = $1),
       exists (select from project where project_id = $1 and fence = $2 and status = 'active')
"""

_NODES: Final = """
select node_id::text as id, type, x, y, width, height, data, version, run_id, tool_call_id from canvas_node
 where project_id = $1 and ($2::uuid is null or node_id > $2) order by node_id limit $3
"""
_EDGES: Final = """
select edge_id::text as id, source::text, target::text, type, data, version, run_id, tool_call_id
  from canvas_edge
 where project_id = $1 and ($2::uuid is null or edge_id > $2) order by edge_id limit $3
"""
_VERSION: Final = """
select canvas_version from project where project_id = $1 and fence = $2 and status = 'active'
"""
_MINE: Final = """
select canvas_version from project where project_id = $1 and owner = $2 and status = 'active'
"""


class Canvases:
    """Statements on ``canvas_node`` and ``canvas_edge``."""

    def __init__(self, db: Database, *, node_id: str) -> None:
        self._db = db
        self._node_id = node_id

    async def write(self, write: CanvasWrite) -> None:
        """Write one change whole; the canvas's version goes up by one.

        Raises:
            Fenced: Another process owns the project, or its canvas is not of this version.
            DuplicateRequest, Refused, StorageUnavailable: See :mod:`storage.errors`.
        """
        request = write.request
        async with self._db.writing() as connection:
            written = await connection.fetchval(
                _WRITE,
                write.project_id,
                write.fence,
                write.version,
                None if write.seed is None else [write.seed],
                self._node_id,
                [] if request is None else [request],
                request is not None,
                list(write.deleted_node_ids),
                list(write.deleted_edge_ids),
                msgspec.json.encode(write.nodes).decode(),
                msgspec.json.encode(write.edges).decode(),
            )
            if written is None:
                raise await _why_not(connection, write, request)

    async def find_request(self, project_id: str, request_id: str) -> RequestRecord | None:
        """What is remembered of a request id (ST4)."""
        async with self._db.reading() as connection:
            return await requests.find(connection, project_id, request_id)

    async def read(self, project_id: str, fence: int) -> tuple[int, list[Node], list[Edge]]:
        """A whole canvas, for its owner: version, nodes and edges in the order of their ids.

        Nobody else can have written in between, or else the fence, which is looked at last, has moved.

        Raises:
            Fenced, StorageUnavailable.
        """
        nodes: list[Node] = []
        while page := await self._some(_NODES, project_id, nodes[-1].id if nodes else None):
            nodes += map(_node, page)
        edges: list[Edge] = []
        while page := await self._some(_EDGES, project_id, edges[-1].id if edges else None):
            edges += map(_edge, page)
        async with self._db.reading() as connection:
            version = await connection.fetchval(_VERSION, project_id, fence)
        if version is None:
            raise Fenced(project_id)
        return version, nodes, edges

    async def page(self, project_id: str, owner: str, *, limit: int, cursor: str | None = None) -> CanvasPage:
        """A page of at most ``limit`` nodes and edges, nodes first, all of one moment.

        Raises:
            Fault: ``not_found``, or ``invalid_request`` for a foreign cursor.
        """
        kind, after = from_canvas_cursor(cursor)
        async with (
            self._db.reading() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            version = await connection.fetchval(_MINE, project_id, owner)
            if version is None:
                raise Fault(ErrorCode.NOT_FOUND, close=CloseCode.NOT_FOUND)
            nodes: list[Node] = []
            if kind is EntityKind.NODE:
                nodes = [_node(row) for row in await connection.fetch(_NODES, project_id, after, limit + 1)]
                after = None
            if len(nodes) > limit:
                more = to_canvas_cursor(EntityKind.NODE, nodes[limit - 1].id)
                return CanvasPage(nodes[:limit], [], version, more)
            left = limit - len(nodes)
            edges = [_edge(row) for row in await connection.fetch(_EDGES, project_id, after, left + 1)]
        if len(edges) <= left:
            return CanvasPage(nodes, edges, version, None)
        last = (EntityKind.EDGE, edges[left - 1].id) if left else (EntityKind.NODE, nodes[-1].id)
        return CanvasPage(nodes, edges[:left], version, to_canvas_cursor(*last))

    async def _some(self, statement: str, project_id: str, after: str | None) -> list[Record]:
        async with self._db.reading() as connection:
            return await connection.fetch(statement, project_id, after, _PAGE)


async def _why_not(
    connection: Connection, write: CanvasWrite, request: RequestKey | None
) -> Fenced | DuplicateRequest:
    """Why nothing was written; losing the project counts first (as in :mod:`storage.requests`)."""
    row = await connection.fetchrow(_OWNED, write.project_id, write.fence)
    assert row is not None
    there, owned = row
    lost = there if write.seed is not None else not owned
    if not lost and request is not None:
        record = await requests.find(connection, request.resource_id, request.request_id)
        if record is not None:
            return DuplicateRequest(record)
    return Fenced(write.project_id)


def _node(row: Record) -> Node:
    width = row["width"]
    return Node(
        id=row["id"],
        type=row["type"],
        position=Position(x=row["x"], y=row["y"]),
        size=None if width is None else Size(width=width, height=row["height"]),
        data=msgspec.json.decode(row["data"]),
        version=row["version"],
        created_by=_created_by(row),
    )


def _edge(row: Record) -> Edge:
    return Edge(
        id=row["id"],
        source=row["source"],
        target=row["target"],
        type=row["type"],
        data=msgspec.json.decode(row["data"]),
        version=row["version"],
        created_by=_created_by(row),
    )


def _created_by(row: Record) -> CreatedBy | None:
    run_id: Any = row["run_id"]
    return None if run_id is None else CreatedBy(run_id=run_id, tool_call_id=row["tool_call_id"])
