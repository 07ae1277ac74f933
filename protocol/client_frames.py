"""What a client sends: one struct a frame, closed, decoded once at the edge.

On a project's socket the same frames carry ``domain`` and ``conversation_id`` too, which
:mod:`protocol.codec` takes apart into an :class:`Address`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Raw, Struct, field

from protocol.canvas import CanvasId, EdgeDraft, EdgePatch, NodeDraft, NodePatch
from protocol.ids import RequestId
from protocol.message import MessageRole
from protocol.tool_call import Decision

__all__ = [
    "Ack",
    "Address",
    "AppendMessage",
    "CanvasBatchCreate",
    "CanvasBatchDelete",
    "CanvasBatchUpdate",
    "CanvasEdgeCreate",
    "CanvasEdgeDelete",
    "CanvasEdgeUpdate",
    "CanvasFrame",
    "CanvasGet",
    "CanvasNodeCreate",
    "CanvasNodeDelete",
    "CanvasNodeUpdate",
    "ClientFrame",
    "ConfirmTool",
    "ConversationFrame",
    "ConversationList",
    "ConversationRequest",
    "Decision",
    "Domain",
    "OnBusy",
    "OnPending",
    "Ping",
    "ProjectFrame",
    "RequestCompletion",
    "StopCompletion",
    "StopScope",
]

ToolCallId = Annotated[str, Meta(min_length=1, max_length=256)]
ModelName = Annotated[str, Meta(min_length=1, max_length=256)]
Cursor = Annotated[str, Meta(max_length=1024)]
Seq = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Domain(StrEnum):
    """Which half of a project a frame is about."""

    CANVAS = "canvas"
    CONVERSATION = "conversation"


class OnBusy(StrEnum):
    """What to do when a completion is running already (ST5)."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"


class OnPending(StrEnum):
    """What to do when tool calls wait for a person (TL5)."""

    REJECT = "reject"
    DECLINE = "decline"
    RUN_DECIDED = "run_decided"


class StopScope(StrEnum):
    """What a stop ends: one completion, or the queued ones too."""

    ONE = "one"
    ALL = "all"


class Address(Struct, frozen=True):
    """Where in a project a frame belongs; ``conversation_id`` is ``None`` for canvas frames and lists."""

    domain: Domain
    conversation_id: str | None = None


