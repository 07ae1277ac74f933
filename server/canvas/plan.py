"""What becomes of edits: one whole change of the canvas, or none and why (CV1 to CV3, CV5, CV6). Pure.

:func:`plan` looks at the canvas through what the edits touch and leaves it as it is. Its cost is that of the
batch, and of the edges that go with deleted nodes, not of the canvas.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from protocol.canvas import (
    CanvasOp,
    CanvasProblem,
    CreatedBy,
    Edge,
    EdgeDraft,
    EdgePatch,
    EntityKind,
    Node,
    NodeDraft,
    NodePatch,
)
from protocol.codes import ErrorCode
from server.canvas.document import Canvas, Change, Limits
from server.canvas.edits import Edits, Item
from server.canvas.merge import json_bytes, merged

_OPS: Final = list(CanvasOp)
_KINDS: Final = list(EntityKind)


class Rejected(Struct, frozen=True):
    """Some items are bad: all that are, by op, kind and index."""

    problems: tuple[CanvasProblem, ...]


class TooLarge(Struct, frozen=True):
    """The edits as a whole, or the canvas that they would make, pass a limit."""

    message: str
    limit: int


Decision: TypeAlias = Change | Rejected | TooLarge


def plan(
    canvas: Canvas,
    edits: Edits,
    limits: Limits,
    *,
    new_id: Callable[[], str],
    created_by: CreatedBy | None = None,
) -> Decision:
    """Decide what edits do to a canvas, which stays as it is; total.

    Within one batch, what is created may be named by what is created or changed, and what is deleted by
    nothing else. An entity is changed or deleted once.

    Args:
        new_id: Gives the id of each entity that is made.
        created_by: The tool call that makes them, ``None`` for a person (CV5).
    """
    if edits.size > limits.batch_items:
        return TooLarge(f"a batch has at most {limits.batch_items} items", limits.batch_items)
    return _Plan(canvas, limits, edits, new_id, created_by).decide()


class _At(NamedTuple):
    """Which item of a batch."""

    op: CanvasOp
    kind: EntityKind
    position: int


class _Plan:
    """One decision under way: the overlay over the canvas, and what is wrong so far."""

    def __init__(
        self,
        canvas: Canvas,
        limits: Limits,
        edits: Edits,
        new_id: Callable[[], str],
        created_by: CreatedBy | None,
    ) -> None:
        self._canvas = canvas
        self._limits = limits
        self._edits = edits
        self._new_id = new_id
        self._created_by = created_by
        self._problems = list(edits.problems)
        self._temp_ids: dict[str, str] = {}
        self._temp_nodes: dict[str, str] = {}
        self._nodes: dict[str, Node] = {}
        self._edges: dict[str, Edge] = {}
        self._sizes: dict[str, int] = {}
        self._gone_nodes: dict[str, None] = {}
        self._gone_edges: dict[str, None] = {}

    def decide(self) -> Decision:
        edits, canvas = self._edits, self._canvas
        self._delete(EntityKind.NODE, edits.node_ids, canvas.nodes, self._gone_nodes)
        self._delete(EntityKind.EDGE, edits.edge_ids, canvas.edges, self._gone_edges)
        # All are named before any is made: an edge may name each node of its batch.
        node_ids = [self._name(EntityKind.NODE, draft.at, draft.value.temp_id) for draft in edits.node_drafts]
        edge_ids = [self._name(EntityKind.EDGE, draft.at, draft.value.temp_id) for draft in edits.edge_drafts]
        for node_id, node_draft in zip(node_ids, edits.node_drafts, strict=True):
            self._create_node(node_id, node_draft)
        for node_patch in edits.node_patches:
            self._update_node(node_patch)
        for edge_id, edge_draft in zip(edge_ids, edits.edge_drafts, strict=True):
            self._create_edge(edge_id, edge_draft)
        for edge_patch in edits.edge_patches:
            self._update_edge(edge_patch)
        self._delete_edges_of_nodes()
        if self._problems:
            return Rejected(tuple(sorted(self._problems, key=_place)))
        return self._too_large() or Change(
            version=canvas.version + 1,
            temp_ids=self._temp_ids,
            nodes=tuple(self._nodes.values()),
            edges=tuple(self._edges.values()),
            deleted_node_ids=tuple(self._gone_nodes),
            deleted_edge_ids=tuple(self._gone_edges),
            data_bytes=self._sizes,
        )

    def _delete(
        self, kind: EntityKind, items: Sequence[Item[str]], there: Container[str], gone: dict[str, None]
    ) -> None:
        for index, entity_id in items:
            at = _At(CanvasOp.DELETE, kind, index)
            if entity_id not in there:
                self._missing(at)
            elif entity_id in gone:
                self._bad(at, "id", f"this {kind} is deleted twice")
            else:
                gone[entity_id] = None

    def _name(self, kind: EntityKind, index: int, temp_id: str | None) -> str:
        """The id of a new entity; its temporary one is noted."""
        entity_id = self._new_id()
        if temp_id is None:
            return entity_id
        at = _At(CanvasOp.CREATE, kind, index)
        if temp_id in self._temp_ids:
            self._bad(at, "temp_id", "this temp_id is used twice")
        elif temp_id in self._canvas.nodes or temp_id in self._canvas.edges:
            self._bad(at, "temp_id", "this temp_id is an id of the canvas")
        else:
            self._temp_ids[temp_id] = entity_id
            if kind is EntityKind.NODE:
                self._temp_nodes[temp_id] = entity_id
        return entity_id

    def _create_node(self, node_id: str, item: Item[NodeDraft]) -> None:
        draft = item.value
        self._measure(_At(CanvasOp.CREATE, EntityKind.NODE, item.at), node_id, draft.data)
        self._nodes[node_id] = Node(
            id=node_id,
            type=draft.type,
            position=draft.position,
            size=draft.size,
            data=draft.data,
            created_by=self._created_by,
        )

    def _create_edge(self, edge_id: str, item: Item[EdgeDraft]) -> None:
        draft = item.value
        at = _At(CanvasOp.CREATE, EntityKind.EDGE, item.at)
        self._measure(at, edge_id, draft.data)
        self._edges[edge_id] = Edge(
            id=edge_id,
            source=self._resolve(at, "source", draft.source),
            target=self._resolve(at, "target", draft.target),
            type=draft.type,
            data=draft.data,
            created_by=self._created_by,
        )

    def _update_node(self, item: Item[NodePatch]) -> None:
        patch = item.value
        at = _At(CanvasOp.UPDATE, EntityKind.NODE, item.at)
        node = self._canvas.nodes.get(patch.id)
        if not self._may_update(at, patch, node, self._nodes, self._gone_nodes):
            return
        assert node is not None
        data = _patched(node.data, patch.data)
        self._measure(at, node.id, data)
        self._nodes[node.id] = replace(
            node,
            type=_given(patch.type, node.type),
            position=_given(patch.position, node.position),
            size=_given(patch.size, node.size),
            data=data,
            version=node.version + 1,
        )

    def _update_edge(self, item: Item[EdgePatch]) -> None:
        patch = item.value
        at = _At(CanvasOp.UPDATE, EntityKind.EDGE, item.at)
        edge = self._canvas.edges.get(patch.id)
        if not self._may_update(at, patch, edge, self._edges, self._gone_edges):
            return
        assert edge is not None
        data = _patched(edge.data, patch.data)
        self._measure(at, edge.id, data)
        self._edges[edge.id] = replace(
            edge,
            source=self._end(at, "source", patch.source, edge.source),
            target=self._end(at, "target", patch.target, edge.target),
            type=_given(patch.type, edge.type),
            data=data,
            version=edge.version + 1,
        )

    def _may_update(
        self,
        at: _At,
        patch: NodePatch | EdgePatch,
        current: Node | Edge | None,
        changed: Container[str],
        gone: Container[str],
    ) -> bool:
        if current is None:
            self._missing(at)
        elif patch.id in changed:
            self._bad(at, "id", f"this {at.kind} is changed twice")
        elif patch.id in gone:
            self._bad(at, "id", f"this {at.kind} is deleted by the same batch")
        elif patch.version != current.version:
            message = f"this {at.kind} has version {current.version} by now"
            self._bad(at, "version", message, code=ErrorCode.VERSION_CONFLICT, details={"current": current})
        else:
            return True
        return False

    def _end(self, at: _At, field: str, wanted: str | UnsetType, present: str) -> str:
        """Where an edge that is changed begins or ends afterwards."""
        if wanted is not UNSET:
            return self._resolve(at, field, wanted)
        if present in self._gone_nodes:
            self._bad(at, "id", f"this edge goes with its {field}, which the same batch deletes")
        return present

    def _resolve(self, at: _At, field: str, reference: str) -> str:
        """The node that an edge refers to by id or temporary id."""
        node_id = self._temp_nodes.get(reference, reference)
        if node_id in self._gone_nodes:
            self._bad(at, field, "this node is deleted by the same batch")
        elif not (
            node_id in self._nodes or node_id in self._canvas.nodes or node_id in self._edits.lost_temp_ids
        ):
            self._bad(at, field, "there is no such node")
        return node_id

    def _delete_edges_of_nodes(self) -> None:
        """Edges go with their nodes (CV3), unless this very batch leads them elsewhere."""
        for node_id in self._gone_nodes:
            for edge_id in sorted(self._canvas.edges_of(node_id)):
                if edge_id not in self._edges:
                    self._gone_edges[edge_id] = None

    def _measure(self, at: _At, entity_id: str, data: dict[str, Any]) -> None:
        size = self._sizes[entity_id] = json_bytes(data)
        limit = self._limits.data_bytes
        if size > limit:
            message = f"data has {size} bytes, at most {limit} are allowed"
            self._bad(at, "data", message, code=ErrorCode.TOO_LARGE, details={"limit": limit})

    def _too_large(self) -> TooLarge | None:
        """Only growing is refused, so that a canvas over a limit that was lowered can be made smaller."""
        canvas, limits, edits = self._canvas, self._limits, self._edits
        nodes = len(canvas.nodes) + len(edits.node_drafts) - len(self._gone_nodes)
        if edits.node_drafts and nodes > limits.nodes:
            return TooLarge(f"a canvas has at most {limits.nodes} nodes", limits.nodes)
        edges = len(canvas.edges) + len(edits.edge_drafts) - len(self._gone_edges)
        if edits.edge_drafts and edges > limits.edges:
            return TooLarge(f"a canvas has at most {limits.edges} edges", limits.edges)
        put = sum(self._sizes.values())
        if put > limits.change_bytes:
            message = f"one change has at most {limits.change_bytes} bytes of data"
            return TooLarge(message, limits.change_bytes)
        replaced = chain(self._sizes, self._gone_nodes, self._gone_edges)
        grown = put - sum(map(canvas.size_of, replaced))
        if grown > 0 and canvas.data_bytes + grown > limits.canvas_bytes:
            message = f"a canvas has at most {limits.canvas_bytes} bytes of data"
            return TooLarge(message, limits.canvas_bytes)
        return None

    def _missing(self, at: _At) -> None:
        self._bad(at, "id", f"there is no such {at.kind}", code=ErrorCode.NOT_FOUND)

    def _bad(
        self,
        at: _At,
        field: str,
        message: str,
        *,
        code: ErrorCode = ErrorCode.INVALID_CANVAS,
        details: dict[str, Any] | None = None,
    ) -> None:
        self._problems.append(
            CanvasProblem(
                op=at.op,
                kind=at.kind,
                index=at.position,
                field=field,
                code=code,
                message=message,
                details=details or {},
            )
        )


def _place(problem: CanvasProblem) -> tuple[int, int, int, str]:
    return _OPS.index(problem.op), _KINDS.index(problem.kind), problem.index, problem.field or ""


def _patched(data: dict[str, Any], patch: dict[str, Any] | UnsetType) -> dict[str, Any]:
    if patch is UNSET:
        return data
    result: dict[str, Any] = merged(data, patch)
    return result


def _given(wanted: Any, present: Any) -> Any:
    return present if wanted is UNSET else wanted
