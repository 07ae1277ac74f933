"""The parts of server frames: what a client is shown of messages, tool calls, runs, sessions, projects."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct, field

from protocol.message import MessageRole, TokenUsage
from protocol.run import FinishReason, RunError, RunStatus
from protocol.tool_call import ConfirmationState, ExecutionState, ToolError


class Limits(Struct, kw_only=True):
    """The limits that a client should know."""

    max_frame_bytes: int
    rate_burst: int
    rate_per_s: float
    queue_limit: int
    llm_first_token_timeout_ms: int
    llm_gap_timeout_ms: int
    slow_reader_bytes: int
    outbox_bytes: int


class Timing(Struct, kw_only=True):
    """How long a completion took; ``ttft_ms`` is null when no token came."""

    ttft_ms: int | None = None
    total_ms: int = 0


class ToolCallFunction(Struct, kw_only=True, gc=False):
    """A fragment of a call: the name in the first chunk only, then pieces of the arguments."""

    name: str | None = None
    arguments: str = ""


class ToolCallView(Struct, kw_only=True):
    """A tool call as it stands; ``sequence`` is its tool message's, once settled."""

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


class MessageView(Struct, kw_only=True):
    """A stored message."""

    message_id: str
    sequence: int
    role: MessageRole
    content: str
    tool_call_id: str | None = None
    tool_calls: list[ToolCallView] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime


class SessionView(Struct, kw_only=True):
    """A session without its messages."""

    session_id: str
    namespace: str = "local"
    actor_name: str | None = None
    project_id: str | None = None
    message_count: int = 0
    linked_plan_ids: list[str] = field(default_factory=list)
    token_usage: TokenUsage = field(default_factory=TokenUsage)
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime
    updated_at: datetime


class RunningView(Struct, kw_only=True):
    """The completion that is running: all that is needed to show it and to go on from its next frame.

    ``sentence`` is the text of the sentence begun, not yet sent as ``llm_text_sentence``.
    """

    request_id: str
    run_id: str
    model: str | None = None
    message_id: str | None = None
    text: str = ""
    thinking: str = ""
    next_sentence_index: int = 0
    sentence: str = ""
    tool_calls: list[ToolCallView] = field(default_factory=list)


class LastRunView(Struct, kw_only=True):
    """How the last run ended."""

    run_id: str
    request_id: str | None = None
    status: RunStatus
    finish_reason: FinishReason | None = None
    error: RunError | None = None


class ProjectView(Struct, kw_only=True):
    """A project without its canvas and conversations."""

    project_id: str
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime
    updated_at: datetime


class ConversationView(Struct, kw_only=True):
    """One conversation's part of a snapshot."""

    session: SessionView
    messages: list[MessageView] = field(default_factory=list)
    truncated: bool = False
    running: RunningView | None = None
    queued: list[str] = field(default_factory=list)
    waiting: list[ToolCallView] = field(default_factory=list)
    last_run: LastRunView | None = None


class ConversationSummary(Struct, kw_only=True):
    """One conversation in a project's list."""

    conversation_id: str
    message_count: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime
    updated_at: datetime
