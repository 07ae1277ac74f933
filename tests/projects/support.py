"""Short ways to make projects and changes of their canvases."""

from __future__ import annotations

from protocol.canvas import Edge, Node
from protocol.ids import new_ulid, new_uuid
from storage.records import CanvasWrite, ProjectSeed, RequestKey
from tests.storage.support import OWNER


def node(**fields: object) -> Node:
    return Node(**{"id": new_uuid(), **fields})


def edge(source: Node, target: Node) -> Edge:
    return Edge(id=new_uuid(), source=source.id, target=target.id)


def change(
    project_id: str,
    version: int,
    *entities: Node | Edge,
    fence: int = 1,
    request_id: str | None = None,
    gone: tuple[str, ...] = (),
    gone_edges: tuple[str, ...] = (),
) -> CanvasWrite:
    """A change; that of version 0 brings the seed."""
    return CanvasWrite(
        project_id=project_id,
        fence=fence,
        version=version,
        nodes=tuple(entity for entity in entities if isinstance(entity, Node)),
        edges=tuple(entity for entity in entities if isinstance(entity, Edge)),
        deleted_node_ids=gone,
        deleted_edge_ids=gone_edges,
        seed=ProjectSeed(project_id, OWNER) if version == 0 else None,
        request=None if request_id is None else RequestKey(project_id, request_id, "canvas", "00"),
    )


def new_project() -> str:
    return new_ulid()
