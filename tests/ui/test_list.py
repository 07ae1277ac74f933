"""The list of conversations, older messages, drafts, and what lies where on the page."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from playwright.async_api import expect

from protocol.ids import new_ulid
from tests.ui.chat import ANSWER, ONLINE, say
from tests.ui.stored import stored_texts

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.harness.processes import ServerProcess


async def post(url: str, body: dict[str, Any]) -> Any:
    """Make something over REST; its data."""

    def ask() -> Any:
        request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(request, timeout=10) as answer:
            return json.load(answer)["data"]

    return await asyncio.to_thread(ask)


async def test_the_list_is_the_servers_on_every_device(server: ServerProcess, visit: Any) -> None:
    here: Page = await visit(server.url, model="script/echo")
    await say(here, "written here")
    await here.locator(ANSWER).wait_for()
    named = await post(f"{server.url}/api/sessions", {"metadata": {"title": "named elsewhere", "colour": 1}})
    await post(f"{server.url}/api/sessions/{named['sessionId']}/messages", {"role": "user", "content": "x"})
    there: Page = await visit(server.url, model="script/echo")
    await expect(there.get_by_role("link", name="named elsewhere")).to_be_visible()
    await there.get_by_role("link", name="written here").click()
    await expect(there.locator("#status")).to_contain_text("Open elsewhere")
    await there.get_by_role("link", name="named elsewhere").click()
    await there.locator(ONLINE).wait_for()
    await there.get_by_role("button", name="Rename this conversation").click()
    await there.get_by_label("Name of the conversation").fill("renamed there")
    await there.keyboard.press("Enter")
    await expect(there.get_by_role("heading", name="renamed there")).to_be_visible()
    await here.reload()
    await expect(here.get_by_role("link", name="renamed there")).to_be_visible()
    await expect(here.get_by_role("link", name="named elsewhere")).to_have_count(0)


async def test_a_conversation_is_deleted_or_only_taken_off_the_list(
    server: ServerProcess, visit: Any
) -> None:
    ids = new_ulid(), new_ulid()
    page: Page = await visit(server.url, ids[0], model="script/echo")
    await say(page, "to be forgotten")
    await page.locator(ANSWER).wait_for()
    await page.goto(f"{server.url}/#{ids[1]}")
    await say(page, "to be deleted")
    await expect(page.locator(ANSWER)).to_contain_text("to be deleted")
    remove = page.get_by_role("button", name="Remove to be forgotten")
    await page.get_by_role("link", name="to be forgotten").hover()
    await remove.click()
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("link", name="to be forgotten").hover()
    await remove.click()
    await page.get_by_role("button", name="Only from this list").click()
    await expect(page.get_by_role("link", name="to be forgotten")).to_have_count(0)
    await page.get_by_role("link", name="to be deleted").hover()
    await page.get_by_role("button", name="Remove to be deleted").click()
    await page.get_by_role("button", name="Delete for good").click()
    await expect(page.get_by_role("link", name="to be deleted")).to_have_count(0)
    await page.reload()
    await page.locator(ONLINE).wait_for()
    await expect(page.get_by_role("link", name="to be ")).to_have_count(0)
    assert len(await stored_texts(server.url, ids[0])) == 2
    await page.goto(f"{server.url}/#{ids[1]}")
    await expect(page.locator("#notice")).to_contain_text("does not exist")


async def test_older_messages_are_loaded_and_the_place_is_kept(server: ServerProcess, visit: Any) -> None:
    made = await post(f"{server.url}/api/sessions", {})
    for number in range(120):
        body = {"role": "user", "content": f"note {number}."}
        await post(f"{server.url}/api/sessions/{made['sessionId']}/messages", body)
    page: Page = await visit(server.url, made["sessionId"], model="script/echo")
    await expect(page.locator(".message")).to_have_count(50)
    seen = page.get_by_text("note 70.", exact=True)
    await page.locator("#scroller").evaluate("(element) => (element.scrollTop = 0)")
    older = page.get_by_role("button", name="Show older messages")
    before = await seen.bounding_box()
    await older.click()
    await expect(page.locator(".message")).to_have_count(100)
    after = await seen.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(before["y"] - after["y"]) < 40
    await older.click()
    await expect(page.locator(".message")).to_have_count(120)
    await expect(older).to_have_count(0)
    texts = await page.locator(".message .text").all_text_contents()
    assert texts == [f"note {number}." for number in range(120)]
    await say(page, "and another")
    await expect(page.locator(".message")).to_have_count(122)


async def test_a_draft_survives(server: ServerProcess, visit: Any) -> None:
    page: Page = await visit(server.url, model="script/echo")
    field = page.get_by_label("Message", exact=True)
    await field.fill("half a thought\nand a half")
    await page.reload()
    await expect(field).to_have_value("half a thought\nand a half")
    await field.press("Enter")
    await expect(page.locator(ANSWER)).to_contain_text("half a thought")
    await page.reload()
    await expect(field).to_have_value("")


async def test_a_message_that_is_too_large_is_not_to_be_tried_again(
    server: ServerProcess, visit: Any
) -> None:
    page: Page = await visit(server.url, model="script/echo")
    await page.locator(ONLINE).wait_for()
    await say(page, "x" * 1_100_000)
    pending = page.locator(".message[data-pending=true]")
    await expect(pending).to_contain_text("too large")
    await expect(pending.get_by_role("button")).to_have_text(["Take back"])
    await page.get_by_label("Message", exact=True).fill("more")
    await pending.get_by_role("button", name="Take back").click()
    assert len(await page.get_by_label("Message", exact=True).input_value()) == 1_100_005


async def test_nothing_lies_over_anything(server: ServerProcess, visit: Any) -> None:
    page: Page = await visit(server.url, model="script/pages", viewport={"width": 1000, "height": 500})
    await say(page, "a title that is long enough to be cut where the list ends")
    await page.locator(ANSWER).wait_for()
    await say(page, "again")
    await expect(page.locator(ANSWER)).to_have_count(2, timeout=20_000)
    await page.get_by_label("Message", exact=True).fill("\n" * 8)
    await page.locator("#scroller").evaluate("(element) => (element.scrollTop = 0)")
    await expect(page.locator("#latest")).to_be_visible()
    newest = await page.locator("#latest").bounding_box()
    field = await page.locator(".field").bounding_box()
    assert newest is not None
    assert field is not None
    assert newest["y"] + newest["height"] <= field["y"]
    await page.mouse.move(900, 20)
    await page.evaluate("document.activeElement.blur()")
    item = page.locator("#list li").first
    widths = await item.evaluate("(item) => [item.clientWidth, item.querySelector('a').clientWidth]")
    assert widths[0] == widths[1]


async def test_on_a_narrow_screen_the_connection_has_words(server: ServerProcess, visit: Any) -> None:
    page: Page = await visit(server.url, model="script/echo", viewport={"width": 380, "height": 700})
    await page.locator(ONLINE).wait_for()
    assert await page.get_by_role("status").filter(has_text="Connected").count() == 1
    text = page.locator("#status-text")
    width = "(element) => element.getBoundingClientRect().width"
    assert await text.evaluate(width) <= 1
    await page.locator("#status").click()
    assert await text.evaluate(width) > 30
    assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth")
