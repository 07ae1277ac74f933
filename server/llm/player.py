"""Plays scripts: which turn a history asks for, and its steps in order. Pure but for counted attempts.

Both the provider inside of the server and the stub endpoint consume the steps; neither decides anything.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, assert_never

import msgspec
from msgspec import Struct

from protocol.codes import ErrorCode
from protocol.ids import new_ulid
from server.llm.base import ChatMessage, ModelFault
from server.llm.failures import bad_response
from server.llm.scripts import (
    AnyAction,
    Call,
    Drop,
    Error,
    ErrorBody,
    Finish,
    Raw,
    Script,
    Stall,
    Text,
    Thinking,
    ToolCall,
    ToolCalls,
    Turn,
    Usage,
    UsageCounts,
    Wait,
    When,
)

PREFIX: Final = "script/"
_ATTEMPTS: Final = 10_000
"""Histories whose attempts are counted; the oldest are forgotten."""


class Say(Struct, frozen=True, gc=False):
    """A piece of text."""

    text: str


class Think(Struct, frozen=True, gc=False):
    """A piece of reasoning."""

    text: str


class Fragment(Struct, frozen=True, gc=False):
    """A piece of a tool call's arguments; ``id`` and ``name`` as the upstream would send them."""

    index: int
    id: str | None
    name: str | None
    arguments: str


class Pause(Struct, frozen=True, gc=False):
    """Time passes."""

    ms: float


class Bytes(Struct, frozen=True, gc=False):
    """Bytes for the wire, as they are."""

    data: bytes


class Fail(Struct, frozen=True):
    """The upstream fails; the last step."""

    error: ErrorBody


class Reset(Struct, frozen=True):
    """The connection is reset; the last step."""


class Hang(Struct, frozen=True):
    """Nothing comes any more; the last step."""


class End(Struct, frozen=True):
    """The turn is over; the last step. ``reason`` is a finish reason, or ``none``."""

    reason: str
    usage: UsageCounts | None


Step: TypeAlias = Say | Think | Fragment | Pause | Bytes | Fail | Reset | Hang | End


class Performance(Struct, frozen=True):
    """One answer about to be played; ``number`` is the turn's, from 1."""

    number: int
    turn: Turn
    steps: Iterator[Step]


