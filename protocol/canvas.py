"""The canvas: nodes and edges, as they are stored, drafted and changed (CV1 to CV6)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from protocol.codes import ErrorCode
from protocol.strict import bad_frame

T = TypeVar("T")

UUID_PATTERN: Final = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
CanvasId = Annotated[str, Meta(pattern=UUID_PATTERN, min_length=36, max_length=36)]
Name = Annotated[str, Meta(min_length=1, max_length=128)]
Version = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class CanvasOp(StrEnum):
    """What a canvas change did."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class EntityKind(StrEnum):
    """What a canvas is made of."""

    NODE = "node"
    EDGE = "edge"


class Position(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a node is, in canvas units."""

    x: float = 0.0
    y: float = 0.0


class Size(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large a node is, in canvas units."""

    width: Annotated[float, Meta(ge=0)]
    height: Annotated[float, Meta(ge=0)]


class CreatedBy(Struct, frozen=True, kw_only=True):
    """The tool call of the model that made an entity (CV5)."""

    run_id: str
    tool_call_id: str


class Node(Struct, frozen=True, kw_only=True):
    """A node as it is stored."""

    id: str
    type: str = "default"
    position: Position = Position()
    size: Size | None = None
    data: dict[str, Any] = field(default_factory=dict)
    version: int = 1
    created_by: CreatedBy | None = None


class Edge(Struct, frozen=True, kw_only=True):
    """An edge as it is stored; ``source`` and ``target`` are ids of nodes."""

    id: str
    source: str
    target: str
    type: str = "default"
    data: dict[str, Any] = field(default_factory=dict)
    version: int = 1
    created_by: CreatedBy | None = None


class NodeDraft(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node to be made; ``temp_id`` names it for the edges of the same batch."""

    temp_id: Name | None = None
    type: Name = "default"
    position: Position = Position()
    size: Size | None = None
    data: dict[str, Any] = field(default_factory=dict)


class EdgeDraft(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An edge to be made; ``source`` and ``target`` are ids or temporary ids of nodes."""

    temp_id: Name | None = None
    source: Name
    target: Name
    type: Name = "default"
    data: dict[str, Any] = field(default_factory=dict)


class NodePatch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changed fields of a node; ``data`` is a JSON merge patch, ``version`` the one it was made from."""

    id: CanvasId
    version: Version
    type: Name | UnsetType = UNSET
    position: Position | UnsetType = UNSET
    size: Size | UnsetType | None = UNSET
    data: dict[str, Any] | UnsetType = UNSET


class EdgePatch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changed fields of an edge; ``data`` is a JSON merge patch, ``version`` the one it was made from."""

    id: CanvasId
    version: Version
    source: Name | UnsetType = UNSET
    target: Name | UnsetType = UNSET
    type: Name | UnsetType = UNSET
    data: dict[str, Any] | UnsetType = UNSET


class CanvasProblem(Struct, frozen=True, kw_only=True):
    """One bad item of a batch (CV1): which, where in it, and what is wrong.

    ``index`` counts within the list of this ``op`` and ``kind``. ``details`` of a ``version_conflict`` have
    the present entity as ``current`` (CV3).
    """

    op: CanvasOp
    kind: EntityKind
    index: int
    field: str | None
    code: str
    message: str
    details: dict[str, Any] = {}


_node_draft: Final = msgspec.json.Decoder(NodeDraft)
_edge_draft: Final = msgspec.json.Decoder(EdgeDraft)
_node_patch: Final = msgspec.json.Decoder(NodePatch)
_edge_patch: Final = msgspec.json.Decoder(EdgePatch)
_canvas_id: Final = msgspec.json.Decoder(CanvasId)


def decode_node_drafts(items: Iterable[Raw]) -> tuple[list[NodeDraft], list[CanvasProblem]]:
    """The nodes of ``canvas_batch_create``, and what is malformed among them, by index and field."""
    return _decode_items(_node_draft, CanvasOp.CREATE, EntityKind.NODE, items)


def decode_edge_drafts(items: Iterable[Raw]) -> tuple[list[EdgeDraft], list[CanvasProblem]]:
    """The edges of ``canvas_batch_create``, as :func:`decode_node_drafts`."""
    return _decode_items(_edge_draft, CanvasOp.CREATE, EntityKind.EDGE, items)


def decode_node_patches(items: Iterable[Raw]) -> tuple[list[NodePatch], list[CanvasProblem]]:
    """The nodes of ``canvas_batch_update``, as :func:`decode_node_drafts`."""
    return _decode_items(_node_patch, CanvasOp.UPDATE, EntityKind.NODE, items)


def decode_edge_patches(items: Iterable[Raw]) -> tuple[list[EdgePatch], list[CanvasProblem]]:
    """The edges of ``canvas_batch_update``, as :func:`decode_node_drafts`."""
    return _decode_items(_edge_patch, CanvasOp.UPDATE, EntityKind.EDGE, items)


def decode_ids(kind: EntityKind, items: Iterable[Raw]) -> tuple[list[str], list[CanvasProblem]]:
    """The ids of ``canvas_batch_delete``, as :func:`decode_node_drafts`; a bad one is bad in its ``id``."""
    return _decode_items(_canvas_id, CanvasOp.DELETE, kind, items, whole="id")


def _decode_items(
    decoder: msgspec.json.Decoder[T],
    op: CanvasOp,
    kind: EntityKind,
    items: Iterable[Raw],
    whole: str | None = None,
) -> tuple[list[T], list[CanvasProblem]]:
    """What can be decoded, in order, and what cannot; ``whole`` is the field of an item that is no object."""
    good: list[T] = []
    problems: list[CanvasProblem] = []
    for index, item in enumerate(items):
        try:
            good.append(decoder.decode(item))
        except msgspec.MsgspecError as error:
            fault = bad_frame(error)
            problems.append(
                CanvasProblem(
                    op=op,
                    kind=kind,
                    index=index,
                    field=fault.field or whole,
                    code=ErrorCode.INVALID_CANVAS,
                    message=fault.message,
                )
            )
    return good, problems
