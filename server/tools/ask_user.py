"""``ask_user``: a question to the person, answered by an ``append_message`` with role ``tool`` (TL7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from msgspec import Meta, Struct

from protocol.codes import ErrorCode
from protocol.errors import Fault
from server.tools.answers import InvalidAnswer, InvalidSchema, check_answer, check_schema
from server.tools.base import Policy, ToolFault, tool

if TYPE_CHECKING:
    from server.tools.base import ToolContext


class Question(Struct, frozen=True):
    """What to ask."""

    question: Annotated[
        str, Meta(min_length=1, max_length=4000, description="The question, in the user's language.")
    ]
    choices: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=500)]] | None,
        Meta(description="The answers to choose from, if there are only these; at most 50."),
    ] = None
    schema: Annotated[
        dict[str, Any] | None,
        Meta(description="A JSON Schema that the answer must fit, without references."),
    ] = None

    def __post_init__(self) -> None:
        if self.schema is not None:
            try:
                check_schema(self.schema)
            except InvalidSchema as error:
                raise ValueError(f"schema: {error}") from None
        if self.choices is not None and len(self.choices) > 50:
            raise ValueError("choices: there are more than 50")


def _check(arguments: Question, answer: str) -> None:
    if arguments.choices and answer.strip() not in {choice.strip() for choice in arguments.choices}:
        _refuse("the answer must be one of the choices", choices=arguments.choices)
    if arguments.schema is not None:
        try:
            check_answer(arguments.schema, answer)
        except InvalidAnswer as error:
            _refuse(f"the answer does not fit: {error}")


def _refuse(message: str, **details: object) -> NoReturn:
    raise Fault(ErrorCode.INVALID_MESSAGE, message, details={"field": "content", **details})


@tool(policy=Policy.ASK_USER, check_answer=_check)
async def ask_user(arguments: Question, context: ToolContext) -> str:
    """Ask the user a question and wait for the answer, which may take long.

    Use it when something is missing that only the user knows, or when a decision is the user's to make.
    """
    del arguments, context
    raise ToolFault("a question is answered by the user, it is not run")
