"""Whom to ask for a resource when there is more than one node.

What is *safe* is the fence in Postgres; this only says where a resource probably is, so that a node which
does not own it can relay instead of taking it over. An answer may be stale, and nothing breaks by it.
"""

from __future__ import annotations

from typing import Protocol


class Coordination(Protocol):
    """The seam: one implementation for a single process here, others for a shared store."""

    async def announce(self, resource_id: str, node_id: str) -> None:
        """``node_id`` owns the resource from now on."""

    async def withdraw(self, resource_id: str, node_id: str) -> None:
        """``node_id`` owns it no more; without effect when another has announced itself since."""

    async def owner(self, resource_id: str) -> str | None:
        """The node that announced itself last, None if nobody is known to own the resource."""


class InProcess:
    """For one node: it owns whatever is owned. Bounded by the number of loaded resources."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}

    async def announce(self, resource_id: str, node_id: str) -> None:
        self._owners[resource_id] = node_id

    async def withdraw(self, resource_id: str, node_id: str) -> None:
        if self._owners.get(resource_id) == node_id:
            del self._owners[resource_id]

    async def owner(self, resource_id: str) -> str | None:
        return self._owners.get(resource_id)
