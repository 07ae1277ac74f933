"""Lives of one conversation with tools, in process: a real store and actors, and a model that does anything.

The model, the tools, the store's faults and what the person does all follow one seed. Three things are
counted, none of them with the help of the server's own state:

- ``unapproved``: a tool that needs confirmation ran, and the person had not accepted this call with these
  arguments, or had been told that it will not run;
- ``doubled``: a call ran twice;
- ``refused``: the model was sent a history that :mod:`tests.harness.openai_rules` refuses.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from protocol.client_frames import (
    AppendMessage,
    ConfirmTool,
    OnBusy,
    OnPending,
    RequestCompletion,
    StopCompletion,
    StopScope,
)
from protocol.codes import CloseCode, ErrorCode
from protocol.ids import new_ulid
from protocol.session import MessageRole
from protocol.tool_call import Decision
from server.actors.attachment import Attachment
from server.actors.base import Finish
from server.actors.conversation_actor import ConversationActor
from server.actors.resume import Wish
from server.app import make_services
from server.llm.base import ModelFault, TextDelta, ToolCallDelta, TurnFinished
from server.metrics import Metrics
from server.settings import load_settings
from server.tools.ask_user import ask_user
from server.tools.base import Policy, Tool, ToolFault, ToolResult
from server.tools.registry import Toolbox
from storage.errors import StorageUnavailable
from storage.store import open_store
from tests.harness.openai_rules import RuleBroken, check_messages
from tests.harness.peer import MemoryPeer, unwire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from protocol.client_frames import ClientFrame
    from server.actors.base import Services
    from server.llm.base import ChatMessage, ModelEvent, ModelRequest
    from server.tools.base import ToolContext
    from storage.store import Store

Frame = dict[str, Any]
_OWNER = "local"


@dataclass
class Counts:
    """What must stay empty."""

    unapproved: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    executions: int = 0
    requests: int = 0

    @property
    def clean(self) -> bool:
        return not (self.unapproved or self.doubled or self.refused)


class World:
    """The store and the services that lives share, one life at a time."""

    def __init__(self, store: Store) -> None:
        self.counts = Counts()
        self.chance = random.Random(0)
        self.life: Life | None = None
        self.faults = 0
        """Writes that may come to an unknown outcome."""
        self.doubts = 0
        """Commits of turns that do: they are made, and their connection is lost."""
        self.replies: list[list[tuple[str, str]]] = []
        """Calls, by name and arguments, that the model makes next; it does anything when there are none."""
        self.calm = False
        """Whether the model only talks from now on."""
        self.store = store
        toolbox = Toolbox(
            [ask_user, Recorder(self, "touch", Policy.IMMEDIATE), Recorder(self, "change", Policy.CONFIRM)]
        )
        settings = load_settings(None, {}, max_turns=5)
        self.services: Services = make_services(settings, store, AnyModel(self), toolbox, Metrics())  # type: ignore[arg-type]
        for name in ("commit_turn", "finish", "start"):
            setattr(store.runs, name, self._faulty(getattr(store.runs, name)))

    def _faulty(self, write: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
        """A write whose outcome is sometimes unknown: done or not, its connection was lost."""

        async def perhaps(*arguments: Any) -> None:
            if self.doubts:
                await write(*arguments)
                if write.__name__ == "commit_turn":
                    self.doubts -= 1
                    raise StorageUnavailable(outcome_unknown=True)
                return
            if not self.faults or self.chance.random() < 0.5:
                await write(*arguments)
                return
            self.faults -= 1
            if self.chance.random() < 0.6:
                await write(*arguments)
            raise StorageUnavailable(outcome_unknown=True)

        return perhaps


@asynccontextmanager
async def open_world(database_url: str) -> AsyncIterator[World]:
    async with open_store(database_url) as store:
        yield World(store)


class Recorder(Tool):
    """A tool that writes down that it ran."""

    def __init__(self, world: World, name: str, policy: Policy) -> None:
        self.name, self.policy, self.description = name, policy, "Do something."
        self.parameters = {"type": "object"}
        self._world = world

    def check(self, arguments: str) -> None:
        try:
            whole = isinstance(json.loads(arguments), dict)
        except ValueError:
            whole = False
        if not whole:
            raise ToolFault("invalid arguments")

    async def run(self, arguments: str, context: ToolContext) -> ToolResult:
        world, life = self._world, self._world.life
        if life is not None and life.id == context.session_id:
            life.executed(self, context.tool_call_id, arguments)
        for _ in range(world.chance.choice((0, 0, 1, 30))):
            await asyncio.sleep(0.001)
        if world.chance.random() < 0.2:
            raise ToolFault("it does not work")
        return ToolResult("" if world.chance.random() < 0.1 else f"done {arguments}")


class AnyModel:
    """The catalog and the one model in it."""

    default_model = "any"

    def __init__(self, world: World) -> None:
        self._world = world

    def resolve(self, name: str | None) -> tuple[AnyModel, str]:
        return self, name or self.default_model

    def cost(self, model: str, usage: object) -> float:
        return 0.0

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Sequence[ModelEvent]]]:
        counts = self._world.counts
        counts.requests += 1
        try:
            check_messages([_plain(message) for message in request.messages])
        except RuleBroken as broken:
            counts.refused.append(str(broken))
        yield self._say(request.messages[-1].role if request.messages else "")

    async def _say(self, last_role: str) -> AsyncIterator[Sequence[ModelEvent]]:
        world, chance = self._world, self._world.chance
        await asyncio.sleep(0)
        if world.replies:
            for index, (name, arguments) in enumerate(world.replies.pop(0)):
                yield [ToolCallDelta(index, f"call_{index}", name, arguments)]
            yield [TurnFinished("tool_calls")]
            return
        if not world.calm and chance.random() < 0.06:
            raise ModelFault(ErrorCode.LLM_UNAVAILABLE, "gone")
        if chance.random() < 0.7:
            yield [TextDelta("So. ")]
            await asyncio.sleep(chance.choice((0, 0, 0.002)))
        if world.calm or chance.random() < (0.5 if last_role == "tool" else 0.1):
            if not world.calm and chance.random() < 0.05:
                await asyncio.sleep(60)
            yield [TextDelta("That is it."), TurnFinished("stop")]
            return
        count = chance.randint(1, 3)
        for index in range(count):
            name, arguments = chance.choice(_CALLS)
            id_ = chance.choice((f"call_{chance.randrange(4)}", f"call_{new_ulid()}"))
            half = len(arguments) // 2
            yield [ToolCallDelta(index, id_, name, arguments[:half])]
            if chance.random() < 0.5:
                await asyncio.sleep(0)
            yield [ToolCallDelta(index, None, None, arguments[half:])]
        yield [TurnFinished("tool_calls")]


_CALLS = [
    *[(name, json.dumps({"n": number})) for name in ("touch", "change", "change") for number in range(5)],
    *[("ask_user", '{"question": "Which?"}')] * 2,
    ("change", '{"n": '),
    ("touch", ""),
    ("functions.nothing", "{}"),
]


def _plain(message: ChatMessage) -> Frame:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    plain: Frame = {"role": message.role, "content": message.content}
    if calls:
        plain["tool_calls"] = calls
    if message.tool_call_id is not None:
        plain["tool_call_id"] = message.tool_call_id
    return plain


class Person(MemoryPeer):
    """A connection that parses as it goes."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life

    def write(self, data: bytes) -> None:
        for frame in unwire(bytes(data)):
            self._life.take(frame)

    def tell(self, frame: Any) -> None:
        super().tell(frame)
        self._life.take(self.told[-1])


