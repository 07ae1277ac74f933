"""What a tool is, and how a typed function becomes one.

A tool's author writes an async function of one struct of arguments and a :class:`ToolContext`; the JSON
schema that the model sees is made from the struct, the description from the docstring::

    class Zone(Struct, frozen=True):
        zone: Annotated[str, Meta(description="IANA name, like Europe/Berlin")] = "UTC"

    @tool(policy=Policy.IMMEDIATE, timeout_s=5)
    async def current_time(arguments: Zone, context: ToolContext) -> str:
        \"\"\"Tell the date and time.\"\"\"

Knows nothing of who calls it: :mod:`server.tools.registry` keeps the limits and catches what goes wrong.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, get_type_hints

import msgspec
from msgspec import Struct

from protocol.canvas import CreatedBy
from protocol.codes import ErrorCode
from protocol.errors import Fault
from server.tools.arguments import InvalidArguments, read_object

if TYPE_CHECKING:
    from protocol.server_frames import CanvasBatchResult
    from server.canvas.edits import RawBatch
    from storage.store import Store

NAME_PATTERN: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What OpenAI-compatible endpoints take as the name of a function."""

ArgumentsT = TypeVar("ArgumentsT", bound=Struct)


class Policy(StrEnum):
    """What has to happen before a call runs (TL2 to TL7)."""

    IMMEDIATE = "immediate"
    CONFIRM = "confirm"
    ASK_USER = "ask_user"


class CanvasSeam(Protocol):
    """The canvas of the conversation's project, as its actor gives it to tools (CV5)."""

    async def apply(self, batch: RawBatch, provenance: CreatedBy) -> CanvasBatchResult:
        """Change the canvas, all or nothing, on the path that clients' batches take; after the commit.

        Repeat-safe by ``provenance.tool_call_id``. A batch with a bad item is answered: ``success`` false.

        Raises:
            Fault: The store is away, or a limit.
        """
        ...


class ToolContext(Struct, frozen=True):
    """For whom and within what a call runs; ``canvas`` is None outside of projects."""

    principal: str
    session_id: str
    project_id: str | None
    run_id: str
    tool_call_id: str
    store: Store
    canvas: CanvasSeam | None = None


class ToolResult(Struct, frozen=True):
    """What came of a call: text for the model, clean (ER2) and within ``tool_output_bytes``."""

    content: str


class ToolFault(Fault):
    """A call that failed; ``code`` is ``tool_failed`` or ``tool_timeout``.

    The message is told to the model and to the client: nothing of the server's insides.
    """

    def __init__(self, message: str, code: ErrorCode = ErrorCode.TOOL_FAILED) -> None:
        super().__init__(code, message)


class Tool(ABC):
    """Something that a model may call.

    Attributes:
        name: Unique among the tools offered, of :data:`NAME_PATTERN`.
        description: For the model.
        parameters: The JSON schema of an object.
        policy: What has to happen before it runs.
        timeout_s: How long it may run, seconds.
        expires_s: How long it waits for a person, seconds; None: for ever (TL4).
    """

    name: str
    description: str
    parameters: dict[str, Any]
    policy: Policy
    timeout_s: float = 30.0
    expires_s: float | None = None

    @abstractmethod
    def check(self, arguments: str) -> None:
        """Check what the model wrote, before anybody is asked or anything runs.

        Raises:
            ToolFault: Not JSON, not an object, or not what the schema says, in words for the model (TL1).
        """

    @abstractmethod
    async def run(self, arguments: str, context: ToolContext) -> ToolResult:
        """Carry a call out; may raise anything, for :func:`~server.tools.registry.execute` catches it."""

    def check_answer(self, arguments: str, answer: str) -> None:  # noqa: B027 (most tools ask nothing)
        """Check a person's answer to a call of policy ``ask_user``.

        Raises:
            Fault: ``invalid_message``: the schema in the arguments refuses it.
        """


Returned: TypeAlias = str | Struct | dict[str, Any] | list[Any]
ToolFunction: TypeAlias = Callable[[ArgumentsT, ToolContext], Awaitable[Returned]]