class ClientFrame(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every client frame."""


class AppendMessage(ClientFrame, frozen=True, kw_only=True, tag="append_message"):
    """Put a message at the end of the conversation; answered by ``message_appended``."""

    request_id: RequestId
    role: MessageRole
    content: str
    tool_call_id: ToolCallId | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.role is MessageRole.ASSISTANT:
            raise ValueError("Invalid value 'assistant' - at `$.role`")
        if self.role is MessageRole.TOOL and self.tool_call_id is None:
            raise ValueError("Object missing required field `tool_call_id`")
        if self.role is not MessageRole.TOOL and self.tool_call_id is not None:
            raise ValueError("Object contains unknown field `tool_call_id`")


class RequestCompletion(ClientFrame, frozen=True, kw_only=True, tag="request_completion"):
    """Ask the model to continue the conversation; answered by a streaming sequence (ST1)."""

    request_id: RequestId
    reasoning: bool = False
    model: ModelName | None = None
    on_busy: OnBusy = OnBusy.ENQUEUE
    on_pending: OnPending = OnPending.REJECT


class StopCompletion(ClientFrame, frozen=True, kw_only=True, tag="stop_completion"):
    """End a completion (ST3): the running one, when no target is given."""

    request_id: RequestId
    target_request_id: RequestId | None = None
    scope: StopScope = StopScope.ONE


class ConfirmTool(ClientFrame, frozen=True, kw_only=True, tag="confirm_tool"):
    """Decide a tool call (TL5); ``arguments`` replace the shown ones whole, ``reason`` goes to the model."""

    request_id: RequestId
    tool_call_id: ToolCallId
    decision: Decision
    arguments: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.arguments is not None and self.decision is not Decision.ACCEPT:
            raise ValueError("Object contains unknown field `arguments`")
        if self.reason is not None and self.decision is not Decision.REJECT:
            raise ValueError("Object contains unknown field `reason`")


class Ack(ClientFrame, frozen=True, kw_only=True, tag="ack"):
    """All frames up to ``seq`` arrived and need not be kept; no answer."""

    seq: Seq


class Ping(ClientFrame, frozen=True, kw_only=True, tag="ping"):
    """Ask for a ``pong`` with the same ``t``."""

    t: Any = None


class ConversationList(ClientFrame, frozen=True, kw_only=True, tag="conversation_list"):
    """List a project's conversations, a page at a time; answered by ``conversation_listed``."""

    request_id: RequestId
    cursor: Cursor | None = None


class CanvasBatchCreate(ClientFrame, frozen=True, kw_only=True, tag="canvas_batch_create"):
    """Make nodes and edges, all or none; items are drafts, decoded one by one (CV1, CV2)."""

    request_id: RequestId
    nodes: list[Raw] = field(default_factory=list)
    edges: list[Raw] = field(default_factory=list)


class CanvasBatchUpdate(ClientFrame, frozen=True, kw_only=True, tag="canvas_batch_update"):
    """Change nodes and edges, all or none; items are patches, decoded one by one."""

    request_id: RequestId
    nodes: list[Raw] = field(default_factory=list)
    edges: list[Raw] = field(default_factory=list)


class CanvasBatchDelete(ClientFrame, frozen=True, kw_only=True, tag="canvas_batch_delete"):
    """Delete nodes, with their edges, and edges, all or none; items are ids, decoded one by one."""

    request_id: RequestId
    node_ids: list[Raw] = field(default_factory=list)
    edge_ids: list[Raw] = field(default_factory=list)


class CanvasNodeCreate(ClientFrame, frozen=True, kw_only=True, tag="canvas_node_create"):
    """Make one node; answered by ``canvas_changed``."""

    request_id: RequestId
    node: NodeDraft


class CanvasNodeUpdate(ClientFrame, frozen=True, kw_only=True, tag="canvas_node_update"):
    """Change one node; answered by ``canvas_changed``."""

    request_id: RequestId
    node: NodePatch


class CanvasNodeDelete(ClientFrame, frozen=True, kw_only=True, tag="canvas_node_delete"):
    """Delete one node with its edges (CV3); answered by ``canvas_changed``."""

    request_id: RequestId
    node_id: CanvasId


class CanvasEdgeCreate(ClientFrame, frozen=True, kw_only=True, tag="canvas_edge_create"):
    """Make one edge; answered by ``canvas_changed``."""

    request_id: RequestId
    edge: EdgeDraft


class CanvasEdgeUpdate(ClientFrame, frozen=True, kw_only=True, tag="canvas_edge_update"):
    """Change one edge; answered by ``canvas_changed``."""

    request_id: RequestId
    edge: EdgePatch


class CanvasEdgeDelete(ClientFrame, frozen=True, kw_only=True, tag="canvas_edge_delete"):
    """Delete one edge; answered by ``canvas_changed``."""

    request_id: RequestId
    edge_id: CanvasId


class CanvasGet(ClientFrame, frozen=True, kw_only=True, tag="canvas_get"):
    """Read the canvas, a page at a time; answered by ``canvas_state``."""

    request_id: RequestId
    cursor: Cursor | None = None


ConversationRequest: TypeAlias = AppendMessage | RequestCompletion | StopCompletion | ConfirmTool
"""The frames of a conversation that have a ``request_id`` and are answered by its actor."""
ConversationFrame: TypeAlias = ConversationRequest | Ack | Ping
CanvasFrame: TypeAlias = (
    CanvasBatchCreate
    | CanvasBatchUpdate
    | CanvasBatchDelete
    | CanvasNodeCreate
    | CanvasNodeUpdate
    | CanvasNodeDelete
    | CanvasEdgeCreate
    | CanvasEdgeUpdate
    | CanvasEdgeDelete
    | CanvasGet
)
ProjectFrame: TypeAlias = ConversationFrame | ConversationList | CanvasFrame
