"""A canvas in memory, and the whole changes by which alone it becomes another one. Pure.

What becomes of a batch is decided in :mod:`server.canvas.plan`, which changes nothing; the
:class:`Change` it makes is written to the store first and then applied with :meth:`Canvas.apply`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from protocol.canvas import Edge, EntityKind, Node
from server.canvas.merge import json_bytes


class Limits(Struct, frozen=True, kw_only=True):
    """What a canvas may grow to (CV6).

    ``change_bytes`` bounds the ``data`` that one change carries, for it is told whole; ``canvas_bytes`` the
    ``data`` of a canvas in all, for it is held in memory.
    """

    nodes: int = 10_000
    edges: int = 50_000
    batch_items: int = 500
    data_bytes: int = 65_536
    change_bytes: int = 2_097_152
    canvas_bytes: int = 67_108_864


class Change(Struct, frozen=True, kw_only=True):
    """What a batch does, whole: entities as they will be, ids that go, the canvas's version afterwards."""

    version: int
    temp_ids: dict[str, str] = {}
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    deleted_node_ids: tuple[str, ...] = ()
    deleted_edge_ids: tuple[str, ...] = ()
    data_bytes: dict[str, int] = {}
    """By id, the size of ``data`` of each entity that is put."""


class Page(NamedTuple):
    """Some of a canvas: nodes before edges, each in the order of their ids, which is that of their making."""

    nodes: list[Node]
    edges: list[Edge]
    last: tuple[EntityKind, str] | None
    """What the next page comes after; ``None`` at the end."""


class Canvas:
    """The nodes and edges of one canvas; changes only by :meth:`apply`.

    - ``version`` counts the changes; 0 is the empty canvas that never had one.
    - The edges of a node are indexed, so that deleting it does not look at all edges.
    """

    def __init__(self, version: int = 0, nodes: Iterable[Node] = (), edges: Iterable[Edge] = ()) -> None:
        self.version = version
        self.nodes: dict[str, Node] = {}
        self.edges: dict[str, Edge] = {}
        self.data_bytes = 0
        """The size of all ``data``."""
        self._sizes: dict[str, int] = {}
        self._edges_of: defaultdict[str, set[str]] = defaultdict(set)
        for node in nodes:
            self._put_node(node, json_bytes(node.data))
        for edge in edges:
            self._put_edge(edge, json_bytes(edge.data))

    def edges_of(self, node_id: str) -> Iterable[str]:
        """The ids of the edges that begin or end at a node."""
        return self._edges_of.get(node_id, ())

    def size_of(self, entity_id: str) -> int:
        """The size of an entity's ``data``; 0 when it is not there."""
        return self._sizes.get(entity_id, 0)

    def page(self, after: tuple[EntityKind, str | None], *, max_items: int, max_data_bytes: int) -> Page:
        """What comes after a node or an edge, as much as fits; at least one entity, if there is one.

        What is made while somebody turns the pages comes on a later one.
        """
        kind, after_id = after
        nodes: list[Node] = []
        edges: list[Edge] = []
        size = 0
        last: tuple[EntityKind, str] | None = None
        for here in (EntityKind.NODE, EntityKind.EDGE):
            if (here, kind) == (EntityKind.NODE, EntityKind.EDGE):
                continue
            ids = sorted(self.nodes if here is EntityKind.NODE else self.edges)
            start = 0 if after_id is None or here is not kind else bisect_right(ids, after_id)
            for entity_id in ids[start:]:
                size += self._sizes[entity_id]
                if last is not None and (len(nodes) + len(edges) == max_items or size > max_data_bytes):
                    return Page(nodes, edges, last)
                last = (here, entity_id)
                if here is EntityKind.NODE:
                    nodes.append(self.nodes[entity_id])
                else:
                    edges.append(self.edges[entity_id])
        return Page(nodes, edges, None)

    def apply(self, change: Change) -> None:
        """Take over a change that was planned on this very version."""
        assert change.version == self.version + 1
        for edge_id in change.deleted_edge_ids:
            self._drop_edge(edge_id)
        for node in change.nodes:
            self._put_node(node, change.data_bytes[node.id])
        for edge in change.edges:
            if edge.id in self.edges:
                self._drop_edge(edge.id)
            self._put_edge(edge, change.data_bytes[edge.id])
        for node_id in change.deleted_node_ids:
            del self.nodes[node_id]
            self._edges_of.pop(node_id, None)
            self.data_bytes -= self._sizes.pop(node_id)
        self.version = change.version

    def _put_node(self, node: Node, size: int) -> None:
        self.nodes[node.id] = node
        self.data_bytes += size - self._sizes.get(node.id, 0)
        self._sizes[node.id] = size

    def _put_edge(self, edge: Edge, size: int) -> None:
        self.edges[edge.id] = edge
        self.data_bytes += size
        self._sizes[edge.id] = size
        self._edges_of[edge.source].add(edge.id)
        self._edges_of[edge.target].add(edge.id)

    def _drop_edge(self, edge_id: str) -> None:
        edge = self.edges.pop(edge_id)
        self.data_bytes -= self._sizes.pop(edge_id)
        self._edges_of[edge.source].discard(edge_id)
        self._edges_of[edge.target].discard(edge_id)
