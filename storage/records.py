"""What goes into the store and comes out of it, as frozen structs.

Rows that are an entity of the protocol (messages, usage) are given as that entity. Times are aware UTC. JSON
columns are plain dicts, for their shape is the client's.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct, field

from protocol.canvas import Edge, Node
from protocol.ids import utc_now
from protocol.run import AgentFlow, RunError, RunStatus
from protocol.session import SessionMessage, TokenUsage
from protocol.tool_call import ConfirmationState, ExecutionState


class SessionSeed(Struct, frozen=True):
    """A session row to be made together with its first change (protocol.md section 1)."""

    session_id: str
    owner: str
    namespace: str = "local"
    actor_name: str | None = None
    project_id: str | None = None
    metadata: dict[str, Any] = {}
    linked_plan_ids: tuple[str, ...] = ()
    created_at: datetime = field(default_factory=utc_now)


class RequestKey(Struct, frozen=True):
    """A client's request id and what it asked, remembered with the change that it made (ST4).

    ``resource_id`` is the socket's resource: the session, or the project of a project socket. ``kind`` is
    the frame's type. ``outcome`` is kept for the answer to a repeat, where rows alone do not tell it.
    """

    resource_id: str
    request_id: str
    kind: str
    body_sha256: str
    outcome: dict[str, Any] | None = None
    of_run: bool = True
    """Whether it is remembered as one of the run with which it is written."""


class RequestRecord(Struct, frozen=True):
    """A remembered request; ``run_status`` is the present status of its run, if it made one."""

    request_id: str
    kind: str
    body_sha256: str
    run_id: str | None = None
    message_id: str | None = None
    outcome: dict[str, Any] | None = None
    run_status: RunStatus | None = None


class LastRun(Struct, frozen=True):
    """How the session's latest run stands, for snapshots."""

    run_id: str
    request_id: str | None
    status: RunStatus
    finish_reason: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class ToolRecord(Struct, frozen=True):
    """One tool call's row (``tool_invocation``): inserted with its turn, then updated until it is settled.

    The key is (session, ``tool_call_id``). A settled row (succeeded, failed, cancelled) never changes again.
    ``run_id`` is the run that asked for the call; an accepted call may run within a later one. None is
    allowed when updating: the row keeps what it has.
    """

    tool_call_id: str
    name: str
    arguments: str
    arguments_sha256: str
    confirmation_state: ConfirmationState
    execution_state: ExecutionState
    run_id: str | None = None
    step_index: int | None = None
    assistant_message_id: str | None = None
    message_id: str | None = None
    result: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    decision: str | None = None
    decided_by: str | None = None
    decision_reason: str | None = None
    decided_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    created_at: datetime = field(default_factory=utc_now)


class Claimed(Struct, frozen=True):
    """A session as its new owner finds it, after the running run of the old one was settled.

    ``messages`` are the last ``window`` ones, oldest first; ``tools`` those calls that still wait (for a
    person, or decided and not yet run).
    """

    session_id: str
    owner: str
    fence: int
    namespace: str
    actor_name: str | None
    project_id: str | None
    metadata: dict[str, Any]
    linked_plan_ids: tuple[str, ...]
    usage: TokenUsage
    created_at: datetime
    updated_at: datetime
    next_sequence: int
    messages: list[SessionMessage]
    last_run: LastRun | None = None
    tools: tuple[ToolRecord, ...] = ()
    pair_count: int = 0


class SessionRow(Struct, frozen=True):
    """A session's metadata; ``message_count`` equals its next sequence."""

    session_id: str
    owner: str
    namespace: str
    actor_name: str | None
    project_id: str | None
    metadata: dict[str, Any]
    linked_plan_ids: tuple[str, ...]
    status: str
    pair_count: int
    message_count: int
    usage: TokenUsage
    created_at: datetime
    updated_at: datetime
    last_active_at: datetime
    expires_at: datetime | None = None


class ProjectSeed(Struct, frozen=True):
    """A project's row to be made together with its first change (protocol.md section 1)."""

    project_id: str
    owner: str
    metadata: dict[str, Any] = {}
    created_at: datetime = field(default_factory=utc_now)


class ProjectRow(Struct, frozen=True):
    """A project's metadata, and how often its canvas was changed."""

    project_id: str
    owner: str
    metadata: dict[str, Any]
    canvas_version: int
    created_at: datetime
    updated_at: datetime


class ProjectClaimed(Struct, frozen=True):
    """A project as its new owner finds it, after all that ran in its conversations was settled.

    ``conversation_ids`` are those to show at once, the one used last at the end: all whose tool calls wait,
    and the last ten.
    """

    row: ProjectRow
    fence: int
    conversation_ids: tuple[str, ...] = ()


