"""A task group for what a resource needs in the background while it is open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def background_tasks() -> AsyncIterator[TaskGroup]:
    """Tasks that are cancelled at the end. The body's own error comes out as it is, in no group."""
    failed: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as error:  # noqa: BLE001 (raised again below, after the tasks have ended)
            failed = error
        finally:
            tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed
