"""What a model's refusal means: from status, code and words of an upstream error to a :class:`ModelFault`.

The words are read, never repeated: they may hold keys or pieces of the conversation.
"""

from __future__ import annotations

import re
from typing import Any, Final

from protocol.codes import ErrorCode
from server.llm.base import ModelFault

_CONTEXT: Final = re.compile(
    r"context[ _-](?:length|window|size)|maximum context|exceed_context_size|too many (?:input )?tokens"
    r"|prompt is too long|input (?:is|length)[^.]{0,40}(?:too long|exceed)|reduce the length",
    re.IGNORECASE,
)
_FILTER: Final = re.compile(
    r"content[ _-]?(?:filter|policy|management)|responsibleai|moderation|safety[ _-]", re.IGNORECASE
)
_NO_MODEL: Final = re.compile(
    r"model[ _-]?not[ _-]?found|no such model|unknown[ _-]model|invalid[ _-]model"
    r"|models?\b.{0,120}?(?:not found|not exist|not available|no access)",
    re.IGNORECASE | re.DOTALL,
)
_LIMIT: Final = re.compile(r"rate[ _-]?limit|too many requests|insufficient_quota|quota", re.IGNORECASE)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_READ: Final = 4096
"""How much of an upstream's message is looked at, characters."""

_RETRYABLE_STATUS: Final = frozenset({408, 409, 425})


def upstream_fault(
    status: int | None,
    *,
    code: str = "",
    kind: str = "",
    message: str = "",
    retry_after_ms: int | None = None,
) -> ModelFault:
    """Map an upstream error.

    Args:
        status: HTTP status, or the one that an error inside of a stream names; ``None`` if none is known.
        code: The error object's ``code``.
        kind: Its ``type``.
        message: Its ``message``; only read.
        retry_after_ms: What the upstream asks to wait.
    """
    words = f"{code}\n{kind}\n{message[:_READ]}"
    details: dict[str, Any] = {}
    if status is not None:
        details["status"] = status
    if _PLAIN.fullmatch(code):
        details["upstream_code"] = code
    if _PLAIN.fullmatch(kind):
        details["upstream_type"] = kind
    fault_code, text = _meaning(status, words)
    return ModelFault(fault_code, text, details=details, retry_after_ms=retry_after_ms)


def _meaning(status: int | None, words: str) -> tuple[ErrorCode, str]:
    if status in {401, 403} and not _FILTER.search(words):
        return ErrorCode.LLM_UNAVAILABLE, "the model's endpoint refused the credentials"
    if status == 429 or (status in {None, 402} and _LIMIT.search(words)):
        return ErrorCode.LLM_RATE_LIMITED, "the model's endpoint is over its rate or quota"
    if status is None or 400 <= status < 500:
        if _CONTEXT.search(words):
            return ErrorCode.LLM_CONTEXT_LENGTH, "the conversation is too long for the model"
        if _FILTER.search(words):
            return ErrorCode.LLM_CONTENT_FILTER, "the model's content filter refused"
        if _NO_MODEL.search(words):
            return ErrorCode.UNKNOWN_MODEL, "the endpoint has no such model"
    if status == 404:
        return ErrorCode.LLM_UNAVAILABLE, "the endpoint has no chat completions under this address"
    if status is not None and 400 <= status < 500 and status not in _RETRYABLE_STATUS:
        return ErrorCode.LLM_BAD_RESPONSE, "the model's endpoint refused the request"
    return ErrorCode.LLM_UNAVAILABLE, "the model's endpoint failed"


def bad_response(text: str) -> ModelFault:
    """What came is no answer as the wire format has it; ``text`` says what is wrong, without quoting it."""
    return ModelFault(ErrorCode.LLM_BAD_RESPONSE, text)


def unavailable(text: str) -> ModelFault:
    """The endpoint is not there, or went away."""
    return ModelFault(ErrorCode.LLM_UNAVAILABLE, text)


def content_filtered() -> ModelFault:
    """The model stopped because its content filter said so."""
    return ModelFault(ErrorCode.LLM_CONTENT_FILTER, "the model's content filter ended the answer")
