"""Random lives of a client with tools over a real socket, and what the tools themselves wrote down.

The tools are those of :mod:`tests.harness.recorder_server`, each call of which has a tag of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from websockets.exceptions import ConnectionClosed

from protocol.ids import new_ulid
from tests.harness.client import Client

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.harness.client import Frame
    from tests.harness.processes import ServerProcess

SCRIPTS = ("rec-now", "rec-change", "rec-change", "rec-all", "rec-all", "rec-talk")
_tags = itertools.count(1)


class Approvals:
    """What was allowed to run: tags of accepted calls, as far as the server did not refuse that."""

    def __init__(self) -> None:
        self.tags: set[str] = set()

    def broken(self, record: Path) -> list[str]:
        """What ran and should not have, or ran twice."""
        lines = record.read_text().split() if record.exists() else []
        ran = Counter(zip(lines[::2], lines[1::2], strict=True))
        twice = [f"twice: {kind} {tag}" for (kind, tag), count in ran.items() if count > 1]
        unapproved = [f"unapproved: {tag}" for kind, tag in ran if kind == "change" and tag not in self.tags]
        return twice + unapproved


class SocketLife:
    """One conversation and its person."""

    def __init__(self, server: ServerProcess, approvals: Approvals, chance: random.Random) -> None:
        self.id = new_ulid()
        self.server = server
        self.chance = chance
        self.client: Client | None = None
        self._group = asyncio.TaskGroup()
        self.ended: dict[str, Frame] = {}
        self.refused: list[Frame] = []
        """Errors of the model, which this one makes only of a history that it does not take."""
        self._approvals = approvals
        self._waiting: dict[str, Frame] = {}
        self._asked: dict[str, str] = {}
        self._position: dict[str, Any] = {}
        self._reader: asyncio.Task[None] | None = None
        self._restarts = 0

    async def connect(self) -> None:
        position = self._position if self.chance.random() < 0.7 else {"resume": "snapshot"}
        client = await Client.open(self.server.ws_url, self.id, client_id="life", **position)
        if client.snapshot is not None:
            self._waiting = {call["tool_call_id"]: call for call in client.snapshot["waiting"]}
        self.client = client
        self._reader = self._group.create_task(self._read(client))

    async def _read(self, client: Client) -> None:
        try:
            while True:
                self._take(await client.receive(60))
                self._position = client.position
        except ConnectionClosed:
            pass

    def _take(self, frame: Frame) -> None:
        if frame["type"] == "tool_call":
            self._waiting.pop(frame["tool_call_id"], None)
            if frame["execution_state"] == "waiting":
                self._waiting[frame["tool_call_id"]] = frame
        elif frame["type"] in {"error", "completion_done"}:
            if frame.get("code", "").startswith("llm_"):
                self.refused.append(frame)
            self.ended.setdefault(frame["request_id"], frame)
            if frame["type"] == "error" and frame["request_id"] in self._asked:
                self._approvals.tags.discard(self._asked[frame["request_id"]])

    @property
    def here(self) -> Client:
        assert self.client is not None
        return self.client

    async def say(self) -> None:
        await self.here.send("append_message", role="user", content=f"m{next(_tags)}")

    async def complete(self, script: str | None = None, on_pending: str | None = None) -> str:
        chance = self.chance
        return await self.here.send(
            "request_completion",
            model=f"script/{script or chance.choice(SCRIPTS)}",
            on_busy=chance.choice(("enqueue", "reject", "interrupt")),
            on_pending=on_pending or chance.choice(("reject", "decline", "run_decided")),
        )

    async def ask(self) -> None:
        await self.say()
        await self.complete()

    async def accept(self) -> None:
        pending = [call for call in self._waiting.values() if call["confirmation_state"] == "pending"]
        if pending:
            call = self.chance.choice(pending)
            fields = {}
            tag = json.loads(call["arguments"])["tag"]
            if self.chance.random() < 0.3:
                tag = f"edited{next(_tags)}"
                fields["arguments"] = json.dumps({"tag": tag})
            self._approvals.tags.add(tag)
            request_id = await self.here.send(
                "confirm_tool", tool_call_id=call["tool_call_id"], decision="accept", **fields
            )
            self._asked[request_id] = tag

    async def reject(self) -> None:
        for id_ in list(self._waiting)[:1]:
            await self.here.send("confirm_tool", tool_call_id=id_, decision="reject", reason="no")

    async def answer(self) -> None:
        for id_, call in list(self._waiting.items()):
            if call["confirmation_state"] == "awaiting_input":
                await self.here.send("append_message", role="tool", tool_call_id=id_, content="That one")

    async def stop(self) -> None:
        await self.here.send("stop_completion", scope=self.chance.choice(("one", "all")))

    async def pause(self) -> None:
        await asyncio.sleep(self.chance.choice((0.01, 0.05, 0.1)))

    async def wait(self) -> None:
        await asyncio.sleep(0.2)

    async def drop(self) -> None:
        self.here.drop()
        await self._gone()
        await self.connect()

    async def restart(self) -> None:
        if self._restarts:
            return
        self._restarts += 1
        self.server.kill()
        await self._gone()
        await asyncio.to_thread(self.server.start)
        await self.connect()

    async def _gone(self) -> None:
        assert self._reader is not None
        await self._reader

    async def run(self, steps: int) -> None:
        """A random life, and a calm end."""
        async with self._group:
            await self._run(steps)

    async def _run(self, steps: int) -> None:
        await self.connect()
        await self.say()
        acts = [
            *[self.ask] * 4,
            *[self.complete] * 3,
            *[self.accept] * 5,
            *[self.wait, self.pause] * 3,
            *[self.reject, self.answer, self.stop, self.drop],
        ]
        at = self.chance.randrange(steps * 3)
        for step in range(steps):
            act: Any = self.restart if step == at else self.chance.choice(acts)
            await act()
            await asyncio.sleep(self.chance.choice((0, 0.01, 0.03)))
        request_id = ""
        for _ in range(20):
            await self.here.send("stop_completion", scope="all")
            await asyncio.sleep(0.1)
            await self.say()
            request_id = await self.complete("rec-talk", "decline")
            async with asyncio.timeout(20):
                while request_id not in self.ended:
                    await asyncio.sleep(0.02)
            if self.ended[request_id].get("finish_reason") == "stop":
                break
        else:
            raise AssertionError(f"no calm end: {self.ended[request_id]}")
        assert not self._waiting
        await self.here.close()
        await self._gone()
