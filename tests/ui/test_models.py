"""Which model answers: chosen for each conversation, and mended when there is none of the name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.async_api import expect

from tests.ui.chat import ANSWER, ONLINE, say

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.harness.processes import ServerProcess


async def choose(page: Page, model: str) -> None:
    await page.locator("#model").click()
    await page.get_by_label("Name of the model").fill(model)
    await page.keyboard.press("Enter")


async def test_enter_saves_wherever_the_focus_is(server: ServerProcess, visit: Any) -> None:
    page: Page = await visit(server.url, model="script/echo")
    await page.locator("#model").click()
    await page.get_by_label("Name of the model").fill("script/thinker")
    await page.get_by_label("Let it think first").focus()
    await page.keyboard.press("Space")
    await page.keyboard.press("Enter")
    await expect(page.locator("#model-dialog")).to_be_hidden()
    await expect(page.locator("#model-name")).to_have_text("script/thinker")
    await page.locator("#model").click()
    await expect(page.get_by_label("Let it think first")).to_be_checked()
    await page.get_by_label("Name of the model").fill("script/other")
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.locator("#model-name")).to_have_text("script/thinker")


async def test_a_choice_is_the_conversations_own_and_new_ones_begin_with_the_last_that_worked(
    server: ServerProcess, visit: Any
) -> None:
    page: Page = await visit(server.url, model="script/echo")
    await say(page, "first talk")
    await page.locator(ANSWER).wait_for()
    await page.get_by_role("button", name="New conversation").click()
    await choose(page, "script/brief")
    await say(page, "second talk")
    await page.locator(ANSWER).wait_for()
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.locator("#model-name")).to_have_text("script/brief")
    await choose(page, "script/nobdy")
    await say(page, "third talk")
    await expect(page.locator(".note[data-kind=error]")).to_be_visible()
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.locator("#model-name")).to_have_text("script/brief")
    await page.get_by_role("link", name="first talk").click()
    await page.locator(ONLINE).wait_for()
    await expect(page.locator("#model-name")).to_have_text("script/echo")
    await page.reload()
    await say(page, "again")
    await expect(page.locator(ANSWER).last).to_contain_text("You said: again")


async def test_after_a_typo_the_default_is_offered(server: ServerProcess, visit: Any) -> None:
    page: Page = await visit(server.url, model="script/echo")
    await choose(page, "script/nobdy")
    await say(page, "Anyone?")
    note = page.locator(".note[data-kind=error]")
    await expect(note.get_by_role("button")).to_have_text(["Use the default model", "Try again"])
    await page.reload()
    await note.get_by_role("button", name="Use the default model").click()
    await expect(page.locator(ANSWER)).not_to_have_text("")
    await expect(page.locator("#model-name")).not_to_have_text("script/nobdy")
    await expect(note).to_have_count(0)


async def test_an_answer_that_was_cut_is_said_to_be_after_a_reload_too(
    server: ServerProcess, visit: Any
) -> None:
    page: Page = await visit(server.url, model="script/cut-short")
    await say(page, "Speak")
    for _ in range(2):
        await expect(page.locator(ANSWER)).to_contain_text("Cut at its limit")
        await expect(page.get_by_role("button", name="Go on", exact=True)).to_be_visible()
        await page.reload()
    await page.get_by_role("button", name="Go on", exact=True).click()
    await expect(page.locator(ANSWER).last).to_contain_text("on to its end.")
    await expect(page.get_by_role("button", name="Go on", exact=True)).to_have_count(0)