class Life:
    """One conversation, its person, and the actors that it has had."""

    def __init__(self, world: World, group: Any) -> None:
        self.world = world
        self.id = new_ulid()
        self.chance = world.chance
        self._group = group
        self._actor: ConversationActor | None = None
        self._scope = anyio.CancelScope()
        self._attachment: Attachment | None = None
        self._ran: Counter[str] = Counter()
        self.hashes: dict[str, str] = {}
        """What ran, by call."""
        self._shown: dict[str, str] = {}
        self._questions: set[str] = set()
        self._over: set[str] = set()
        """Calls that the person was told to be rejected or cancelled."""
        self._approved: dict[str, set[str]] = {}
        self._asked: dict[str, tuple[str, str]] = {}
        """Accepting requests whose answer has not come: the call and the hash."""
        self._sent: list[ClientFrame] = []
        self.answers: dict[str, Frame] = {}
        self.told: dict[str, str] = {}
        """How the last call of a tool was told to be."""

    # What the person is told, and what runs.

    def take(self, frame: Frame) -> None:
        kind = frame["type"]
        if kind == "snapshot":
            for call in frame["waiting"]:
                self._take_call(call)
        elif kind == "tool_call":
            self._take_call(frame)
        elif kind == "error" and frame.get("code") != "storage_unavailable":
            tool_call_id, sha = self._asked.pop(frame.get("request_id", ""), ("", ""))
            if tool_call_id and frame["code"] != "internal":
                self._approved[tool_call_id].discard(sha)
        if kind in {"completion_done", "error", "message_appended", "tool_confirmation_processed"}:
            self.answers[frame.get("request_id", "")] = frame

    def _take_call(self, call: Frame) -> None:
        id_ = call["tool_call_id"]
        self.told[call["name"]] = call["execution_state"]
        if call["execution_state"] == "waiting" and call["confirmation_state"] == "pending":
            self._shown[id_] = call["arguments"]
        if call["confirmation_state"] == "awaiting_input":
            self._questions.add(id_)
        if call["confirmation_state"] == "rejected" or call["execution_state"] == "cancelled":
            self._over.add(id_)

    def executed(self, tool: Tool, tool_call_id: str, arguments: str) -> None:
        counts, sha = self.world.counts, hashlib.sha256(arguments.encode()).hexdigest()
        counts.executions += 1
        self._ran[tool_call_id] += 1
        self.hashes[tool_call_id] = sha
        if self._ran[tool_call_id] > 1:
            counts.doubled.append(tool_call_id)
        if tool.policy is Policy.CONFIRM:
            allowed = sha in self._approved.get(tool_call_id, ()) and tool_call_id not in self._over
            if not allowed:
                counts.unapproved.append(tool_call_id)

    # What happens.

    async def start(self) -> None:
        """Load an actor, as a server does; the one before may still be alive somewhere."""
        self._actor = await ConversationActor.load(self.id, _OWNER, self.world.services, create=True)
        self._scope = anyio.CancelScope()
        self._group.start_soon(self._live, self._actor, self._scope)
        await asyncio.sleep(0)
        await self.attach()

    @staticmethod
    async def _live(actor: ConversationActor, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await actor.run()
        finally:
            actor.gone.set()

    async def attach(self) -> None:
        assert self._actor is not None
        wish = Wish(takeover=True, snapshot=self.chance.random() < 0.5)
        attachment = await self._actor.admit(Person(self), wish)
        assert isinstance(attachment, Attachment)
        self._attachment = attachment

    async def ready(self) -> None:
        """Have an actor that takes frames; one that was fenced or ended is replaced."""
        if self._actor is None or self._actor.ending:
            await self.start()

    def send(self, frame: ClientFrame) -> None:
        assert self._actor is not None
        assert self._attachment is not None
        self._sent.append(frame)
        self._actor.submit(self._attachment, frame)

    def say(self) -> None:
        self.send(AppendMessage(request_id=new_ulid(), role=MessageRole.USER, content="Go on"))

    def complete(self, on_pending: OnPending | None = None) -> str:
        chance = self.chance
        frame = RequestCompletion(
            request_id=new_ulid(),
            on_busy=chance.choice((OnBusy.ENQUEUE, OnBusy.ENQUEUE, OnBusy.REJECT, OnBusy.INTERRUPT)),
            on_pending=on_pending or chance.choice(tuple(OnPending)),
        )
        self.send(frame)
        return frame.request_id

    def accept(self) -> None:
        if not self._shown:
            return
        undecided = [id_ for id_ in self._shown if id_ not in self._over and not self._approved.get(id_)]
        id_ = self.chance.choice(
            undecided if undecided and self.chance.random() < 0.8 else list(self._shown)[-4:]
        )
        edited = f'{{"n": {self.chance.randrange(100, 200)}}}' if self.chance.random() < 0.3 else None
        frame = ConfirmTool(
            request_id=new_ulid(), tool_call_id=id_, decision=Decision.ACCEPT, arguments=edited
        )
        sha = hashlib.sha256((edited or self._shown[id_]).encode()).hexdigest()
        if sha not in self._approved.setdefault(id_, set()):
            self._approved[id_].add(sha)
            self._asked[frame.request_id] = (id_, sha)
        self.send(frame)

    def reject(self) -> None:
        if self._shown:
            id_ = self.chance.choice(list(self._shown)[-4:])
            self.send(
                ConfirmTool(request_id=new_ulid(), tool_call_id=id_, decision=Decision.REJECT, reason="no")
            )

    def answer(self) -> None:
        ids = [*self._questions, *list(self._shown)[-1:]]
        if ids:
            id_ = self.chance.choice(ids)
            self.send(
                AppendMessage(
                    request_id=new_ulid(), role=MessageRole.TOOL, tool_call_id=id_, content="That one"
                )
            )

    def stop(self) -> None:
        self.send(StopCompletion(request_id=new_ulid(), scope=self.chance.choice(tuple(StopScope))))

    def again(self) -> None:
        """The same frame once more, as after a lost answer."""
        if self._sent:
            frame = self.chance.choice(self._sent[-6:])
            if not (isinstance(frame, ConfirmTool) and frame.decision is Decision.ACCEPT):
                self.send(frame)

    def fault(self) -> None:
        self.world.faults = 1

    async def crash(self) -> None:
        """The process dies: nothing is written, nobody is told."""
        assert self._actor is not None
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._actor.gone.wait()
        await self.start()

    async def restart(self) -> None:
        """The process ends as it should."""
        assert self._actor is not None
        self._actor.mailbox.put(Finish(CloseCode.RESTARTING, ""))
        async with asyncio.timeout(10):
            await self._actor.gone.wait()
        await self.start()

    async def move(self) -> None:
        """Another process takes over while this one still believes in itself."""
        await self.start()

    async def pause(self) -> None:
        await asyncio.sleep(self.chance.choice((0, 0.001, 0.005, 0.02)))

    async def quiet(self) -> None:
        """Until nothing happens by itself."""
        actor = self._actor
        assert actor is not None
        with anyio.move_on_after(0.3):
            while not actor.ending and (actor.mailbox or actor._in_hand or actor.busy):
                await asyncio.sleep(0.002)

    async def run(self, steps: int) -> None:
        """A random life, and then a calm end in which everything is settled."""
        await self.start()
        while not any(frame["type"] == "message_appended" for frame in self.answers.values()):
            await self.ready()
            self.say()
            await self.quiet()
        acts: list[Callable[[], Any]] = [
            *[self.complete] * 8,
            *[self.accept] * 8,
            *[self.pause] * 5,
            *[self.quiet] * 8,
            *[self.answer, self.say, self.again] * 2,
            *[self.reject, self.stop, self.attach],
            self.fault,
            self.crash,
            self.restart,
            self.move,
        ]
        for _ in range(steps):
            await self.ready()
            done = self.chance.choice(acts)()
            if asyncio.iscoroutine(done):
                await done
        await self._end()

    async def _end(self) -> None:
        self.world.faults, self.world.calm = 0, True
        request_id = ""
        try:
            for _ in range(20):
                await self.ready()
                self.send(StopCompletion(request_id=new_ulid(), scope=StopScope.ALL))
                self.say()
                await self.quiet()
                await self.ready()
                request_id = self.complete(OnPending.DECLINE)
                await self.quiet()
                if self.answers.get(request_id, {}).get("finish_reason") == "stop":
                    return
            raise AssertionError(f"no calm end of {self.id}: {self.answers.get(request_id)}")
        finally:
            self.world.calm = False

    async def close(self) -> None:
        if self._actor is not None and not self._actor.ending:
            self._actor.mailbox.put(Finish(CloseCode.GOING_AWAY, ""))


async def live(world: World, seed: int, *, steps: int = 60) -> Life:
    """One life of a seed, with all its actors ended."""
    world.chance = random.Random(seed)
    group = anyio.create_task_group()
    world.life = life = Life(world, group)
    async with asyncio.timeout(60), group:
        await life.run(steps)
        world.life = None
        await life.close()
        await asyncio.sleep(0)
        with anyio.move_on_after(5):
            assert life._actor is not None
            await life._actor.gone.wait()
        group.cancel_scope.cancel()
    return life
