"""For every cut point of recorded streams: prefix + snapshot + rest assembles to the same messages (CN6,
CN7)."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from protocol.client_frames import AppendMessage, OnBusy, RequestCompletion, StopCompletion
from protocol.codec import encode
from protocol.codes import CloseCode
from protocol.ids import new_ulid
from protocol.session import MessageRole
from server.actors.attachment import Attachment
from server.actors.base import Finish
from server.actors.conversation_actor import ConversationActor
from server.actors.resume import Wish
from server.app import make_services
from server.llm.catalog import open_catalog
from server.metrics import Metrics
from server.settings import load_settings
from server.tools.registry import open_toolbox
from storage.store import open_store
from tests.harness.assemble import assemble
from tests.harness.peer import MemoryPeer, unwire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from protocol.client_frames import ClientFrame
    from protocol.server_frames import ServerFrame

SCRIPTS = Path(__file__).parents[1] / "scripts"


class Recording(ConversationActor):
    """Takes a snapshot after every turn of the loop that emitted something."""

    def __init__(self, *args: Any) -> None:
        self.snapshots: dict[int, dict[str, Any]] = {}
        super().__init__(*args)

    def emit(self, frame: ServerFrame) -> None:
        super().emit(frame)
        asyncio.get_running_loop().call_soon(self.record)

    def record(self) -> None:
        self.snapshots[self.outbox.latest] = json.loads(encode(self.snapshot()))


@asynccontextmanager
async def live_actor(database_url: str) -> AsyncIterator[tuple[Recording, MemoryPeer, Attachment]]:
    settings = load_settings(None, {}, scripts=SCRIPTS)
    metrics = Metrics()
    async with (
        open_store(database_url) as store,
        open_catalog(settings) as catalog,
        open_toolbox(settings) as toolbox,
    ):
        services = make_services(settings, store, catalog, toolbox, metrics)
        actor = Recording(new_ulid(), "local", services, None)
        peer = MemoryPeer()
        async with anyio.create_task_group() as group:
            group.start_soon(actor.run)
            attachment = await actor.admit(peer, Wish())
            assert isinstance(attachment, Attachment)
            yield actor, peer, attachment
            actor.mailbox.put(Finish(CloseCode.RESTARTING, ""))


async def frames_until(peer: MemoryPeer, kind: str, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(20):
        while sum(frame["type"] == kind for frame in peer.frames) < count:
            await asyncio.sleep(0.005)
    return peer.frames


def say(text: str) -> ClientFrame:
    return AppendMessage(request_id=new_ulid(), role=MessageRole.USER, content=text)


def ask(script: str, **fields: Any) -> ClientFrame:
    return RequestCompletion(request_id=new_ulid(), model=f"script/{script}", **fields)


async def test_CN7_prefix_and_snapshot_and_rest_assemble_to_the_same_messages(database_url: str) -> None:
    async with live_actor(database_url) as (actor, peer, attachment):
        for frame in (say("one"), ask("hello"), ask("think", reasoning=True), ask("reset"), ask("calls")):
            actor.submit(attachment, frame)
        await frames_until(peer, "completion_done", 4)
        actor.submit(attachment, ask("slow"))
        await frames_until(peer, "completion_init", 5)
        actor.submit(attachment, say("while it runs"))
        waits = ask("hello")
        actor.submit(attachment, waits)
        async with asyncio.timeout(20):
            while waits.request_id not in {f.get("request_id") for f in peer.frames}:  # type: ignore[attr-defined]
                await asyncio.sleep(0.005)
        actor.submit(attachment, StopCompletion(request_id=new_ulid()))
        await frames_until(peer, "completion_done", 6)
        actor.submit(attachment, ask("slower"))
        await frames_until(peer, "completion_init", 7)
        actor.submit(attachment, ask("hello", on_busy=OnBusy.INTERRUPT))
        frames = await frames_until(peer, "completion_done", 8)
        whole = assemble(frames)
        assert len(whole.messages) >= 8
        assert sorted(whole.messages) == list(range(len(whole.messages)))
        assert set(whole.ended.values()) == {"stop", "error", "stopped"}
        assert len(actor.snapshots) > 20
        for seq, snapshot in actor.snapshots.items():
            assert snapshot["as_of_seq"] == seq
            rest = assemble(frames[seq:], snapshot)
            assert rest.messages == whole.messages, f"cut at {seq}"
            assert rest.ended.items() <= whole.ended.items()
            assert not rest.streaming
            prefix = assemble(frames[:seq])
            assert prefix.messages.items() <= whole.messages.items()
            if snapshot["running"] is not None and prefix.running is not None:
                running = snapshot["running"]
                assert prefix.running == running["request_id"]
                assert prefix.streaming.get(running["message_id"], "") == running["text"]
                assert prefix.ended.keys() | rest.ended.keys() == whole.ended.keys()


async def test_CN7_prefix_and_replay_are_the_whole_at_every_cut_point(database_url: str) -> None:
    async with live_actor(database_url) as (actor, peer, attachment):
        actor.submit(attachment, say("one"))
        actor.submit(attachment, ask("hello"))
        frames = await frames_until(peer, "completion_done", 1)
        for cut in range(len(frames) + 1):
            again = MemoryPeer()
            wish = Wish(takeover=True, epoch=actor.outbox.epoch, last_seq=cut)
            assert isinstance(await actor.admit(again, wish), Attachment)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert again.told[0]["resume"] == "replayed"
            assert again.told[0]["replayed"] == len(frames) - cut
            assert unwire(bytes(again.wire)) == frames[cut:]
        assert frames[0]["seq"] == 1
