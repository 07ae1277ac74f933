"""A client's whole life against a real server: append, complete, stop, drop, resume, restart (ST3, ST4,
CN6)."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from protocol.ids import new_ulid
from tests.harness.assemble import Assembled
from tests.harness.client import Client, abort_all, next_request_id

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.harness.client import Frame
    from tests.harness.processes import ServerProcess

SCRIPTS = ("hello", "echo", "slow", "think", "reset", "stall-later")
TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=40)


def machine_of(server: ServerProcess) -> type[RuleBasedStateMachine]:
    class Life(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.loop = asyncio.new_event_loop()
            self.id = new_ulid()
            self.state = Assembled()
            self.appended: dict[str, tuple[str, str]] = {}
            self.open: list[str] = []
            self.asked: dict[str, str] = {}
            self.restarts = 0
            self.client: Client | None = self.do(Client.open(server.ws_url, self.id, client_id="life"))
            assert self.client.connected["resume"] == "fresh"
            self.position = self.client.position

        def do(self, work: Coroutine[Any, Any, Any]) -> Any:
            return self.loop.run_until_complete(work)

        async def take(self) -> Frame:
            """Read one frame; everything sequenced goes into what the client knows, once and in order."""
            client = self.connected
            frame = await client.receive()
            if "seq" in frame:
                self.state.take(frame)
                self.position = client.position
            if frame["type"] == "completion_done":
                self.open.remove(frame["request_id"])
            if frame["type"] in {"llm_text_chunk", "llm_text_sentence", "assistant_message_complete"}:
                assert frame["request_id"] == self.state.running
                assert frame["request_id"] in self.open
            return frame

        async def until(self, *kinds: str, **fields: object) -> Frame:
            while True:
                frame = await self.take()
                if frame["type"] in kinds and all(frame.get(k) == v for k, v in fields.items()):
                    return frame

        @property
        def connected(self) -> Client:
            assert self.client is not None
            return self.client

        here = precondition(lambda self: self.client is not None)
        away = precondition(lambda self: self.client is None)

        @here
        @rule(text=TEXTS)
        def append(self, text: str) -> None:
            async def work() -> None:
                request_id = await self.connected.send("append_message", role="user", content=text)
                answer = await self.until("message_appended", "error", request_id=request_id)
                if text.isspace():
                    assert answer["code"] == "invalid_message"
                elif answer["type"] == "message_appended":
                    self.appended[request_id] = (answer["message_id"], text)
                else:
                    assert answer["code"] == "rate_limited"

            self.do(work())

        @here
        @precondition(lambda self: self.appended)
        @rule(data=st.data(), other=st.booleans())
        def append_again(self, data: st.DataObject, other: bool) -> None:
            request_id = data.draw(st.sampled_from(sorted(self.appended)))
            message_id, text = self.appended[request_id]

            async def work() -> None:
                content = text + "!" if other else text
                await self.connected.send(
                    "append_message", role="user", content=content, request_id=request_id
                )
                answer = await self.until("message_appended", "error", request_id=request_id)
                if answer.get("code") == "rate_limited":
                    return
                if other:
                    assert answer["code"] == "request_id_conflict"
                else:
                    assert "seq" not in answer
                    assert (answer["message_id"], answer["repeated"]) == (message_id, True)

            self.do(work())

        @here
        @precondition(lambda self: len(self.open) < 4)
        @rule(script=st.sampled_from(SCRIPTS), on_busy=st.sampled_from(["enqueue", "reject", "interrupt"]))
        def complete(self, script: str, on_busy: str) -> None:
            async def work() -> None:
                request_id = next_request_id()
                self.open.append(request_id)
                await self.connected.send(
                    "request_completion", model=f"script/{script}", on_busy=on_busy, request_id=request_id
                )
                answer = await self.until(
                    "completion_init", "completion_queued", "error", request_id=request_id
                )
                if answer["type"] == "error":
                    assert answer["code"] in {"completion_busy", "rate_limited"}
                    self.open.remove(request_id)
                else:
                    self.asked[request_id] = script

            self.do(work())

        @here
        @rule(count=st.integers(1, 30))
        def read(self, count: int) -> None:
            async def work() -> None:
                for _ in range(count):
                    if not self.open:
                        return
                    await self.take()

            self.do(work())

        @here
        @rule(scope=st.sampled_from(["one", "all"]))
        def stop(self, scope: str) -> None:
            async def work() -> None:
                request_id = await self.connected.send("stop_completion", scope=scope)
                while True:
                    frame = await self.take()
                    if frame["type"] == "error" and frame["request_id"] == request_id:
                        assert frame["code"] in {"nothing_to_stop", "rate_limited"}
                        return
                    if frame["type"] == "stop_completion" and frame["stop_request_id"] == request_id:
                        target = frame["request_id"]
                        done = await self.take()
                        assert (done["type"], done["request_id"]) == ("completion_done", target)
                        assert done["finish_reason"] == "stopped"
                        return

            self.do(work())

        @here
        @rule()
        def drop(self) -> None:
            self.connected.drop()
            self.client = None

        @away
        @rule()
        def resume(self) -> None:
            self.client = self.do(Client.open(server.ws_url, self.id, client_id="life", **self.position))
            if (
                self.client.connected["resume"] == "fresh"
            ):  # what never said anything is forgotten with its client
                assert not self.state.messages
                assert not self.open
                self.position = self.client.position
            assert self.client.connected["from_seq"] == self.position["last_seq"] + 1  # type: ignore[operator]

        @precondition(lambda self: self.restarts < 1)
        @rule()
        def restart(self) -> None:
            self.restarts += 1
            server.kill()
            server.start()
            self.client = self.do(Client.open(server.ws_url, self.id, client_id="life", **self.position))
            if self.client.connected["resume"] == "fresh":
                assert not self.state.messages
                self.position = self.client.position
                self.open.clear()
                return
            assert self.client.snapshot is not None
            known = dict(self.state.messages)
            ended = self.state.ended
            self.state = Assembled()
            self.state.take_snapshot(self.client.snapshot)
            self.state.ended = ended
            assert known.items() <= self.state.messages.items()
            assert self.client.snapshot["running"] is None
            self.open.clear()
            self.position = self.client.position

        def teardown(self) -> None:
            try:
                if self.client is None:
                    self.resume()
                while self.open:
                    self.do(self.take())
                self.check_stored()
            finally:
                self.do(abort_all())
                self.loop.close()

        def check_stored(self) -> None:
            if not self.state.messages:
                return
            with urllib.request.urlopen(
                f"{server.url}/api/sessions/{self.id}/messages?limit=200", timeout=10
            ) as answer:
                items = json.load(answer)["data"]["items"]
            stored = {item["sequence"]: (item["messageId"], item["role"], item["content"]) for item in items}
            assert stored == self.state.messages
            for message_id, text in self.appended.values():
                assert (message_id, "user", text) in stored.values()

    return Life


@pytest.mark.timeout(300)
def test_ST4_ST3_any_life_of_a_client_ends_with_what_is_stored(own_server: ServerProcess) -> None:
    own_server.start()
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine_of(own_server),
        settings=settings(
            max_examples=15,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
