"""A project's canvas: what its frames and the model's tools do to it, and how that is told (CV1 to CV6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from protocol.canonical import canonical_sha256
from protocol.canvas import CanvasOp, CreatedBy, Edge, Node
from protocol.client_frames import (
    CanvasBatchCreate,
    CanvasBatchDelete,
    CanvasBatchUpdate,
    CanvasEdgeCreate,
    CanvasEdgeDelete,
    CanvasEdgeUpdate,
    CanvasFrame,
    CanvasGet,
    CanvasNodeCreate,
    CanvasNodeDelete,
    CanvasNodeUpdate,
)
from protocol.codec import body_sha256, tag_of
from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import new_uuid
from protocol.server_frames import CanvasBatchResult, CanvasChanged, CanvasState, ServerFrame
from server.canvas.document import Change, Limits
from server.canvas.edits import BatchFrame, RawBatch, SingleFrame, raw_batch, read_batch, single_edit
from server.canvas.plan import Rejected, TooLarge, plan
from storage.cursors import from_canvas_cursor, to_canvas_cursor
from storage.errors import DuplicateRequest
from storage.records import RequestKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.actors.project_ledger import ProjectLedger
    from server.canvas.edits import Edits
    from server.settings import Settings
    from storage.records import RequestRecord
    from storage.store import Store

_PAGE_ITEMS: Final = 1000
_PAGE_BYTES: Final = 524_288
"""``data`` on a page of ``canvas_state``, so that a page stays within what clients take."""

_TOOL: Final = "canvas_edit"


class _Outcome(Struct, frozen=True, kw_only=True):
    """What is remembered of a change, to answer a repeat of its request (ST4)."""

    version: int
    temp_ids: dict[str, str] = {}
    nodes: tuple[str, ...] = ()
    edges: tuple[str, ...] = ()
    deleted_nodes: tuple[str, ...] = ()
    deleted_edges: tuple[str, ...] = ()


class ProjectCanvas:
    """The canvas half of a project; called in its actor's task alone."""

    def __init__(
        self, store: Store, settings: Settings, ledger: ProjectLedger, emit: Callable[[ServerFrame], None]
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._emit = emit
        self._limits = Limits(
            nodes=settings.canvas_nodes,
            edges=settings.canvas_edges,
            batch_items=settings.canvas_batch_items,
            data_bytes=settings.canvas_data_bytes,
            change_bytes=2 * settings.max_frame_bytes,
            canvas_bytes=settings.canvas_bytes,
        )

    async def handle_frame(self, frame: CanvasFrame) -> ServerFrame | None:
        """Carry out a client's frame.

        Returns:
            What is told to this connection alone: a page, a failed batch, the answer to a repeat (ST4). What
            was changed is told through the outbox.

        Raises:
            Fault: What is refused; nothing was changed.
            Fenced: Another process owns the project now.
        """
        if isinstance(frame, CanvasGet):
            return await self._page(frame)
        key = RequestKey(self._ledger.project_id, frame.request_id, tag_of(type(frame)), body_sha256(frame))
        try:
            if isinstance(frame, CanvasBatchCreate | CanvasBatchUpdate | CanvasBatchDelete):
                return await self._batch(frame, key)
            await self._single(frame, key)
        except DuplicateRequest as duplicate:
            answer = await self._repeat(duplicate.record, key, _op_of(frame))
            answer.request_id = frame.request_id
            return answer
        return None

    async def apply(self, batch: RawBatch, provenance: CreatedBy) -> CanvasBatchResult:
        """Carry out a batch of the model's, on the same path (CV5); once for each tool call.

        Returns:
            The result, also when it failed; a change is told through the outbox too.

        Raises:
            Fault: A limit, or ``storage_unavailable``.
            Fenced: Another process owns the project now.
        """
        edits = read_batch(batch)
        body = canonical_sha256(msgspec.json.decode(msgspec.json.encode(batch)))
        name = f"{_TOOL} {provenance.run_id} {provenance.tool_call_id}"
        key = RequestKey(self._ledger.project_id, name, _TOOL, body)
        told: list[CanvasBatchResult] = []

        def tell(change: Change) -> ServerFrame:
            told.append(_result(change, UNSET))
            return told[0]

        try:
            rejected = await self._carry_out(edits, key, tell, provenance)
        except DuplicateRequest as duplicate:
            answer = await self._repeat(duplicate.record, key, None)
            assert isinstance(answer, CanvasBatchResult)
            return answer
        return told[0] if rejected is None else self._failure(rejected, UNSET)

    async def _batch(self, frame: BatchFrame, key: RequestKey) -> CanvasBatchResult | None:
        batch = raw_batch(frame)
        if not batch.size:
            await self._refuse_known(key)
            return CanvasBatchResult(
                request_id=frame.request_id, success=True, canvas_version=self._ledger.version
            )
        self._check_size(batch.size)
        rejected = await self._carry_out(
            read_batch(batch), key, lambda change: _result(change, frame.request_id)
        )
        return None if rejected is None else self._failure(rejected, frame.request_id)

    async def _single(self, frame: SingleFrame, key: RequestKey) -> None:
        op = _op_of(frame)
        assert op is not None
        rejected = await self._carry_out(
            single_edit(frame), key, lambda change: _changed(change, op, frame.request_id)
        )
        if rejected is not None:
            problem = rejected.problems[0]
            raise Fault(
                ErrorCode(problem.code),
                problem.message,
                details={"field": problem.field, **problem.details},
            )

    async def _carry_out(
        self,
        edits: Edits,
        key: RequestKey,
        frame_of: Callable[[Change], ServerFrame],
        created_by: CreatedBy | None = None,
    ) -> Rejected | None:
        """Decide, commit, tell; or say what is bad.

        A repeat of what was done is no error even if it could not be done again; so before anything is
        refused the store is asked.

        Raises:
            DuplicateRequest: The store remembers the request.
        """
        ledger = self._ledger
        canvas = await ledger.canvas()
        decision = plan(canvas, edits, self._limits, new_id=new_uuid, created_by=created_by)
        match decision:
            case Change():
                outcome = msgspec.to_builtins(_outcome(decision))
                await ledger.commit(
                    decision, replace(key, outcome=outcome), lambda: self._emit(frame_of(decision))
                )
                return None
            case Rejected():
                await self._refuse_known(key)
                return decision
            case TooLarge():
                await self._refuse_known(key)
                raise _too_large(decision)
            case _:
                assert_never(decision)

    async def _refuse_known(self, key: RequestKey) -> None:
        record = await self._store.canvases.find_request(key.resource_id, key.request_id)
        if record is not None:
            raise DuplicateRequest(record)

    def _check_size(self, size: int) -> None:
        limit = self._limits.batch_items
        if size > limit:
            raise _too_large(TooLarge(f"a batch has at most {limit} items", limit))

    def _failure(self, rejected: Rejected, request_id: str | UnsetType) -> CanvasBatchResult:
        return CanvasBatchResult(
            request_id=request_id,
            success=False,
            canvas_version=self._ledger.version,
            errors=list(rejected.problems),
        )

    async def _repeat(
        self, record: RequestRecord, key: RequestKey, op: CanvasOp | None
    ) -> CanvasBatchResult | CanvasChanged:
        """Answer a repeated request: what it made, as it is now, and the version that it made."""
        if record.kind != key.kind or record.body_sha256 != key.body_sha256:
            raise Fault(ErrorCode.REQUEST_ID_CONFLICT, "this request_id was used for another request")
        outcome = msgspec.convert(record.outcome, _Outcome)
        canvas = await self._ledger.canvas()
        nodes = [canvas.nodes[node_id] for node_id in outcome.nodes if node_id in canvas.nodes]
        edges = [canvas.edges[edge_id] for edge_id in outcome.edges if edge_id in canvas.edges]
        parts: dict[str, Any] = {
            "repeated": True,
            "nodes": nodes,
            "edges": edges,
            "deleted_node_ids": list(outcome.deleted_nodes),
            "deleted_edge_ids": list(outcome.deleted_edges),
            "canvas_version": outcome.version,
        }
        if op is not None:
            return CanvasChanged(op=op, **parts)
        return CanvasBatchResult(success=True, temp_id_mapping=outcome.temp_ids, **parts)

    async def _page(self, frame: CanvasGet) -> CanvasState:
        after = from_canvas_cursor(frame.cursor)
        canvas = await self._ledger.canvas()
        nodes, edges, last = canvas.page(after, max_items=_PAGE_ITEMS, max_data_bytes=_PAGE_BYTES)
        return CanvasState(
            request_id=frame.request_id,
            nodes=nodes,
            edges=edges,
            canvas_version=canvas.version,
            next_cursor=None if last is None else to_canvas_cursor(*last),
        )


def _op_of(frame: BatchFrame | SingleFrame) -> CanvasOp | None:
    """What a single frame does; None for a batch, whose result does not say."""
    match frame:
        case CanvasBatchCreate() | CanvasBatchUpdate() | CanvasBatchDelete():
            return None
        case CanvasNodeCreate() | CanvasEdgeCreate():
            return CanvasOp.CREATE
        case CanvasNodeUpdate() | CanvasEdgeUpdate():
            return CanvasOp.UPDATE
        case CanvasNodeDelete() | CanvasEdgeDelete():
            return CanvasOp.DELETE
        case _:
            assert_never(frame)


def _too_large(refusal: TooLarge) -> Fault:
    return Fault(ErrorCode.TOO_LARGE, refusal.message, details={"limit": refusal.limit})


def _outcome(change: Change) -> _Outcome:
    return _Outcome(
        version=change.version,
        temp_ids=change.temp_ids,
        nodes=_ids(change.nodes),
        edges=_ids(change.edges),
        deleted_nodes=change.deleted_node_ids,
        deleted_edges=change.deleted_edge_ids,
    )


def _ids(entities: tuple[Node, ...] | tuple[Edge, ...]) -> tuple[str, ...]:
    return tuple(entity.id for entity in entities)


def _result(change: Change, request_id: str | UnsetType) -> CanvasBatchResult:
    return CanvasBatchResult(
        request_id=request_id,
        success=True,
        temp_id_mapping=change.temp_ids,
        nodes=list(change.nodes),
        edges=list(change.edges),
        deleted_node_ids=list(change.deleted_node_ids),
        deleted_edge_ids=list(change.deleted_edge_ids),
        canvas_version=change.version,
    )


def _changed(change: Change, op: CanvasOp, request_id: str) -> CanvasChanged:
    return CanvasChanged(
        request_id=request_id,
        op=op,
        nodes=list(change.nodes),
        edges=list(change.edges),
        deleted_node_ids=list(change.deleted_node_ids),
        deleted_edge_ids=list(change.deleted_edge_ids),
        canvas_version=change.version,
    )
