"""A mailbox: the one way in which work reaches an actor."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

M = TypeVar("M")


class Mailbox(Generic[M]):
    """An ordered queue with one reader, the actor's task.

    ``limit`` binds what comes from outside (:meth:`offer`); when full, the sender is refused and the reader
    of the
    socket never waits (CN3). The actor's own children are bounded by their number and use :meth:`put`.
    """

    __slots__ = ("_items", "_limit", "_reader")

    def __init__(self, limit: int) -> None:
        self._items: deque[M] = deque()
        self._limit = limit
        self._reader: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._items)

    def offer(self, item: M) -> bool:
        """Queue an item from outside; false when the mailbox is full."""
        if len(self._items) >= self._limit:
            return False
        self.put(item)
        return True

    def put(self, item: M) -> None:
        """Queue an item of the actor's own."""
        self._items.append(item)
        reader = self._reader
        if reader is not None and not reader.done():
            reader.set_result(None)

    async def get(self) -> M:
        """The next item; waits for one. Only the actor's task calls this."""
        while not self._items:
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return self._items.popleft()

    def drain(self) -> list[M]:
        """Take all that is queued, when the actor ends."""
        items = list(self._items)
        self._items.clear()
        return items
