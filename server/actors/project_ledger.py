"""A project's ledger: what is committed of it and of its canvas, and the writes that add to it.

As :mod:`server.actors.ledger` is for a session: changed only after a commit, in one turn, under the project's
fence. The canvas is read when it is first needed. It does not know frames or connections.

A connection lost at COMMIT leaves an unknown outcome. The fence goes up then, which shuts the late write out;
and as nobody else could write under the old one, the version of the canvas tells whether the change is there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import utc_now
from server.canvas.document import Canvas
from storage.errors import Fenced, StorageUnavailable
from storage.records import CanvasWrite, ProjectSeed

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from server.canvas.document import Change
    from storage.records import ProjectClaimed, RequestKey
    from storage.store import Store

_FIRST_FENCE = 1


class _Doubtful(NamedTuple):
    """A change whose outcome is unknown, and how to tell of it."""

    change: Change
    tell: Callable[[], None]


class ProjectLedger:
    """One project as committed.

    - Attributes change only in its actor's task, in the turn that follows a commit.
    - Every write names the fence; :class:`~storage.errors.Fenced` means that this memory is worthless and
      ends the actor.
    - After a write of unknown outcome it is ``stale``, and :meth:`refresh` is due before any other write.
    """

    def __init__(self, store: Store, project_id: str, owner: str, claimed: ProjectClaimed | None) -> None:
        self._store = store
        self._canvas: Canvas | None = None
        self._doubtful: _Doubtful | None = None
        self.project_id = project_id
        self.owner = owner
        self.seed: ProjectSeed | None = None
        """The row to make with the first change; ``None`` once there is one."""
        self.fence = _FIRST_FENCE
        self.metadata: dict[str, Any] = {}
        self.version = 0
        """Of the canvas."""
        self.created_at: datetime = utc_now()
        self.updated_at: datetime = self.created_at
        self.stale = False
        if claimed is None:
            self.seed = ProjectSeed(project_id, owner, created_at=self.created_at)
            self._canvas = Canvas()
        else:
            self.fence = claimed.fence
            self.metadata = claimed.row.metadata
            self.version = claimed.row.canvas_version
            self.created_at = claimed.row.created_at
            self.updated_at = claimed.row.updated_at

    async def canvas(self) -> Canvas:
        """The canvas; only :meth:`commit` changes it.

        Raises:
            Fenced, StorageUnavailable.
        """
        await self.refresh()
        if self._canvas is None:
            version, nodes, edges = await self._store.canvases.read(self.project_id, self.fence)
            self._canvas = Canvas(version, nodes, edges)
            self.version = version
        return self._canvas

    def forget_canvas(self) -> None:
        """Have the canvas read again when it is needed: something went wrong with the one in memory."""
        self._canvas = Canvas() if self.seed is not None else None
        self._doubtful = None
        self.stale = True

    async def open(self) -> None:
        """Make sure that the row is there, before the first change in a conversation.

        Raises:
            Fenced, StorageUnavailable.
        """
        await self.refresh()
        if self.seed is not None:
            await self._open(self.seed)

    async def create(self, seed: ProjectSeed) -> None:
        """Make the row of a project that is only in memory so far.

        Raises:
            Fault: ``project_exists``.
            Fenced, StorageUnavailable.
        """
        await self.refresh()
        if self.seed is None:
            raise Fault(ErrorCode.PROJECT_EXISTS)
        await self._open(seed)
        self.metadata, self.created_at = seed.metadata, seed.created_at

    def doubt(self) -> None:
        """What is committed is not known for certain: have :meth:`refresh` find out."""
        self.stale = True

    async def commit(self, change: Change, request: RequestKey, tell: Callable[[], None]) -> None:
        """Write a change that was planned on the present canvas; ``tell`` is called after its commit.

        When the outcome is unknown, ``tell`` is called as soon as it shows that the change is there, which
        may be after this has raised.

        Raises:
            DuplicateRequest, Fenced, Refused, StorageUnavailable.
        """
        started = asyncio.get_running_loop().time()
        write = CanvasWrite(
            project_id=self.project_id,
            fence=self.fence,
            version=self.version,
            nodes=change.nodes,
            edges=change.edges,
            deleted_node_ids=change.deleted_node_ids,
            deleted_edge_ids=change.deleted_edge_ids,
            seed=self.seed,
            request=request,
        )
        try:
            await self._store.canvases.write(write)
        except StorageUnavailable as fault:
            if not fault.outcome_unknown:
                raise
            self.stale = True
            self._doubtful = _Doubtful(change, tell)
            await self._look_within(started)
            if self.version != change.version:
                raise
            return
        self._accept(change)
        tell()

    async def refresh(self) -> None:
        """After an unknown outcome: shut the late write out and see what is committed. Otherwise nothing.

        Raises:
            Fenced, StorageUnavailable: The outcome stays unknown.
        """
        if not self.stale:
            return
        claimed = await self._store.projects.reclaim(self.project_id, self.fence)
        self.stale = False
        doubtful, self._doubtful = self._doubtful, None
        if claimed is None:
            if self.seed is None:
                raise Fenced(self.project_id)
            return
        self.seed, self.fence, self.metadata = None, claimed.fence, claimed.row.metadata
        committed = claimed.row.canvas_version
        if doubtful is not None and committed == doubtful.change.version:
            self._accept(doubtful.change)
            doubtful.tell()
        elif self._canvas is None:
            self.version = committed
        elif committed != self.version:
            raise Fenced(self.project_id)

    async def _open(self, seed: ProjectSeed) -> None:
        try:
            await self._store.projects.open(seed, self.fence)
        except StorageUnavailable as fault:
            self.stale = self.stale or fault.outcome_unknown
            raise
        self.seed = None

    async def _look_within(self, started: float) -> None:
        """Find the outcome out, if it shows while whoever asked still waits."""
        left = self._store.db.command_timeout_s - (asyncio.get_running_loop().time() - started)
        if left <= 0:
            return
        try:
            async with asyncio.timeout(left):
                await self.refresh()
        except (StorageUnavailable, TimeoutError):
            pass

    def _accept(self, change: Change) -> None:
        assert self._canvas is not None
        self.seed = None
        self._canvas.apply(change)
        self.version = change.version
        self.updated_at = utc_now()