class Player:
    """Plays any of some scripts, any number at once."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.scripts = scripts
        self._attempts: OrderedDict[int, int] = OrderedDict()

    def names(self) -> tuple[str, ...]:
        """The models on offer, as requests name them."""
        return tuple(PREFIX + name for name in self.scripts)

    def perform(self, model: str, messages: Sequence[ChatMessage]) -> Performance:
        """Choose the turn that a history asks for.

        Raises:
            ModelFault: ``unknown_model``, or no turn's condition holds.
        """
        script = self.scripts.get(model.removeprefix(PREFIX))
        if script is None:
            raise ModelFault(ErrorCode.UNKNOWN_MODEL, "there is no such script")
        number = choose_turn(script, messages, self._count_attempt(script, messages))
        if number is None:
            raise bad_response("no turn of the script fits this history")
        turn = script.turns[number]
        return Performance(number + 1, turn, steps_of(turn, messages))

    def _count_attempt(self, script: Script, messages: Sequence[ChatMessage]) -> int:
        if all(turn.when is None or turn.when.attempt is None for turn in script.turns):
            return 1
        key = hash((script.name, tuple((message.role, message.content) for message in messages)))
        attempt = self._attempts[key] = self._attempts.pop(key, 0) + 1
        if len(self._attempts) > _ATTEMPTS:
            self._attempts.popitem(last=False)
        return attempt


def choose_turn(script: Script, messages: Sequence[ChatMessage], attempt: int = 1) -> int | None:
    """The index of the turn to play (SCRIPTS.md, "Which turn is played"), ``None`` if there is none."""
    plain: list[int] = []
    for index, turn in enumerate(script.turns):
        if turn.when is None:
            plain.append(index)
        elif _holds(turn.when, messages, attempt):
            return index
    if not plain:
        return None
    users = sum(message.role == "user" for message in messages)
    assistants = sum(message.role == "assistant" for message in messages)
    calling = sum(bool(message.tool_calls) for message in messages)
    return plain[min(max(assistants, users - 1 + calling, 0), len(plain) - 1)]


def _holds(when: When, messages: Sequence[ChatMessage], attempt: int) -> bool:
    counts = (("user", when.users), ("assistant", when.assistants), ("tool", when.results))
    for role, wanted in counts:
        if wanted is not None and wanted != sum(message.role == role for message in messages):
            return False
    if when.last_role is not None and (not messages or messages[-1].role != when.last_role):
        return False
    if when.last_user is not None and when.last_user not in _last(messages, "user"):
        return False
    if when.last_result is not None and when.last_result not in _last(messages, "tool"):
        return False
    return when.attempt is None or when.attempt == attempt


def _last(messages: Sequence[ChatMessage], role: str) -> str:
    return next((message.content for message in reversed(messages) if message.role == role), "")


def steps_of(turn: Turn, messages: Sequence[ChatMessage]) -> Iterator[Step]:
    """The steps of a turn; the last is an :class:`End`, :class:`Fail`, :class:`Reset` or :class:`Hang`."""
    words = {"{last_user}": _last(messages, "user"), "{last_result}": _last(messages, "tool")}
    pieces = calls = 0
    usage: UsageCounts | Literal[False] | None = None
    reason = ""
    for action in turn.actions:
        match action:
            case Stall():
                yield Hang()
                return
            case Drop():
                yield Reset()
                return
            case Error():
                yield Fail(action.error)
                return
            case Finish():
                reason = action.finish
                break
            case Usage():
                usage = action.usage
            case _:
                for step in _steps_of_action(action, words, calls):
                    pieces += not isinstance(step, Pause)
                    yield step
                calls += len(_calls_of(action))
    if usage is None:
        prompt = sum(len(message.content) for message in messages)
        usage = UsageCounts(input_tokens=-(-prompt // 4), output_tokens=pieces)
    yield End(reason or ("tool_calls" if calls else "stop"), usage or None)


def _calls_of(action: AnyAction) -> tuple[Call, ...]:
    if isinstance(action, ToolCall):
        return (action.tool_call,)
    return action.tool_calls if isinstance(action, ToolCalls) else ()


def _steps_of_action(
    action: Text | Thinking | ToolCall | ToolCalls | Wait | Raw, words: Mapping[str, str], calls: int
) -> Iterator[Step]:
    match action:
        case Wait():
            yield Pause(action.wait_ms)
        case Text():
            for piece in _paced(action.text, action, words):
                yield piece if isinstance(piece, Pause) else Say(piece)
        case Thinking():
            for piece in _paced(action.thinking, action, words):
                yield piece if isinstance(piece, Pause) else Think(piece)
        case ToolCall() | ToolCalls():
            yield from _fragments(_calls_of(action), words, calls)
        case Raw():
            data = fill(action.raw, words).encode()
            for at in range(0, len(data), action.chunk):
                if at and action.every_ms:
                    yield Pause(action.every_ms)
                yield Bytes(data[at : at + action.chunk])
        case _:
            assert_never(action)


def _paced(text: str, action: Text | Thinking, words: Mapping[str, str]) -> Iterator[str | Pause]:
    first = True
    for count in range(1, action.repeat + 1):
        filled = fill(text, {**words, "{count}": str(count)})
        for at in range(0, len(filled), action.chunk):
            if not first and action.every_ms:
                yield Pause(action.every_ms)
            first = False
            yield filled[at : at + action.chunk]


def _fragments(calls: Sequence[Call], words: Mapping[str, str], first: int) -> Iterator[Step]:
    """The calls' fragments, taking turns."""
    waiting = [list(reversed(_fragments_of(call, words, first + at))) for at, call in enumerate(calls)]
    begun = False
    while any(waiting):
        for fragments, call in zip(waiting, calls, strict=True):
            if fragments:
                if begun and call.every_ms:
                    yield Pause(call.every_ms)
                begun = True
                yield fragments.pop()


def _fragments_of(call: Call, words: Mapping[str, str], index: int) -> list[Fragment]:
    if isinstance(call.arguments, str):
        text = fill(call.arguments, words)
    else:
        text = msgspec.json.encode(_fill_all(call.arguments, words)).decode()
    size = max(1, -(-len(text) // call.chunks))
    call_id = f"call_{new_ulid()}" if call.id is None else call.id or None
    fragments = [Fragment(index, call_id, call.name, "")]
    for at in range(0, len(text), size):
        repeated_id, repeated_name = (call_id, call.name) if call.repeat_id else (None, None)
        fragments.append(Fragment(index, repeated_id, repeated_name, text[at : at + size]))
    return fragments


def fill(text: str, words: Mapping[str, str]) -> str:
    """Put words in for their names in braces; other braces, and those within the words, stay."""
    if "{" not in text:
        return text
    head, *rest = text.split("{")
    filled = [head]
    for part in rest:
        name, brace, tail = part.partition("}")
        word = words.get(f"{{{name}}}") if brace else None
        filled.append("{" + part if word is None else word + tail)
    return "".join(filled)


def _fill_all(value: Any, words: Mapping[str, str]) -> Any:
    match value:
        case str():
            return fill(value, words)
        case dict():
            return {key: _fill_all(item, words) for key, item in value.items()}
        case list():
            return [_fill_all(item, words) for item in value]
        case _:
            return value
