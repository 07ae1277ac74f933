"""What the server sends: one struct a frame.

Frames are made, given a ``seq`` by the outbox and encoded once, so they are not frozen. A field that is
``UNSET`` is not sent; one that is ``None`` is sent as null.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field

from protocol.canvas import CanvasOp, CanvasProblem, Edge, Node
from protocol.errors import Fault
from protocol.message import MessageRole, TokenUsage
from protocol.run import FinishReason
from protocol.tool_call import ConfirmationState, Decision, ExecutionState, ToolError
from protocol.views import (
    ConversationSummary,
    ConversationView,
    LastRunView,
    Limits,
    MessageView,
    ProjectView,
    RunningView,
    SessionView,
    Timing,
    ToolCallFunction,
    ToolCallView,
)

__all__ = [
    "SUBPROTOCOL",
    "UNSEQUENCED",
    "AnyServerFrame",
    "AssistantMessageComplete",
    "CanvasBatchResult",
    "CanvasChanged",
    "CanvasState",
    "CompletionDone",
    "CompletionInit",
    "CompletionQueued",
    "CompletionStopped",
    "Connected",
    "ConversationListed",
    "ConversationSummary",
    "ConversationView",
    "Draining",
    "ErrorFrame",
    "FinishReason",
    "LastRunView",
    "Limits",
    "LlmTextChunk",
    "LlmTextSentence",
    "LlmThinkingChunk",
    "MessageAppended",
    "MessageView",
    "Origin",
    "Pong",
    "ProjectView",
    "ResumeKind",
    "RunningView",
    "ServerFrame",
    "SessionView",
    "Snapshot",
    "Timing",
    "ToolCallChunk",
    "ToolCallFrame",
    "ToolCallFunction",
    "ToolCallView",
    "ToolConfirmationProcessed",
    "Usage",
    "error_frame",
]


class ResumeKind(StrEnum):
    """How a connection goes on (CN6)."""

    FRESH = "fresh"
    REPLAYED = "replayed"
    SNAPSHOT = "snapshot"


class Origin(StrEnum):
    """The way by which a message came in."""

    SOCKET = "socket"
    REST = "rest"
    CLI = "cli"


Usage = TokenUsage
SUBPROTOCOL: Final = "turnwire.v1"


class ServerFrame(Struct, kw_only=True):
    """The base of every server frame.

    - ``seq``: the position in the resource's sequence; unset on frames that concern one connection only.
    - ``request_id``: of the request that is answered (ST4).
    - ``domain``, ``conversation_id``: on project sockets only.
    - ``repeated``: true when a repeated request is answered by its earlier outcome (ST4).
    """

    seq: int | UnsetType = UNSET
    request_id: str | UnsetType = UNSET
    domain: str | UnsetType = UNSET
    conversation_id: str | UnsetType = UNSET
    repeated: bool | UnsetType = UNSET


class Connected(ServerFrame, kw_only=True, tag="connected"):
    """The first frame of an admitted connection; its ``seq`` is the latest one, not its own."""

    protocol: str = SUBPROTOCOL
    resource: str
    epoch: str
    from_seq: int
    attachment: int
    resume: ResumeKind
    replayed: int = 0
    heartbeat_ms: int
    limits: Limits


class Snapshot(ServerFrame, kw_only=True, tag="snapshot"):
    """The state as of ``as_of_seq``, instead of missed frames (CN6).

    A conversation's has the fields of :class:`ConversationView`, a project's has ``project``,
    ``canvas_version`` and ``conversations``.
    """

    as_of_seq: int
    session: SessionView | UnsetType = UNSET
    messages: list[MessageView] | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    running: RunningView | UnsetType | None = UNSET
    queued: list[str] | UnsetType = UNSET
    waiting: list[ToolCallView] | UnsetType = UNSET
    last_run: LastRunView | UnsetType | None = UNSET
    project: ProjectView | UnsetType = UNSET
    canvas_version: int | UnsetType = UNSET
    conversations: list[ConversationView] | UnsetType = UNSET

    @classmethod
    def of_conversation(cls, as_of_seq: int, view: ConversationView) -> Snapshot:
        """The snapshot of a conversation's own socket."""
        return cls(
            as_of_seq=as_of_seq,
            session=view.session,
            messages=view.messages,
            truncated=view.truncated,
            running=view.running,
            queued=view.queued,
            waiting=view.waiting,
            last_run=view.last_run,
        )

    @classmethod
    def of_project(
        cls, as_of_seq: int, project: ProjectView, canvas_version: int, views: list[ConversationView]
    ) -> Snapshot:
        """The snapshot of a project's socket."""
        return cls(as_of_seq=as_of_seq, project=project, canvas_version=canvas_version, conversations=views)


class Pong(ServerFrame, kw_only=True, tag="pong"):
    """The answer to ``ping``, with the same ``t``."""

    t: Any = None


class Draining(ServerFrame, kw_only=True, tag="draining"):
    """The server is about to close this connection; reconnect after a while (CN10)."""

    reconnect_after_ms: int


class ErrorFrame(ServerFrame, kw_only=True, tag="error"):
    """A request was refused, or (with ``seq``) a run or a queued request ended by it."""

    code: str
    message: str
    retryable: bool
    retry_after_ms: int | None = None
    details: dict[str, Any] = field(default_factory=dict)
    run_id: str | None = None


class MessageAppended(ServerFrame, kw_only=True, tag="message_appended"):
    """A message is stored."""

    message_id: str
    sequence: int
    role: MessageRole
    content: str
    tool_call_id: str | None = None
    origin: Origin = Origin.SOCKET


