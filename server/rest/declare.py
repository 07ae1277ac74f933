"""How a route is declared: once, with everything that serving and describing it needs.

A declaration that is incomplete (no ownership, a path without the id that its ownership speaks of) fails when
the module is imported.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from msgspec import Struct

from protocol.codes import ErrorCode
from server.rest.context import Call
from server.rest.schemas import NoBody, NoQuery

__all__ = ["Operation", "Ownership", "Routes"]

Q = TypeVar("Q", bound=Struct)
B = TypeVar("B", bound=Struct)
R = TypeVar("R")

PARAMETER: Final = re.compile(r"{(\w+)(?::path)?}")
_CHANGING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Ownership(Enum):
    """Whose things a route shows or changes."""

    PUBLIC = "public"
    """Nobody's: no authentication."""
    CALLER = "caller"
    """The caller's own, all of them or a new one."""
    SESSION = "session"
    """The session in the path, which must be the caller's; another's is answered like one that is not."""
    PROJECT = "project"
    """The project in the path, as :attr:`SESSION`."""

    @property
    def parameter(self) -> str | None:
        """The parameter that names what must be the caller's."""
        return {Ownership.SESSION: "sessionId", Ownership.PROJECT: "projectId"}.get(self)


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    """With parameters in braces."""
    name: str
    """Of the handler; the operation's id in the document."""
    summary: str
    """The first line of the handler's docstring."""
    ownership: Ownership
    query: type[Struct]
    body: type[Struct]
    response: Any
    """The struct of ``data``; ``None`` for a route that answers something else than the envelope."""
    media: str
    errors: tuple[ErrorCode, ...]
    """Those that the handler adds; :attr:`all_errors` has every one."""
    max_body_bytes: int | None
    """Largest body; ``None`` is the setting ``max_frame_bytes``."""
    handler: Callable[[Call[Any, Any]], Awaitable[Any]]

    @property
    def changing(self) -> bool:
        """Whether it changes something, so that a foreign page must not call it."""
        return self.method in _CHANGING

    @property
    def has_body(self) -> bool:
        """Whether a body is read."""
        return self.body is not NoBody

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names in the path."""
        return tuple(PARAMETER.findall(self.path))

    @property
    def all_errors(self) -> tuple[ErrorCode, ...]:
        """Every code that it may answer, in the order of the table."""
        codes = {*self.errors, ErrorCode.INTERNAL, ErrorCode.FORBIDDEN_ORIGIN}
        if self.ownership is not Ownership.PUBLIC:
            codes.add(ErrorCode.UNAUTHENTICATED)
        if self.ownership.parameter is not None:
            codes.add(ErrorCode.NOT_FOUND)
        if self.has_body:
            codes |= {ErrorCode.INVALID_REQUEST, ErrorCode.TOO_LARGE}
        if self.query is not NoQuery:
            codes.add(ErrorCode.INVALID_REQUEST)
        return tuple(code for code in ErrorCode if code in codes)


_OWNED: Final = frozenset(owned.parameter for owned in Ownership if owned.parameter is not None)


class Routes:
    """The operations of one module; :meth:`declare` adds to them while it is imported."""

    def __init__(self) -> None:
        self._operations: Final[list[Operation]] = []

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations)

    def declare(
        self,
        method: str,
        path: str,
        *,
        ownership: Ownership,
        response: Any,
        query: type[Q] = NoQuery,  # type: ignore[assignment]
        body: type[B] = NoBody,  # type: ignore[assignment]
        errors: tuple[ErrorCode, ...] = (),
        media: str = "application/json",
        max_body_bytes: int | None = None,
    ) -> Callable[[Callable[[Call[Q, B]], Awaitable[R]]], Callable[[Call[Q, B]], Awaitable[R]]]:
        """Declare the decorated handler as this operation.

        Raises:
            TypeError, ValueError: The declaration is incomplete or contradicts itself.
        """

        def register(handler: Callable[[Call[Q, B]], Awaitable[R]]) -> Callable[[Call[Q, B]], Awaitable[R]]:
            operation = Operation(
                method=method,
                path=path,
                name=handler.__name__,
                summary=(handler.__doc__ or "").strip().partition("\n")[0].rstrip("."),
                ownership=ownership,
                query=query,
                body=body,
                response=response,
                media=media,
                errors=errors,
                max_body_bytes=max_body_bytes,
                handler=handler,
            )
            _check(operation)
            self._operations.append(operation)
            return handler

        return register


def _check(operation: Operation) -> None:
    where = f"{operation.method} {operation.path}"
    if not isinstance(operation.ownership, Ownership):
        raise TypeError(f"{where}: no ownership declared")
    owned = operation.ownership.parameter
    if owned is not None and owned not in operation.parameters:
        raise ValueError(f"{where}: the ownership is of a {operation.ownership.value}, the path names none")
    if operation.ownership is Ownership.PUBLIC and (
        operation.changing or not _OWNED.isdisjoint(operation.parameters)
    ):
        raise ValueError(f"{where}: a public route changes nothing and shows nobody's things")
    if operation.has_body and not operation.changing:
        raise ValueError(f"{where}: this method has no body")
    if not operation.summary:
        raise ValueError(f"{where}: the handler has no docstring")
