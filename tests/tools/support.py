"""Short ways to make what tools need."""

from __future__ import annotations

from protocol.ids import new_run_id, new_ulid
from server.tools.base import CanvasSeam, ToolContext
from storage.store import Store


class NoStore:
    """For tools that ask no store: any use is an AttributeError."""


def context(
    store: Store | None = None,
    *,
    principal: str = "local",
    session_id: str | None = None,
    project_id: str | None = None,
    canvas: CanvasSeam | None = None,
) -> ToolContext:
    return ToolContext(
        principal=principal,
        session_id=session_id or new_ulid(),
        project_id=project_id,
        run_id=new_run_id(),
        tool_call_id="call_1",
        store=store or NoStore(),  # type: ignore[arg-type]
        canvas=canvas,
    )