class CompletionQueued(ServerFrame, kw_only=True, tag="completion_queued"):
    """A completion waits for its turn; ``position`` counts from 1."""

    position: int


class CompletionInit(ServerFrame, kw_only=True, tag="completion_init"):
    """A completion begins."""

    run_id: str
    model: str
    continues_run_id: str | None = None


class LlmThinkingChunk(ServerFrame, kw_only=True, tag="llm_thinking_chunk", gc=False):
    """A piece of the model's reasoning."""

    run_id: str
    message_id: str
    text: str


class LlmTextChunk(ServerFrame, kw_only=True, tag="llm_text_chunk", gc=False):
    """A piece of the answer."""

    run_id: str
    message_id: str
    text: str


class LlmTextSentence(ServerFrame, kw_only=True, tag="llm_text_sentence", gc=False):
    """A whole sentence of the answer; ``index`` counts from 0 within the message."""

    run_id: str
    message_id: str
    index: int
    text: str


class ToolCallChunk(ServerFrame, kw_only=True, tag="tool_call_chunk", gc=False):
    """A piece of a tool call; ``id`` and ``function.name`` are in the first of a call only (TL1)."""

    run_id: str
    message_id: str
    index: int
    id: str | None = None
    function: ToolCallFunction


class ToolCallFrame(ServerFrame, kw_only=True, tag="tool_call"):
    """A tool call changed its state; the fields are those of :class:`ToolCallView`."""

    run_id: str
    message_id: str
    tool_call_id: str
    name: str
    arguments: str
    arguments_sha256: str
    confirmation_state: ConfirmationState
    execution_state: ExecutionState
    result: str | None = None
    error: ToolError | None = None
    sequence: int | None = None


class AssistantMessageComplete(ServerFrame, kw_only=True, tag="assistant_message_complete"):
    """The assistant's message of one model turn is stored."""

    run_id: str
    message_id: str
    sequence: int
    content: str
    tool_calls: list[ToolCallView] = field(default_factory=list)
    finish_reason: FinishReason


class CompletionDone(ServerFrame, kw_only=True, tag="completion_done"):
    """The last frame of every completion; ``run_id`` is null if it never left the queue."""

    run_id: str | None
    finish_reason: FinishReason
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)


class CompletionStopped(ServerFrame, kw_only=True, tag="stop_completion"):
    """A completion was stopped (ST3); ``run_id`` is null if it was queued.

    ``message_id`` and ``sequence`` are null and ``partial_text`` is empty when no message was stored.
    ``stop_request_id`` is the request that stopped it.
    """

    run_id: str | None
    message_id: str | None = None
    sequence: int | None = None
    partial_text: str = ""
    stop_request_id: str | None = None


class ToolConfirmationProcessed(ServerFrame, kw_only=True, tag="tool_confirmation_processed"):
    """A decision is stored (TL5)."""

    tool_call_id: str
    decision: Decision
    confirmation_state: ConfirmationState
    arguments_sha256: str


class ConversationListed(ServerFrame, kw_only=True, tag="conversation_listed"):
    """A page of a project's conversations; ``next_cursor`` is null at the end."""

    conversations: list[ConversationSummary]
    next_cursor: str | None = None


class CanvasBatchResult(ServerFrame, kw_only=True, tag="canvas_batch_result"):
    """What became of a batch: all of it, or (unsequenced) nothing and why (CV1).

    ``nodes`` and ``edges`` are the entities made or changed; deletions name ids, an edge's too that went
    with its node.
    """

    success: bool
    temp_id_mapping: dict[str, str] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    deleted_node_ids: list[str] = field(default_factory=list)
    deleted_edge_ids: list[str] = field(default_factory=list)
    canvas_version: int
    errors: list[CanvasProblem] = field(default_factory=list)


class CanvasChanged(ServerFrame, kw_only=True, tag="canvas_changed"):
    """A single change of the canvas is stored."""

    op: CanvasOp
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    deleted_node_ids: list[str] = field(default_factory=list)
    deleted_edge_ids: list[str] = field(default_factory=list)
    canvas_version: int


class CanvasState(ServerFrame, kw_only=True, tag="canvas_state"):
    """A page of the canvas; ``next_cursor`` is null at the end."""

    nodes: list[Node]
    edges: list[Edge]
    canvas_version: int
    next_cursor: str | None = None


# What concerns one connection, or is only read: never in the resource's sequence.
UNSEQUENCED: Final = (Connected, Snapshot, Pong, Draining, ConversationListed, CanvasState)

AnyServerFrame: TypeAlias = (
    Connected
    | Snapshot
    | Pong
    | Draining
    | ErrorFrame
    | MessageAppended
    | CompletionQueued
    | CompletionInit
    | LlmThinkingChunk
    | LlmTextChunk
    | LlmTextSentence
    | ToolCallChunk
    | ToolCallFrame
    | AssistantMessageComplete
    | CompletionDone
    | CompletionStopped
    | ToolConfirmationProcessed
    | ConversationListed
    | CanvasBatchResult
    | CanvasChanged
    | CanvasState
)


def error_frame(
    fault: Fault, *, request_id: str | UnsetType = UNSET, run_id: str | None = None
) -> ErrorFrame:
    """The ``error`` frame that tells a client of a fault."""
    return ErrorFrame(
        request_id=request_id,
        code=fault.code,
        message=fault.message,
        retryable=fault.retryable,
        retry_after_ms=fault.retry_after_ms,
        details=fault.details,
        run_id=run_id,
    )
