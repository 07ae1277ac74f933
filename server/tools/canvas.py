"""``canvas_edit``: a change of the project's canvas, on the path that clients' batches take (CV5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from protocol.canvas import CreatedBy, EdgeDraft, EdgePatch, NodeDraft, NodePatch
from server.canvas.edits import RawBatch
from server.tools.base import Policy, ToolFault, schema_of, tool

if TYPE_CHECKING:
    from protocol.server_frames import CanvasBatchResult
    from server.tools.base import ToolContext


def _as(entity: type[Struct]) -> Meta:
    """What a model is told of an item; it is checked on the canvas's own path, by index and field (CV1)."""
    return Meta(extra_json_schema=schema_of(entity))


NewNode: TypeAlias = Annotated[dict[str, Any], _as(NodeDraft)]
NewEdge: TypeAlias = Annotated[dict[str, Any], _as(EdgeDraft)]
ChangedNode: TypeAlias = Annotated[dict[str, Any], _as(NodePatch)]
ChangedEdge: TypeAlias = Annotated[dict[str, Any], _as(EdgePatch)]


class CanvasEdit(Struct, frozen=True):
    """All of a change."""

    create_nodes: Annotated[
        list[NewNode], Meta(description="What is to be shown goes into `data`, a name as `label`.")
    ] = []
    create_edges: Annotated[
        list[NewEdge], Meta(description="`source` and `target`: the id or temp_id of a node.")
    ] = []
    update_nodes: Annotated[
        list[ChangedNode],
        Meta(description="Only what changes; `data` is a JSON merge patch, `version` the one you saw."),
    ] = []
    update_edges: Annotated[list[ChangedEdge], Meta(description="As update_nodes.")] = []
    delete_node_ids: Annotated[list[str], Meta(description="Their edges go with them.")] = []
    delete_edge_ids: list[str] = []


@tool(policy=Policy.CONFIRM, timeout_s=30)
async def canvas_edit(arguments: CanvasEdit, context: ToolContext) -> dict[str, Any]:
    """Create, update and delete nodes and edges of the project's canvas, all of it or nothing.

    New edges may name new nodes by their temp_id. To update or delete something, use the id, and for updates
    the version, that you were told when it was made or found.
    """
    if context.canvas is None:
        raise ToolFault("this conversation belongs to no project, so there is no canvas")
    batch = RawBatch(
        **{
            name: [Raw(msgspec.json.encode(item)) for item in items]
            for name, items in msgspec.structs.asdict(arguments).items()
        }
    )
    if not batch.size:
        raise ToolFault("there is nothing to create, update or delete")
    provenance = CreatedBy(run_id=context.run_id, tool_call_id=context.tool_call_id)
    result = await context.canvas.apply(batch, provenance)
    if not result.success:
        raise ToolFault("nothing was changed: " + "; ".join(_problems(result)))
    return {
        "canvas_version": result.canvas_version,
        "temp_id_mapping": result.temp_id_mapping,
        "nodes": [{"id": node.id, "version": node.version} for node in result.nodes],
        "edges": [
            {"id": edge.id, "version": edge.version, "source": edge.source, "target": edge.target}
            for edge in result.edges
        ],
        "deleted_node_ids": result.deleted_node_ids,
        "deleted_edge_ids": result.deleted_edge_ids,
    }


_TOLD = 20


def _problems(result: CanvasBatchResult) -> list[str]:
    """The bad items in words, the first of them; with what a stale version's entity is like now."""
    told = []
    for problem in result.errors[:_TOLD]:
        field = f".{problem.field}" if problem.field else ""
        place = f"{problem.op}_{problem.kind}s[{problem.index}]{field}"
        now = f" (now: {msgspec.json.encode(problem.details).decode()})" if problem.details else ""
        told.append(f"{place}: {problem.message}{now}")
    if len(result.errors) > _TOLD:
        told.append(f"and {len(result.errors) - _TOLD} more")
    return told or ["the canvas refused it"]
