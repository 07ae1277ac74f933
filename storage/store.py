"""The store as the server opens it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from storage.database import Database
from storage.nodes import Node, Nodes
from storage.runs import Runs
from storage.sessions import Sessions


class Store:
    """Everything that is kept, behind one door.

    Attributes:
        db: The pool and its circuit.
        sessions: Sessions and messages.
        runs: Runs, steps, tool calls.
        node: This process's row and lock; None for a visitor (a command line).
        nodes: The other nodes.
    """

    db: Database
    sessions: Sessions
    runs: Runs
    node: Node | None
    nodes: Nodes
    node_id: str


@asynccontextmanager
async def open_store(
    dsn: str,
    *,
    node_id: str | None = None,
    address: str | None = None,
    pool_size: int = 8,
    command_timeout_s: float = 1.5,
    checkpoint_s: float = 1.0,
    sweep_s: float = 5.0,
) -> AsyncIterator[Store]:
    """Open the store of a migrated database; leaving flushes what waits, then closes.

    ``node_id`` (default: a new ULID) names this process; with ``address`` (``http://host:port``) it is
    registered as serving, so that command lines find it.
    """
    raise NotImplementedError
    yield
