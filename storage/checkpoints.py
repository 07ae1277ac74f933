"""Write-behind of the text that streams: at most a second (a setting) of it is lost in a crash (ST7).

Only the latest text of each run is kept, all that changed are written in one statement, and what could not be
written while the store is away stays until it can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import anyio
import structlog

from storage.database import Database
from storage.errors import Refused, StorageUnavailable

log = structlog.get_logger(__name__)

_CHECKPOINT: Final = """
update diagnosis_run r
   set message_id = w.message_id, partial_text = w.text, partial_thinking = w.thinking, updated_at = now()
  from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[])
    as w (run_id, fence, message_id, text, thinking)
 where r.run_id = w.run_id and r.fence = w.fence and r.status = 'running'
returning r.run_id
"""


class _Partial(NamedTuple):
    run_id: str
    fence: int
    message_id: str
    text: str
    thinking: str


def _nobody(_: str) -> None:
    return


class Checkpoints:
    """The texts that are not yet written, by run; bounded by the number of running runs.

    Attributes:
        on_fenced: Called with a run id that this process believes running and the store does not, or that
            another owner has. Must not raise.
        failures: Texts that the database refused, since the start.
    """

    def __init__(self, db: Database, *, interval_s: float) -> None:
        self.on_fenced: Callable[[str], None] = _nobody
        self.failures = 0
        self._db = db
        self._interval_s = interval_s
        self._dirty: dict[str, _Partial] = {}
        self._sent: dict[str, _Partial] = {}
        self._flushing = anyio.Lock()
        self._wake = anyio.Event()
        self._idle = anyio.Event()
        self._idle.set()

    def put(self, run_id: str, fence: int, message_id: str, text: str, thinking: str) -> None:
        """Keep a run's latest text; never waits."""
        self._dirty[run_id] = _Partial(run_id, fence, message_id, text, thinking)
        self._wake.set()

    def drop(self, run_id: str) -> None:
        """Forget a run's text: it was committed, or is being written otherwise."""
        self._dirty.pop(run_id, None)
        self._sent.pop(run_id, None)

    async def settle(self, run_id: str) -> None:
        """Forget a run's text and wait until a write of it that is under way has ended."""
        under_way = run_id in self._sent
        self.drop(run_id)
        if under_way:
            await self._idle.wait()

    def refence(self, run_id: str, fence: int) -> None:
        """The run's owner has a new fence; what waits is written under it."""
        self._sent.pop(run_id, None)
        if (partial := self._dirty.get(run_id)) is not None:
            self._dirty[run_id] = partial._replace(fence=fence)

    async def run(self) -> None:
        """Write what changed, once an interval; storage's task, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            await self.flush()
            await anyio.sleep(self._interval_s)

    async def flush(self) -> None:
        """Write everything that waits. While the store is away it is kept."""
        async with self._flushing:
            self._sent, self._dirty = self._dirty, {}
            self._idle = anyio.Event()
            try:
                await self._write_all()
            except StorageUnavailable:
                self._dirty = {**self._sent, **self._dirty}
                self._wake.set()
            except Exception:  # the write-behind lives on; what was not written is lost only to a crash
                self.failures += len(self._sent)
                log.exception("write-behind failed", runs=len(self._sent))
            finally:
                self._sent = {}
                self._idle.set()

    async def _write_all(self) -> None:
        if not self._sent:
            return
        try:
            await self._write(list(self._sent.values()))
        except Refused:
            for partial in list(self._sent.values()):
                try:
                    await self._write([partial])
                except Refused:
                    self.failures += 1

    async def _write(self, partials: Sequence[_Partial]) -> None:
        async with self._db.writing() as connection:
            rows = await connection.fetch(_CHECKPOINT, *map(list, zip(*partials, strict=True)))
        written = {row[0] for row in rows}
        for partial in partials:
            # One that was dropped or got a new fence meanwhile is not lost, only late.
            if partial.run_id not in written and self._sent.get(partial.run_id) is partial:
                self._dirty.pop(partial.run_id, None)
                self.on_fenced(partial.run_id)
