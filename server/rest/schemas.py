"""The structs of REST: one for each request and response, camelCase on the wire.

What a client sends is closed (an unknown field is an error); what it gets may grow. ``metadata`` is the
client's own object and is handed back as it came.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Generic, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from protocol.ids import RequestId, Ulid
from protocol.run import AgentFlow, RunStatus
from protocol.session import MessageRole
from protocol.tool_call import ConfirmationState, ExecutionState

__all__ = [
    "AppendMessage",
    "Appended",
    "ClientRole",
    "CreateSession",
    "Deleted",
    "Health",
    "ListQuery",
    "Message",
    "MessagesQuery",
    "NoBody",
    "NoQuery",
    "Page",
    "Run",
    "Session",
    "SessionCreated",
    "TokenUsage",
    "ToolCall",
    "ToolError",
    "UpdateSession",
]

T = TypeVar("T")

ActorName = Annotated[
    str,
    Meta(pattern=r"^[^/\s]+/[^/\s]+$", max_length=256, description="`namespace/name`: which agent answers."),
]
Metadata = dict[str, Any]
LinkedPlans = Annotated[tuple[Ulid, ...], Meta(max_length=1000)]


class ClientRole(StrEnum):
    """Roles that a client may append a message as."""

    USER = "user"
    SYSTEM = "system"
    TOOL = "tool"


class NoQuery(Struct, frozen=True):
    """No parameters."""


class NoBody(Struct, frozen=True, forbid_unknown_fields=True):
    """No body."""


class ListQuery(Struct, frozen=True, rename="camel"):
    """Which page of a list."""

    limit: Annotated[int, Meta(ge=1, le=200, description="Items on a page.")] = 50
    cursor: Annotated[str | None, Meta(description="`nextCursor` of the page before.")] = None


class MessagesQuery(Struct, frozen=True, rename="camel"):
    """Which part of a history."""

    limit: Annotated[int, Meta(ge=1, le=200, description="Messages on a page.")] = 50
    offset: Annotated[int, Meta(ge=0, le=2**31 - 1, description="Sequence of the first one.")] = 0
    cursor: Annotated[
        str | None, Meta(description="`nextCursor` of the page before; wins over `offset`.")
    ] = None


class Page(Struct, Generic[T], rename="camel"):
    """A page of a list; ``nextCursor`` is null at the end."""

    items: list[T]
    next_cursor: str | None = None


class CreateSession(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A session to be made; without ``sessionId`` the server makes one up."""

    session_id: Ulid | None = None
    namespace: Annotated[str, Meta(pattern=r"^[^/\s]+$", max_length=128)] = "local"
    actor_name: ActorName | None = None
    project_id: Ulid | None = None
    metadata: Metadata = {}
    linked_plan_ids: LinkedPlans = ()


class UpdateSession(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What changes; a field that is given replaces the old value whole, one that is not stays."""

    metadata: Metadata | UnsetType = UNSET
    actor_name: ActorName | UnsetType | None = UNSET
    linked_plan_ids: LinkedPlans | UnsetType = UNSET


class AppendMessage(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A message to append; with ``requestId`` the call may be repeated safely."""

    role: ClientRole
    content: str
    request_id: RequestId | None = None
    tool_call_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    metadata: Metadata = {}


class SessionCreated(Struct, rename="camel"):
    """The id of what was made."""

    session_id: str


class TokenUsage(Struct, rename="camel"):
    """Tokens, and what they cost in USD."""

    input_tokens: int = 0
    output_tokens: int = 0
    estimated_cost: float = 0.0


class Session(Struct, rename="camel"):
    """A session without its messages."""

    session_id: str
    namespace: str
    actor_name: str | None
    project_id: str | None
    status: str
    metadata: Metadata
    linked_plan_ids: tuple[str, ...]
    message_count: int
    token_usage: TokenUsage
    created_at: datetime
    updated_at: datetime
    last_active_at: datetime


class ToolError(Struct, rename="camel"):
    """Why a tool call failed."""

    code: str
    message: str


class ToolCall(Struct, rename="camel"):
    """A tool call of an assistant message; ``arguments`` is a JSON text."""

    tool_call_id: str
    name: str
    arguments: str
    arguments_sha256: str
    confirmation_state: ConfirmationState
    execution_state: ExecutionState
    result: str | None = None
    error: ToolError | None = None


class Message(Struct, rename="camel"):
    """A message of a history."""

    message_id: str
    sequence: int
    role: MessageRole
    content: str
    tool_call_id: str | None
    tool_calls: tuple[ToolCall, ...]
    metadata: Metadata
    created_at: datetime


class Appended(Struct, rename="camel"):
    """A message as stored; ``repeated`` when an earlier request with this ``requestId`` had appended it."""

    message: Message
    repeated: bool


class Deleted(Struct, rename="camel"):
    """What is gone."""

    session_id: str


class Run(Struct, rename="camel"):
    """A run in a list."""

    run_id: str
    session_id: str
    query: str
    status: RunStatus
    agent_flow: AgentFlow
    answer_preview: str
    step_count: int
    tool_call_count: int
    created_at: datetime
    updated_at: datetime


class CreateProject(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A project to be made; without ``projectId`` the server makes one up."""

    project_id: Ulid | None = None
    metadata: Metadata = {}


class ProjectCreated(Struct, rename="camel"):
    """The id of what was made."""

    project_id: str


class ProjectDeleted(Struct, rename="camel"):
    """What is gone."""

    project_id: str


class Project(Struct, rename="camel"):
    """A project without its canvas and conversations."""

    project_id: str
    metadata: Metadata
    canvas_version: int
    created_at: datetime
    updated_at: datetime


class CanvasQuery(Struct, frozen=True, rename="camel"):
    """Which page of a canvas."""

    limit: Annotated[int, Meta(ge=1, le=200, description="Nodes and edges on a page.")] = 200
    cursor: Annotated[str | None, Meta(description="`nextCursor` of the page before.")] = None


class CanvasPosition(Struct, rename="camel"):
    """Where a node is, in canvas units."""

    x: float
    y: float


class CanvasSize(Struct, rename="camel"):
    """How large a node is, in canvas units."""

    width: float
    height: float


class CanvasCreatedBy(Struct, rename="camel"):
    """The tool call of the model that made an entity."""

    run_id: str
    tool_call_id: str


class CanvasNode(Struct, rename="camel"):
    """A node."""

    id: str
    type: str
    position: CanvasPosition
    size: CanvasSize | None
    data: Metadata
    version: int
    created_by: CanvasCreatedBy | None


class CanvasEdge(Struct, rename="camel"):
    """An edge; ``source`` and ``target`` are ids of nodes."""

    id: str
    source: str
    target: str
    type: str
    data: Metadata
    version: int
    created_by: CanvasCreatedBy | None


class Canvas(Struct, rename="camel"):
    """A page of a canvas, nodes before edges; ``nextCursor`` is null at the end."""

    nodes: list[CanvasNode]
    edges: list[CanvasEdge]
    canvas_version: int
    next_cursor: str | None


class Health(Struct, rename="camel"):
    """That the server is there."""

    status: str
