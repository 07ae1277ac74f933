"""Projects and their canvases, made, read and deleted. A canvas is changed over its project's socket."""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.codes import ErrorCode
from protocol.ids import new_ulid
from server.actors.commands import DeleteProject
from server.actors.kinds import Kind
from server.rest import schemas
from server.rest.context import Call
from server.rest.declare import Ownership, Routes
from server.rest.schemas import NoBody, NoQuery
from storage.records import ProjectSeed

__all__ = ["ROUTES"]

ROUTES: Final = Routes()

_AWAY: Final = (ErrorCode.STORAGE_UNAVAILABLE,)
_BY_ACTOR: Final = (*_AWAY, ErrorCode.DRAINING, ErrorCode.OVERLOADED)


@ROUTES.declare(
    "POST",
    "/api/projects",
    ownership=Ownership.CALLER,
    body=schemas.CreateProject,
    response=schemas.ProjectCreated,
    errors=(*_BY_ACTOR, ErrorCode.PROJECT_EXISTS),
)
async def create_project(call: Call[NoQuery, schemas.CreateProject]) -> schemas.ProjectCreated:
    """Make a project."""
    wanted = call.body
    seed = ProjectSeed(wanted.project_id or new_ulid(), call.owner, wanted.metadata)
    await call.context.registry.create_project(seed)
    return schemas.ProjectCreated(seed.project_id)


@ROUTES.declare(
    "GET",
    "/api/projects/{projectId}",
    ownership=Ownership.PROJECT,
    response=schemas.Project,
    errors=_AWAY,
)
async def get_project(call: Call[NoQuery, NoBody]) -> schemas.Project:
    """A project without its canvas and conversations."""
    row = await call.context.store.projects.get(call.project_id, call.owner)
    return msgspec.convert(row, schemas.Project, from_attributes=True)


@ROUTES.declare(
    "DELETE",
    "/api/projects/{projectId}",
    ownership=Ownership.PROJECT,
    response=schemas.ProjectDeleted,
    errors=_BY_ACTOR,
)
async def delete_project(call: Call[NoQuery, NoBody]) -> schemas.ProjectDeleted:
    """Delete a project with its canvas and conversations for good; their ids are never used again."""
    await call.context.registry.call(call.project_id, call.owner, DeleteProject(), kind=Kind.PROJECT)
    return schemas.ProjectDeleted(call.project_id)


@ROUTES.declare(
    "GET",
    "/api/projects/{projectId}/canvas",
    ownership=Ownership.PROJECT,
    query=schemas.CanvasQuery,
    response=schemas.Canvas,
    errors=_AWAY,
)
async def get_canvas(call: Call[schemas.CanvasQuery, NoBody]) -> schemas.Canvas:
    """A page of a project's canvas: nodes, then edges, all of one version."""
    page = await call.context.store.canvases.page(
        call.project_id, call.owner, limit=call.query.limit, cursor=call.query.cursor
    )
    return schemas.Canvas(
        nodes=msgspec.convert(page.nodes, list[schemas.CanvasNode], from_attributes=True),
        edges=msgspec.convert(page.edges, list[schemas.CanvasEdge], from_attributes=True),
        canvas_version=page.version,
        next_cursor=page.next_cursor,
    )
