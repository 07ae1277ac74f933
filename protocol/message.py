"""One message of a session, what it cost, and the checks that messages and sessions share (SE2 to SE4)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from math import isfinite
from typing import Any

from msgspec import Struct, field
from msgspec.structs import force_setattr

from protocol.canonical import rfc3339, sorted_json
from protocol.codes import ErrorCode
from protocol.ids import is_ulid, new_ulid, utc_now
from protocol.session_errors import SessionValidationError
from protocol.tool_call import ToolCall


class MessageRole(StrEnum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class TokenUsage(Struct, frozen=True, kw_only=True):
    """Tokens and what they cost in USD (0 where the price is not known)."""

    input_tokens: int = 0
    output_tokens: int = 0
    estimated_cost: float = 0.0

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise SessionValidationError(f"{name} must be an integer, not {value!r}")
            if value < 0:
                raise SessionValidationError(f"{name} must not be negative: {value}")
        cost = self.estimated_cost
        if not isinstance(cost, int | float) or isinstance(cost, bool) or not isfinite(cost):
            raise SessionValidationError(f"estimated_cost must be a finite number, not {cost!r}")
        if cost < 0:
            raise SessionValidationError(f"estimated_cost must not be negative: {cost}")

    def export_dict(self) -> dict[str, Any]:
        """JSON types; equal costs are equal bytes, whether given as 0, 0.0 or -0.0."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "estimated_cost": float(self.estimated_cost) + 0.0,
        }

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            estimated_cost=self.estimated_cost + other.estimated_cost,
        )


def check_content(content: str) -> None:
    """Check what a client says: not empty, not only white space (ER3, SE4).

    Raises:
        SessionValidationError: With the code ``invalid_message``.
    """
    if not content or content.isspace():
        raise SessionValidationError(
            "content must not be empty or whitespace only", code=ErrorCode.INVALID_MESSAGE
        )


class SessionMessage(Struct, frozen=True, kw_only=True):
    """One message.

    The content of user and system messages is never blank. What the engine makes may be empty: an assistant
    message that only calls tools, a stopped answer, a tool's empty result; a tool message that a *client*
    sends is checked where it comes in (:func:`check_content`).
    """

    message_id: str = field(default_factory=new_ulid)
    sequence: int = 0
    role: MessageRole
    content: str
    tool_call_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime = field(default_factory=utc_now)

    def __post_init__(self) -> None:
        check_ulid("message_id", self.message_id)
        if not isinstance(self.sequence, int) or isinstance(self.sequence, bool) or self.sequence < 0:
            raise SessionValidationError(f"sequence must be an integer from 0, not {self.sequence!r}")
        if not isinstance(self.role, MessageRole):
            force_setattr(self, "role", role_of(self.role))
        if not isinstance(self.content, str):
            raise SessionValidationError(f"content must be a string, not {self.content!r}")
        if self.role is MessageRole.TOOL and not self.tool_call_id:
            raise SessionValidationError("a tool message needs a tool_call_id")
        if self.role in {MessageRole.USER, MessageRole.SYSTEM}:
            check_content(self.content)
        check_object("metadata", self.metadata)
        check_time("created_at", self.created_at)

    def export_dict(self) -> dict[str, Any]:
        """The message as SE6 writes it: JSON types, decisions on tool calls left out (TL8)."""
        return {
            "message_id": self.message_id,
            "sequence": self.sequence,
            "role": self.role.value,
            "content": self.content,
            "tool_call_id": self.tool_call_id,
            "tool_calls": [_export_call(call) for call in self.tool_calls],
            "metadata": sorted_json(self.metadata),
            "created_at": rfc3339(self.created_at),
        }


def role_of(role: MessageRole | str) -> MessageRole:
    """The role of this name; raises :class:`SessionValidationError`."""
    try:
        return MessageRole(role)
    except ValueError:
        raise SessionValidationError(f"role must be one of {', '.join(MessageRole)}, not {role!r}") from None


def _export_call(call: ToolCall) -> dict[str, Any]:
    error = call.error
    return {
        "tool_call_id": call.tool_call_id,
        "name": call.name,
        "arguments": call.arguments,
        "execution_state": call.execution_state.value,
        "result": call.result,
        "error": None if error is None else {"code": error.code, "message": error.message},
    }


def check_ulid(name: str, text: object) -> None:
    """Check an id; the error names the field."""
    if not is_ulid(text):
        raise SessionValidationError(f"{name} must be a ULID (26 upper-case characters), not {text!r}")


def check_object(name: str, value: object) -> None:
    """Check a JSON object's shape; the error names the field."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise SessionValidationError(f"{name} must be an object with string keys")


def check_time(name: str, moment: object) -> None:
    """Check that a time is aware; the error names the field."""
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise SessionValidationError(f"{name} must be a time with a zone, not {moment!r}")
