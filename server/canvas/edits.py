"""What somebody wants of a canvas: items to create, to change and to delete, each with its place. Pure.

A frame of one item and a batch of many are the same here. Items that are malformed have become problems; that
an item is wrong (an id that is not there, a stale version) is for :mod:`server.canvas.plan` to find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar, assert_never

import msgspec
from msgspec import Raw, Struct

from protocol.canvas import (
    CanvasProblem,
    EdgeDraft,
    EdgePatch,
    EntityKind,
    NodeDraft,
    NodePatch,
    decode_edge_drafts,
    decode_edge_patches,
    decode_ids,
    decode_node_drafts,
    decode_node_patches,
)
from protocol.client_frames import (
    CanvasBatchCreate,
    CanvasBatchDelete,
    CanvasBatchUpdate,
    CanvasEdgeCreate,
    CanvasEdgeDelete,
    CanvasEdgeUpdate,
    CanvasNodeCreate,
    CanvasNodeDelete,
    CanvasNodeUpdate,
)

T = TypeVar("T")

BatchFrame: TypeAlias = CanvasBatchCreate | CanvasBatchUpdate | CanvasBatchDelete
SingleFrame: TypeAlias = (
    CanvasNodeCreate
    | CanvasNodeUpdate
    | CanvasNodeDelete
    | CanvasEdgeCreate
    | CanvasEdgeUpdate
    | CanvasEdgeDelete
)


class Item(NamedTuple, Generic[T]):
    """A well-formed item, and the index at which it came in its list."""

    at: int
    value: T


class Edits(Struct, frozen=True, kw_only=True):
    """Everything of one batch.

    ``lost_temp_ids`` are those of malformed drafts: what refers to them is not wrong for that.
    """

    node_drafts: Sequence[Item[NodeDraft]] = ()
    edge_drafts: Sequence[Item[EdgeDraft]] = ()
    node_patches: Sequence[Item[NodePatch]] = ()
    edge_patches: Sequence[Item[EdgePatch]] = ()
    node_ids: Sequence[Item[str]] = ()
    edge_ids: Sequence[Item[str]] = ()
    problems: Sequence[CanvasProblem] = ()
    lost_temp_ids: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """How many items there are, good and bad."""
        good = (
            self.node_drafts,
            self.edge_drafts,
            self.node_patches,
            self.edge_patches,
            self.node_ids,
            self.edge_ids,
        )
        return sum(map(len, good)) + len(self.problems)


class RawBatch(Struct, frozen=True, kw_only=True):
    """The items of a batch as JSON, not looked at yet."""

    create_nodes: Sequence[Raw] = ()
    create_edges: Sequence[Raw] = ()
    update_nodes: Sequence[Raw] = ()
    update_edges: Sequence[Raw] = ()
    delete_node_ids: Sequence[Raw] = ()
    delete_edge_ids: Sequence[Raw] = ()

    @property
    def size(self) -> int:
        """How many items there are."""
        return sum(len(getattr(self, name)) for name in self.__struct_fields__)


class _Named(Struct, frozen=True):
    """As much of a draft as can be wrong without hiding its name."""

    temp_id: str | None = None


_named: Final = msgspec.json.Decoder(_Named)


def raw_batch(frame: BatchFrame) -> RawBatch:
    """The items of a client's batch; total."""
    match frame:
        case CanvasBatchCreate():
            return RawBatch(create_nodes=frame.nodes, create_edges=frame.edges)
        case CanvasBatchUpdate():
            return RawBatch(update_nodes=frame.nodes, update_edges=frame.edges)
        case CanvasBatchDelete():
            return RawBatch(delete_node_ids=frame.node_ids, delete_edge_ids=frame.edge_ids)
        case _:
            assert_never(frame)


def read_batch(batch: RawBatch) -> Edits:
    """Decode the items of a batch one by one; what is malformed becomes problems."""
    problems: list[CanvasProblem] = []

    def read(
        decode: Callable[[Iterable[Raw]], tuple[list[T], list[CanvasProblem]]], items: Sequence[Raw]
    ) -> list[Item[T]]:
        good, bad = decode(items)
        problems.extend(bad)
        broken = {problem.index for problem in bad}
        places = (index for index in range(len(items)) if index not in broken)
        return [Item(index, value) for index, value in zip(places, good, strict=True)]

    def ids(kind: EntityKind, items: Sequence[Raw]) -> list[Item[str]]:
        return read(lambda raws: decode_ids(kind, raws), items)

    node_drafts = read(decode_node_drafts, batch.create_nodes)
    lost = _temp_ids(batch.create_nodes[problem.index] for problem in problems)
    return Edits(
        node_drafts=node_drafts,
        edge_drafts=read(decode_edge_drafts, batch.create_edges),
        node_patches=read(decode_node_patches, batch.update_nodes),
        edge_patches=read(decode_edge_patches, batch.update_edges),
        node_ids=ids(EntityKind.NODE, batch.delete_node_ids),
        edge_ids=ids(EntityKind.EDGE, batch.delete_edge_ids),
        problems=problems,
        lost_temp_ids=lost,
    )


def single_edit(frame: SingleFrame) -> Edits:
    """The one item of a single frame; total."""
    match frame:
        case CanvasNodeCreate(node=node):
            return Edits(node_drafts=(Item(0, node),))
        case CanvasNodeUpdate(node=patch):
            return Edits(node_patches=(Item(0, patch),))
        case CanvasNodeDelete(node_id=node_id):
            return Edits(node_ids=(Item(0, node_id),))
        case CanvasEdgeCreate(edge=edge):
            return Edits(edge_drafts=(Item(0, edge),))
        case CanvasEdgeUpdate(edge=change):
            return Edits(edge_patches=(Item(0, change),))
        case CanvasEdgeDelete(edge_id=edge_id):
            return Edits(edge_ids=(Item(0, edge_id),))
        case _:
            assert_never(frame)


def _temp_ids(items: Iterable[Raw]) -> frozenset[str]:
    found: set[str] = set()
    for item in items:
        try:
            name = _named.decode(item).temp_id
        except msgspec.MsgspecError:
            continue
        if name is not None:
            found.add(name)
    return frozenset(found)
