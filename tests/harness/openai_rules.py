"""What OpenAI demands of the messages of a request, and a little more.

Works on plain dicts and has nothing of the server's code.
"""

from __future__ import annotations

import re
from typing import Any

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class RuleBroken(Exception):
    """A history that an endpoint may refuse."""


def check_messages(messages: list[dict[str, Any]]) -> None:
    """Check a request's messages.

    - Each tool message answers one call of the assistant's message right before it and its siblings, and
      every call is answered exactly once, before anything else is said.
    - Ids of calls are unique in the whole history; names are such as endpoints take; arguments are texts.
    - Users and systems say something; an assistant says or calls something.
    """
    _demand(bool(messages), "no messages")
    due: list[str] = []
    seen: set[str] = set()
    for at, message in enumerate(messages):
        role, content = message["role"], message.get("content")
        if role == "tool":
            _demand(message.get("tool_call_id") in due, f"[{at}] answers no open call: {message}")
            _demand(isinstance(content, str), f"[{at}] has no content")
            due.remove(message["tool_call_id"])
            continue
        _demand(not due, f"[{at}] comes while calls are not answered: {due}")
        _demand(role in {"system", "user", "assistant"}, f"[{at}] has role {role}")
        calls = message.get("tool_calls") or []
        _demand(bool(content) or (role == "assistant" and bool(calls)), f"[{at}] says nothing")
        _demand(role == "assistant" or not calls, f"[{at}] calls tools and is no assistant")
        due = [call["id"] for call in calls]
        _demand(len({*due} | seen) == len(due) + len(seen), f"[{at}] repeats an id: {due}")
        seen.update(due)
        for call in calls:
            function = call["function"]
            _demand(_NAME.fullmatch(function["name"]) is not None, f"[{at}] calls {function['name']!r}")
            _demand(isinstance(function["arguments"], str), f"[{at}] has arguments that are no text")
    _demand(not due, f"calls are not answered at the end: {due}")


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RuleBroken(otherwise)
