"""What a person can decide on the page, with the server's side of the socket played by the test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from playwright.async_api import expect

if TYPE_CHECKING:
    from playwright.async_api import Page, WebSocketRoute

    from tests.harness.processes import ServerProcess

Frame = dict[str, Any]


def call(**changes: object) -> Frame:
    return {
        "run_id": "run-1",
        "message_id": "A",
        "tool_call_id": "call-1",
        "name": "canvas_edit",
        "arguments": '{"op":"<b>delete</b>"}',
        "arguments_sha256": "",
        "confirmation_state": "pending",
        "execution_state": "waiting",
        "result": None,
        "error": None,
        "sequence": None,
        **changes,
    }


def waiting_state(waiting: Frame) -> list[Frame]:
    """A conversation whose last run ended because a tool call waits."""
    message: Frame = {"message_id": "A", "sequence": 0, "role": "assistant", "content": "May I?"}
    message |= {"tool_call_id": None, "tool_calls": [waiting], "metadata": {}}
    last_run: Frame = {"run_id": "run-1", "request_id": "r", "status": "awaiting_input"}
    last_run |= {"finish_reason": "tool_calls", "error": None}
    connected: Frame = {"type": "connected", "epoch": "E", "seq": 9, "from_seq": 10, "resume": "snapshot"}
    snapshot: Frame = {
        "type": "snapshot",
        "as_of_seq": 9,
        "session": {},
        "messages": [message],
        "truncated": False,
    }
    snapshot |= {"running": None, "queued": [], "waiting": [waiting], "last_run": last_run}
    return [connected, snapshot]


class Server:
    """Lets a call wait, and takes down what the page sends."""

    def __init__(self, waiting: Frame) -> None:
        self.waiting = waiting
        self.heard: list[Frame] = []
        self.seq = 9

    def __call__(self, socket: WebSocketRoute) -> None:
        def hear(text: str | bytes) -> None:
            frame: Frame = json.loads(text)
            self.heard.append(frame)
            for answer in self.answers(frame):
                self.seq += 1
                socket.send(json.dumps({**answer, "seq": self.seq}))

        socket.on_message(hear)
        for frame in waiting_state(self.waiting):
            socket.send(json.dumps(frame))

    def answers(self, frame: Frame) -> list[Frame]:
        base = {"request_id": frame.get("request_id")}
        if frame["type"] == "confirm_tool":
            state = "accepted" if frame["decision"] == "accept" else "rejected"
            decided = {"type": "tool_confirmation_processed", "tool_call_id": "call-1"}
            return [{**base, **decided, "decision": frame["decision"], "confirmation_state": state}]
        if frame["type"] == "append_message":
            stored = {"message_id": "T", "sequence": 1, "role": frame["role"], "content": frame["content"]}
            settled = call(execution_state="succeeded", result=frame["content"], name="ask_user", sequence=1)
            return [
                {**base, "type": "message_appended", **stored, "tool_call_id": "call-1"},
                {"type": "tool_call", **settled},
            ]
        if frame["type"] == "request_completion":
            return [{**base, "type": "completion_init", "run_id": "run-2", "model": "m"}]
        return []

    def kinds(self) -> list[str]:
        return [frame["type"] for frame in self.heard if frame["type"] not in {"ack", "ping"}]


async def open_with(visit: Any, server: ServerProcess, played: Server) -> Page:
    page: Page = await visit(server.url, model="script/echo")
    await page.route_web_socket("**/ws/**", played)
    await page.reload()
    return page


async def test_a_call_is_allowed_and_the_model_goes_on(server: ServerProcess, visit: Any) -> None:
    played = Server(call())
    page = await open_with(visit, server, played)
    await expect(page.locator(".call summary")).to_have_text("canvas_edit: waits for your permission")
    await expect(page.locator(".call pre")).to_contain_text('"op": "<b>delete</b>"')
    await page.get_by_role("button", name="Allow").click()
    await expect(page.locator(".call summary")).to_have_text("canvas_edit: allowed")
    await expect(page.get_by_role("button", name="Allow")).to_have_count(0)
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    assert played.kinds() == ["confirm_tool", "request_completion"]
    assert played.heard[0]["decision"] == "accept"


async def test_a_call_is_declined(server: ServerProcess, visit: Any) -> None:
    played = Server(call())
    page = await open_with(visit, server, played)
    await page.get_by_role("button", name="Decline").click()
    await expect(page.locator(".call summary")).to_have_text("canvas_edit: declined")
    assert played.heard[0]["decision"] == "reject"


async def test_a_question_of_the_models_is_answered(server: ServerProcess, visit: Any) -> None:
    asked = call(
        name="ask_user", arguments='{"question":"Which colour?"}', confirmation_state="awaiting_input"
    )
    played = Server(asked)
    page = await open_with(visit, server, played)
    await expect(page.get_by_text("Which colour?", exact=True)).to_be_visible()
    await page.get_by_label("Your answer").fill("green")
    await page.keyboard.press("Enter")
    await expect(page.locator(".call summary")).to_have_text("ask_user: done")
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    assert played.kinds() == ["append_message", "request_completion"]
    assert played.heard[0] | {"request_id": ""} == {
        "type": "append_message",
        "request_id": "",
        "role": "tool",
        "content": "green",
        "tool_call_id": "call-1",
    }
