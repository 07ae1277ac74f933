"""What a route may use, and what it is called with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from server.actors.kinds import Kind

if TYPE_CHECKING:
    from starlette.requests import Request

    from server.access import Access, Principal
    from server.llm.catalog import Catalog
    from server.metrics import Metrics
    from server.settings import Settings
    from storage.records import ProjectSeed, SessionSeed
    from storage.store import Store

__all__ = ["Call", "Conversations", "RestContext"]

Q = TypeVar("Q")
B = TypeVar("B")


class Conversations(Protocol):
    """What REST needs of the registry of actors."""

    @property
    def draining(self) -> bool:
        """Whether the server is about to go away."""
        ...

    async def call(
        self,
        resource_id: str,
        owner: str,
        command: Any,
        *,
        kind: Kind = Kind.CONVERSATION,
        create: bool = False,
    ) -> Any:
        """Have a resource's actor carry out a command; a Fault is the client's to see."""
        ...

    async def create(self, seed: SessionSeed) -> None:
        """Make a session's row; Fault ``session_exists``."""
        ...

    async def create_project(self, seed: ProjectSeed) -> None:
        """Make a project's row; Fault ``project_exists``."""
        ...


@dataclass(frozen=True, slots=True)
class RestContext:
    """The parts of the server that routes are made of.

    Writes to an existing session go through ``registry``, reads ask ``store``.
    """

    settings: Settings
    access: Access
    store: Store
    registry: Conversations
    catalog: Catalog | None
    metrics: Metrics
    ready: Callable[[], Awaitable[None]] | None = None
    """Raises the Fault that says why the server is not ready; ``None`` asks the store and the registry."""


@dataclass(frozen=True, slots=True)
class Call(Generic[Q, B]):
    """One request, decoded and authenticated."""

    context: RestContext
    principal: Principal
    request: Request
    path: Mapping[str, str]
    """The parameters in the path, by name."""
    query: Q
    body: B

    @property
    def owner(self) -> str:
        """The caller's name, as the store knows owners."""
        return self.principal.name

    @property
    def session_id(self) -> str:
        """The session in the path; well-formed."""
        return self.path["sessionId"]

    @property
    def project_id(self) -> str:
        """The project in the path; a ULID."""
        return self.path["projectId"]