class FunctionTool(Tool):
    """A tool made of a typed function; see :func:`tool`."""

    def __init__(
        self,
        function: ToolFunction[Any],
        *,
        policy: Policy,
        timeout_s: float,
        expires_s: float | None = None,
        name: str | None = None,
        check_answer: Callable[[Any, str], None] | None = None,
    ) -> None:
        self.name = checked_name(name or function.__name__)
        self.description = inspect.getdoc(function) or ""
        if not self.description:
            raise TypeError(f"the tool {self.name} has no docstring to describe it")
        self._arguments: type[Struct] = _struct_of(function)
        self.parameters = schema_of(self._arguments)
        self.policy = policy
        self.timeout_s = timeout_s
        self.expires_s = expires_s
        self._function = function
        self._check_answer = check_answer

    def check(self, arguments: str) -> None:
        """As :meth:`Tool.check`."""
        self._read(arguments)

    async def run(self, arguments: str, context: ToolContext) -> ToolResult:
        """Read the arguments and call the function."""
        returned = await self._function(self._read(arguments), context)
        return ToolResult(returned if isinstance(returned, str) else msgspec.json.encode(returned).decode())

    def check_answer(self, arguments: str, answer: str) -> None:
        """As :meth:`Tool.check_answer`."""
        if self._check_answer is not None:
            self._check_answer(self._read(arguments), answer)

    def _read(self, arguments: str) -> Any:
        try:
            return msgspec.convert(read_object(arguments), self._arguments)
        except InvalidArguments as error:
            raise ToolFault(f"invalid arguments: {error}") from None
        except msgspec.ValidationError as error:
            raise ToolFault(f"invalid arguments: {bounded_words(str(error))}") from None


def tool(
    *,
    policy: Policy,
    timeout_s: float = 30.0,
    expires_s: float | None = None,
    name: str | None = None,
    check_answer: Callable[[Any, str], None] | None = None,
) -> Callable[[ToolFunction[ArgumentsT]], FunctionTool]:
    """Make a tool of an async function ``f(arguments: SomeStruct, context: ToolContext)``.

    What it returns goes to the model: text as it is, anything else as JSON.

    Args:
        policy: What has to happen before it runs; an agent may make it stricter or looser.
        timeout_s: How long it may run.
        expires_s: How long it waits for a person; None: for ever.
        name: The function's own if not given.
        check_answer: For policy ``ask_user``: told the arguments and the answer, raises
            :class:`~protocol.errors.Fault`.
    """

    def make(function: ToolFunction[ArgumentsT]) -> FunctionTool:
        return FunctionTool(
            function,
            policy=policy,
            timeout_s=timeout_s,
            expires_s=expires_s,
            name=name,
            check_answer=check_answer,
        )

    return make


def checked_name(name: str) -> str:
    """A name that endpoints take; raises ValueError."""
    if NAME_PATTERN.fullmatch(name) is None:
        raise ValueError(f"a tool's name has 1 to 64 letters, digits, _ and -, not {name!r}")
    return name


def bounded_words(text: str, limit: int = 500) -> str:
    """An error's text, short enough to be shown."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def schema_of(arguments: type[Struct]) -> dict[str, Any]:
    """The JSON schema of a struct, in itself whole, without the titles that say nothing to a model."""
    schema = _inlined(msgspec.json.schema(arguments))
    schema.pop("title", None)
    schema.pop("description", None)
    schema.setdefault("properties", {})
    return schema


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace references by what they refer to: many endpoints do not follow them."""
    parts: Mapping[str, Any] = schema.get("$defs", {})

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(item) for item in value]
        if not isinstance(value, dict):
            return value
        reference = value.get("$ref")
        if isinstance(reference, str):
            return walk({**parts[reference.removeprefix("#/$defs/")], **_without(value, "$ref")})
        return {key: walk(item) for key, item in value.items() if key != "$defs"}

    walked: dict[str, Any] = walk(schema)
    return walked


def _without(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name != key}


def _struct_of(function: Callable[..., Any]) -> type[Struct]:
    """The type of a tool function's first parameter; the context's type need not be known at run time."""
    first = next(iter(inspect.signature(function).parameters))
    only = type("_Only", (), {"__annotations__": {first: function.__annotations__[first]}})
    found = get_type_hints(only, globalns=function.__globals__, include_extras=True)[first]
    if not (isinstance(found, type) and issubclass(found, Struct)):
        raise TypeError(f"the first parameter of {function.__name__} must be a msgspec struct")
    return found
