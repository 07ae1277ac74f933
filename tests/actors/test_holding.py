"""Who holds a resource (CN1 to CN3), with peers whose answers the test decides."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio

from protocol.codes import CloseCode
from server.actors.attachment import Attachment, Flusher
from server.actors.holding import Held, Holding, Newcomer
from server.actors.outbox import Budget, Outbox
from server.metrics import Metrics

if TYPE_CHECKING:
    from protocol.server_frames import ServerFrame


class FakePeer:
    """A connection whose sign of life comes when the test says so."""

    def __init__(self) -> None:
        self.gone = False
        self.writable = True
        self.closed: tuple[CloseCode, str] | None = None
        self.sign: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.asked = 0

    def write(self, data: bytes) -> None: ...

    def tell(self, frame: ServerFrame) -> None: ...

    def attached(self, attachment: Attachment) -> None: ...

    def close_soon(self, code: CloseCode, reason: str) -> None:
        self.closed = self.closed or (code, reason)
        self.gone = True

    async def answers(self, timeout_ms: int) -> bool:
        self.asked += 1
        return await self.sign


class Door:
    def __init__(self) -> None:
        self.holding = Holding(1000)
        self.outbox = Outbox(1000, Budget(1000))
        self.count = 0

    async def knock(
        self, peer: FakePeer, client_id: str | None = None, *, takeover: bool = False
    ) -> Attachment | Held:
        def attach() -> Attachment:
            self.count += 1
            return Attachment(
                self.count,
                peer,
                self.outbox,
                0,
                client_id=client_id,
                slow_bytes=100,
                flusher=Flusher(Metrics()),
            )

        return await self.holding.admit(Newcomer(peer, client_id, takeover, attach))

    async def hold(self, client_id: str | None = None) -> tuple[FakePeer, Attachment]:
        peer = FakePeer()
        attachment = await self.knock(peer, client_id)
        assert isinstance(attachment, Attachment)
        return peer, attachment


async def test_CN1_a_live_holder_is_kept_and_asked_once_for_all_who_wait() -> None:
    door = Door()
    holder, attachment = await door.hold()
    refused: list[Attachment | Held] = []
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(lambda: collect(door, refused))
        await until(lambda: holder.asked == 1 and door.holding.contended)
        holder.sign.set_result(True)
    assert holder.asked == 1
    assert all(isinstance(answer, Held) for answer in refused)
    assert door.holding.holder is attachment
    assert holder.closed is None


async def collect(door: Door, answers: list[Attachment | Held]) -> None:
    answers.append(await door.knock(FakePeer()))


async def until(condition: object) -> None:
    while not condition():  # type: ignore[operator]
        await asyncio.sleep(0)


async def test_CN3_a_silent_holder_gives_way_to_the_first_who_waits() -> None:
    door = Door()
    ghost, _ = await door.hold()
    first, second = FakePeer(), FakePeer()
    answers: dict[str, Attachment | Held] = {}

    async def ask(name: str, peer: FakePeer) -> None:
        answers[name] = await door.knock(peer)

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "first", first)
        await until(lambda: ghost.asked == 1)
        group.start_soon(ask, "second", second)
        await asyncio.sleep(0)
        ghost.sign.set_result(False)
    admitted = answers["first"]
    assert isinstance(admitted, Attachment)
    assert admitted.peer is first
    assert isinstance(answers["second"], Held)
    assert ghost.closed == (CloseCode.INTERNAL, "no answer to a ping")


async def test_CN3_the_same_client_replaces_its_ghost_at_once() -> None:
    door = Door()
    ghost, old = await door.hold("tab")
    admitted = await door.knock(FakePeer(), "tab")
    assert isinstance(admitted, Attachment)
    assert admitted.number == 2
    assert ghost.asked == 0
    assert ghost.closed is not None
    assert ghost.closed[0] is CloseCode.SUPERSEDED
    assert old.detached


async def test_CN3_an_absent_client_id_equals_no_other() -> None:
    door = Door()
    holder, _ = await door.hold(None)
    holder.sign.set_result(True)
    assert isinstance(await door.knock(FakePeer(), None), Held)


async def test_CN3_takeover_replaces_anybody() -> None:
    door = Door()
    holder, _ = await door.hold("one")
    assert isinstance(await door.knock(FakePeer(), "two", takeover=True), Attachment)
    assert holder.closed is not None


async def test_CN2_a_late_release_of_an_old_attachment_does_nothing() -> None:
    door = Door()
    _, old = await door.hold("tab")
    _, new = await door.hold("tab")
    assert not door.holding.release(old)
    assert door.holding.holder is new
    assert door.holding.release(new)
    assert not door.holding.release(new)
    assert door.holding.holder is None


async def test_CN2_a_holder_that_leaves_while_asked_lets_the_waiting_one_in() -> None:
    door = Door()
    holder, attachment = await door.hold()
    answers: list[Attachment | Held] = []
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: collect(door, answers))
        await until(lambda: holder.asked == 1)
        holder.gone = True
        door.holding.release(attachment)
        holder.sign.set_result(False)
    assert isinstance(answers[0], Attachment)
    assert door.holding.holder is answers[0]


async def test_CN3_one_who_waits_and_leaves_is_passed_over() -> None:
    door = Door()
    ghost, _ = await door.hold()
    left, stays = FakePeer(), FakePeer()
    answers: dict[str, Attachment | Held] = {}

    async def ask(name: str, peer: FakePeer) -> None:
        answers[name] = await door.knock(peer)

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "left", left)
        await until(lambda: ghost.asked == 1)
        group.start_soon(ask, "stays", stays)
        await asyncio.sleep(0)
        left.gone = True
        ghost.sign.set_result(False)
    assert isinstance(answers["left"], Held)
    assert isinstance(answers["stays"], Attachment)