class CanvasWrite(Struct, frozen=True, kw_only=True):
    """One change of a canvas, written whole or not at all.

    ``version`` is that of the canvas before it. ``nodes`` and ``edges`` are put as they are here, whether
    they are there or not; edges that go with a node are named too. With ``seed`` the project's row is made
    in the same transaction, with ``fence`` (1) as its fence.
    """

    project_id: str
    fence: int
    version: int
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    deleted_node_ids: tuple[str, ...] = ()
    deleted_edge_ids: tuple[str, ...] = ()
    seed: ProjectSeed | None = None
    request: RequestKey | None = None


class CanvasPage(Struct, frozen=True):
    """Some of a canvas, and where the rest begins (None at the end)."""

    nodes: list[Node]
    edges: list[Edge]
    version: int
    next_cursor: str | None


class AppendWrite(Struct, frozen=True):
    """One message to append, with the sequence that its actor gave it.

    With ``seed`` the session's row is made in the same transaction, with ``fence`` (1) as its fence; if a
    row is there by then, the write is :class:`~storage.errors.Fenced`.
    """

    session_id: str
    fence: int
    message: SessionMessage
    seed: SessionSeed | None = None
    request: RequestKey | None = None
    origin: str = "socket"


class NewRun(Struct, frozen=True):
    """A run as it begins."""

    run_id: str
    session_id: str
    request_id: str
    query: str
    agent_flow: AgentFlow
    model: str | None = None
    created_at: datetime = field(default_factory=utc_now)
    continues_run_id: str | None = None


class StepRecord(Struct, frozen=True):
    """One model turn of a run (``agent_step``); ``ttft_ms`` is None when no token came."""

    step_index: int
    model: str | None = None
    content: str = ""
    thinking: str = ""
    finish_reason: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    ttft_ms: int | None = None
    started_at: datetime = field(default_factory=utc_now)
    ended_at: datetime | None = None


class TurnWrite(Struct, frozen=True):
    """What one committed turn brings: messages with their gapless sequences, steps, tool calls, usage.

    ``usage`` is added to the session; use it here or in :class:`RunEnd`, not in both. ``run_id`` None is for
    what happens outside any run (a decision, an answer of a person).
    """

    run_id: str | None = None
    messages: tuple[SessionMessage, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    tools: tuple[ToolRecord, ...] = ()
    requests: tuple[RequestKey, ...] = ()
    origin: str = "engine"


class RunEnd(Struct, frozen=True):
    """How a run ends; everything in it is written in one transaction.

    ``usage`` is the whole run's and is added to the session's. ``messages`` come after ``message`` (results
    of calls that were settled with the run). Sequences are gapless.
    """

    run_id: str
    status: RunStatus
    finish_reason: str
    answer: str
    usage: TokenUsage
    error: RunError | None = None
    message: SessionMessage | None = None
    step: StepRecord | None = None
    ended_at: datetime = field(default_factory=utc_now)
    messages: tuple[SessionMessage, ...] = ()
    tools: tuple[ToolRecord, ...] = ()


class RunRow(Struct, frozen=True):
    """Everything that ``diagnosis_run`` knows of one run."""

    run_id: str
    session_id: str
    request_id: str | None
    query: str
    status: RunStatus
    agent_flow: AgentFlow
    answer: str
    model: str | None
    finish_reason: str | None
    error_code: str | None
    error_message: str | None
    continues_run_id: str | None
    message_id: str | None
    self_evaluation: dict[str, Any] | None
    feedback: str | None
    usage: TokenUsage
    step_count: int
    tool_call_count: int
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None


class RunSummary(Struct, frozen=True):
    """A run in a list: never its steps or tools, of its answer only the first 200 characters."""

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


class StepRow(Struct, frozen=True):
    """A step of a trace; what the older schema did not know is None."""

    step_index: int
    run_id: str | None
    model: str | None
    content: str
    thinking: str
    finish_reason: str | None
    input_tokens: int
    output_tokens: int
    ttft_ms: int | None
    started_at: datetime | None
    ended_at: datetime | None


class ToolRow(Struct, frozen=True):
    """A tool call of a trace; what the older schema did not know is None."""

    run_id: str | None
    tool_call_id: str | None
    name: str
    arguments: str
    arguments_sha256: str | None
    confirmation_state: str | None
    execution_state: str
    result: str | None
    error_code: str | None
    error_message: str | None
    step_index: int | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
