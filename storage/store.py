"""The store as a server or a command line opens it, and the tasks that belong to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio

from protocol.ids import new_ulid
from storage.canvases import Canvases
from storage.checkpoints import Checkpoints
from storage.coordination import InProcess
from storage.database import Database
from storage.errors import StorageUnavailable
from storage.group_commit import GroupCommit
from storage.nodes import Node, Nodes
from storage.projects import Projects
from storage.runs import Runs
from storage.search import Search
from storage.sessions import Sessions
from storage.tasks import background_tasks

if TYPE_CHECKING:
    from storage.coordination import Coordination

_REGISTER_S: Final = 5.0


class Store:
    """Everything that is kept, behind one door.

    Attributes:
        db: The pool and its circuit; ``db.available`` is false while the database is away.
        sessions: Sessions, messages, remembered requests.
        runs: Runs, steps, tool calls.
        projects: Projects as wholes.
        canvases: Their nodes and edges.
        search: Finding cases, messages and canvas nodes.
        nodes: The nodes that serve this database.
        node: This process among them; None for a visitor.
        node_id: What rows name as their owner.
        coordination: Whom to ask for a resource.
        checkpoints: The write-behind of streamed text.
    """

    def __init__(
        self, db: Database, commits: GroupCommit, checkpoints: Checkpoints, node_id: str, node: Node | None
    ) -> None:
        self.db = db
        self.checkpoints = checkpoints
        self.sessions = Sessions(db, commits, checkpoints, node_id=node_id)
        self.runs = Runs(db, checkpoints, node_id=node_id)
        self.projects = Projects(db, node_id=node_id)
        self.canvases = Canvases(db, node_id=node_id)
        self.search = Search(db)
        self.nodes = Nodes(db)
        self.node = node
        self.node_id = node_id
        self.coordination: Coordination = InProcess()

    @property
    def available(self) -> bool:
        """Whether calls have a chance now."""
        return self.db.available


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
    """Open the store of a migrated database; leaving writes what waits, then closes.

    Args:
        node_id: Registers this process as a node under this new ULID, and sweeps after dead nodes. None: a
            visitor, a command line.
        address: Where the node serves (``http://host:port``), for command lines to find it.
        command_timeout_s: The bound of every call, waiting for a connection included.
        checkpoint_s: Between two writes of streamed text.
        sweep_s: Between two looks for dead nodes.

    Raises:
        StorageUnavailable: The database does not answer.
    """
    async with Database.open(dsn, command_timeout_s=command_timeout_s, pool_size=pool_size) as db:
        own_id = node_id or new_ulid()
        node = None if node_id is None else Node(db, node_id, address)
        async with background_tasks() as tasks:
            checkpoints = Checkpoints(db, interval_s=checkpoint_s)
            store = Store(db, GroupCommit(db, tasks, node_id=own_id), checkpoints, own_id, node)
            tasks.start_soon(checkpoints.run, name="write-behind")
            if node is not None:
                await _register(tasks, node)
                tasks.start_soon(node.sweep_for_ever, sweep_s, name="sweep")
            try:
                yield store
            finally:
                with anyio.CancelScope(shield=True), suppress(StorageUnavailable):
                    await checkpoints.flush()
                    if node is not None:
                        await node.leave()


async def _register(tasks: anyio.abc.TaskGroup, node: Node) -> None:
    with anyio.move_on_after(_REGISTER_S) as limit:
        await tasks.start(node.run, name="node lock")
    if limit.cancelled_caught:
        raise StorageUnavailable("this process cannot register itself")
