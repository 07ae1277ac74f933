"""What the page says and does while it is not connected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.async_api import expect

from protocol.ids import new_ulid
from tests.ui.chat import ANSWER, ONLINE, PENDING, STREAMING, say
from tests.ui.stored import stored_texts

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.harness.processes import ServerProcess

CURSOR = """
getComputedStyle(document.querySelector('.message:last-of-type .text').lastElementChild, '::after').content
"""


async def taken_over(visit: Any, server: ServerProcess, conversation_id: str) -> tuple[Page, Page]:
    """A page that asked something, and another browser's that took the conversation over in mid-answer."""
    first: Page = await visit(server.url, conversation_id, model="script/slow")
    await say(first, "Who has it?")
    await expect(first.locator(STREAMING)).to_contain_text("Line 2")
    second: Page = await visit(server.url, conversation_id, model="script/slow")
    await second.get_by_role("button", name="Take over").click()
    await second.locator(ONLINE).wait_for()
    await expect(first.locator("#notice")).to_contain_text("goes on there")
    return first, second


async def test_CN3_a_page_that_was_replaced_does_not_pretend(server: ServerProcess, visit: Any) -> None:
    conversation_id = new_ulid()
    first, second = await taken_over(visit, server, conversation_id)
    await expect(first.get_by_role("button", name="Stop")).to_be_hidden()
    assert await first.evaluate(CURSOR) == "none"
    await expect(first.locator(".note")).to_contain_text("The answer goes on.")
    await say(first, "Can you hear me?")
    await expect(first.get_by_label("Message", exact=True)).to_have_value("Can you hear me?")
    await expect(first.locator("#kept")).to_contain_text("what you write stays here")
    await expect(first.get_by_role("button", name="Send")).to_be_disabled()
    await expect(first.locator(PENDING)).to_have_count(0)
    await second.get_by_role("button", name="Stop").click()
    await second.locator(ANSWER).wait_for()
    await second.close()
    await expect(first.locator(ONLINE)).to_be_visible(timeout=15_000)
    await expect(first.locator("#notice")).to_be_hidden()
    await expect(first.locator(ANSWER)).to_contain_text("Stopped")
    await first.get_by_label("Message", exact=True).press("Enter")
    await expect(first.locator(STREAMING)).to_be_visible()
    await first.get_by_role("button", name="Stop").click()
    roles = [role for role, _ in await stored_texts(server.url, conversation_id)]
    assert roles[:3] == ["user", "assistant", "user"]


async def test_CN3_a_question_that_waits_is_sent_once_one_is_back(server: ServerProcess, visit: Any) -> None:
    conversation_id = new_ulid()
    first: Page = await visit(server.url, conversation_id, model="script/slow")
    await say(first, "Begin")
    await expect(first.locator(STREAMING)).to_contain_text("Line 2")
    await say(first, "And then?")
    second: Page = await visit(server.url, conversation_id, model="script/slow")
    await second.get_by_role("button", name="Take over").click()
    await expect(first.locator(PENDING)).to_contain_text("Not sent: there is no connection")
    await second.get_by_role("button", name="Stop").click()
    await second.locator(ANSWER).wait_for()
    await first.get_by_role("button", name="Continue here").click()
    await expect(first.locator(PENDING)).to_have_count(0)
    await expect(first.locator(STREAMING)).to_be_visible()
    await first.get_by_role("button", name="Stop").click()
    texts = [text for role, text in await stored_texts(server.url, conversation_id) if role == "user"]
    assert texts == ["Begin", "And then?"]


async def test_a_tab_goes_on_when_the_other_one_of_the_browser_is_closed(
    server: ServerProcess, visit: Any
) -> None:
    page: Page = await visit(server.url, model="script/echo")
    await page.locator(ONLINE).wait_for()
    async with page.context.expect_page() as opening:
        await page.evaluate("void open(location.href)")
    copy = await opening.value
    await expect(copy.locator("#status")).to_contain_text("Open elsewhere")
    await page.reload()
    await expect(page.locator(ONLINE)).to_be_visible()
    await expect(copy.locator("#status")).to_contain_text("Open elsewhere")
    await copy.get_by_label("Message", exact=True).fill("patience")
    await page.close()
    await expect(copy.locator(ONLINE)).to_be_visible(timeout=15_000)
    await copy.get_by_label("Message", exact=True).press("Enter")
    await expect(copy.locator(ANSWER)).to_contain_text("You said: patience")


async def test_CN9_a_lost_network_is_told_within_seconds_and_so_is_its_return(
    server: ServerProcess, visit: Any
) -> None:
    conversation_id = new_ulid()
    page: Page = await visit(server.url, conversation_id, model="script/echo")
    await page.locator(ONLINE).wait_for()
    await page.context.set_offline(True)
    await expect(page.locator("#status")).to_contain_text("Offline", timeout=6000)
    await say(page, "Is anybody there?")
    await expect(page.locator(PENDING)).to_contain_text("Sent when the connection is back")
    await page.context.set_offline(False)
    await expect(page.locator(ANSWER)).to_contain_text("You said: Is anybody there?", timeout=6000)
    assert len(await stored_texts(server.url, conversation_id)) == 2
