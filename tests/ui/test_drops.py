"""The browser client over a network that resets its connections at random moments in mid-stream."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from protocol.ids import new_ulid
from tests.foreign import outside
from tests.ui.proxy import Proxy
from tests.ui.stored import stored_messages

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.harness.processes import ServerProcess

DROPS = int(os.environ.get("TURNWIRE_TEST_DROPS", "25"))

CONVERSE = """
async ({ id, model }) => {
  const { connect } = await import("/ui/turnwire.js");
  const conversation = connect(`ws://${location.host}/ws/conversations/${id}`, { baseMs: 20, capMs: 200 });
  const told = { resumes: [], started: false, shrunk: [], finished: 0, goOn: true };
  Object.assign(window, { told, conversation });
  let before = [];
  conversation.on("frame", (frame) => {
    // A reset takes back what lay in the browser's buffer: even the first state may have to come twice.
    if (frame.type === "connected") told.started && told.resumes.push(frame.resume);
    else told.started ||= frame.seq !== undefined;
  });
  conversation.subscribe(({ messages }) => {
    for (const message of messages) {
      const old = before.find((other) => other.messageId === message.messageId);
      if (old && !message.content.startsWith(old.content)) told.shrunk.push([old.content, message.content]);
    }
    if (messages.length < before.length) told.shrunk.push([before.length, messages.length]);
    before = messages;
  });
  while (told.goOn) {
    await conversation.append(`Question ${told.finished}: 日本語?`);
    const { finishReason } = await conversation.complete({ model });
    if (finishReason !== "stop") throw new Error(finishReason);
    told.finished += 1;
  }
  const { messages } = conversation.view;
  conversation.close();
  return { ...told, messages };
}
"""


async def reset_at_random(proxy: Proxy, chance: random.Random, times: int) -> None:
    """Reset a WebSocket over which something came, so many times."""
    for _ in range(times):
        pipe = await proxy.live_websocket()
        await asyncio.sleep(chance.uniform(0, 0.2))  # the random moment
        pipe.reset()
        proxy.pipes.discard(pipe)


def essence(messages: list[dict[str, Any]]) -> list[tuple[str, int, str, str]]:
    return [(m["messageId"], m["sequence"], m["role"], m["content"]) for m in messages]


@pytest.mark.timeout(300)
async def test_CN6_a_browser_loses_and_doubles_nothing(server: ServerProcess, visit: Any) -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    conversation_id = new_ulid()
    async with Proxy(server.url) as proxy:
        page: Page = await visit(proxy.url, model="script/pages")
        await page.goto(f"{proxy.url}/ui/turnwire.js")  # a page of the server's without a socket of its own
        result: dict[str, Any] = {}

        async def converse() -> None:
            result.update(await page.evaluate(CONVERSE, {"id": conversation_id, "model": "script/pages"}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(converse)
            await reset_at_random(proxy, chance, DROPS)
            await page.evaluate("told.goOn = false")
    assert result["shrunk"] == [], seed
    assert set(result["resumes"]) <= {"replayed"}, "never the state, where frames were to be had"
    assert len(result["resumes"]) > DROPS / 2
    kept = await stored_messages(server.url, conversation_id)
    assert essence(result["messages"]) == essence(kept), seed
    for message in result["messages"]:
        if message["role"] == "assistant":
            assert message["spoken"] == message["content"]


@pytest.mark.timeout(300)
async def test_CN6_the_same_client_in_node_loses_and_doubles_nothing(server: ServerProcess) -> None:
    seed = random.randrange(1 << 30)
    conversation_id = new_ulid()
    async with Proxy(server.url) as proxy:
        process = await asyncio.create_subprocess_exec(
            outside.node(),
            Path(__file__).with_name("in_node.mjs"),
            f"{proxy.url.replace('http', 'ws')}/ws/conversations/{conversation_id}",
            "script/pages",
            env={**os.environ, "TURNWIRE_TEST_NODE_MODULES": outside.node_modules()},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        await reset_at_random(proxy, random.Random(seed), DROPS)
        output, errors = await process.communicate(b"end\n")
    assert process.returncode == 0, errors.decode()
    kept = await stored_messages(server.url, conversation_id)
    assert essence(json.loads(output)) == essence(kept), seed


@pytest.mark.timeout(120)
async def test_ST7_a_page_survives_the_servers_crash(own_server: ServerProcess, visit: Any) -> None:
    """The server is killed in mid-stream and comes back elsewhere; the page tells, and goes on when asked."""
    own_server.start()
    async with Proxy(own_server.url) as proxy:
        page: Page = await visit(proxy.url, model="script/slow")
        await page.get_by_label("Message", exact=True).fill("Talk until you die")
        await page.keyboard.press("Enter")
        await page.get_by_text("Line 2 of a long answer").wait_for()
        own_server.kill()
        proxy.reset_all()
        await page.locator("#status[data-phase=waiting]").wait_for()
        own_server.start()
        proxy.target_url = own_server.url
        await page.locator("#status[data-phase=online]").wait_for()
        await page.get_by_text("The server restarted during this answer.").wait_for()
        await page.get_by_role("button", name="Try again").click()
        await page.get_by_text("Line 1 of a long answer").last.wait_for()
        await page.get_by_role("button", name="Stop").click()
        await page.get_by_text("Stopped", exact=True).wait_for()
