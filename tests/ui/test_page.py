"""The page, as a person uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.async_api import expect

from protocol.ids import new_ulid
from tests.ui.chat import ANSWER, PENDING, STREAMING, say, shown_texts, trimmed
from tests.ui.proxy import Proxy
from tests.ui.stored import stored_texts

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.harness.processes import ServerProcess


async def test_a_person_asks_and_the_answer_streams_in(server: ServerProcess, visit: Any) -> None:
    conversation_id = new_ulid()
    page: Page = await visit(server.url, conversation_id, model="script/pages")
    await expect(page.get_by_text("What is on your mind?")).to_be_visible()
    await say(page, "Tell me about rivers\nand lakes")
    streaming = page.locator(STREAMING)
    await streaming.wait_for()
    await expect(streaming).to_contain_text("Sentence 5")
    await expect(page.locator("#model-name")).to_have_text("script/pages")
    await expect(page.locator("#scripted")).to_contain_text("not from a language model")
    await page.locator(ANSWER).wait_for()
    assert await shown_texts(page) == trimmed(await stored_texts(server.url, conversation_id))
    await expect(page.get_by_role("heading", name="Tell me about rivers")).to_be_visible()
    await expect(page.get_by_role("link", name="Tell me about rivers")).to_have_attribute(
        "aria-current", "page"
    )
    await expect(page.get_by_role("button", name="Stop")).to_be_hidden()


async def test_conversations_are_switched_and_come_back_whole(server: ServerProcess, visit: Any) -> None:
    page: Page = await visit(server.url, model="script/echo")
    await say(page, "first one")
    await expect(page.locator(ANSWER)).to_contain_text("You said: first one")
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.locator(".message")).to_have_count(0)
    await say(page, "second one")
    await expect(page.locator(ANSWER)).to_contain_text("You said: second one")
    assert (await page.locator("#list a").all_inner_texts())[:2] == ["second one", "first one"]
    await page.get_by_role("link", name="first one").click()
    await expect(page.locator(ANSWER)).to_contain_text("You said: first one")
    await expect(page.locator(".message")).to_have_count(2)


async def test_CN5_an_answer_goes_on_while_the_person_is_elsewhere(server: ServerProcess, visit: Any) -> None:
    page: Page = await visit(server.url, model="script/pages")
    await say(page, "the long one")
    await expect(page.locator(STREAMING)).to_contain_text("Sentence 2")
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.locator(".message")).to_have_count(0)
    await page.get_by_role("link", name="the long one").click()
    await expect(page.locator(ANSWER)).to_contain_text("Sentence 60")
    await expect(page.locator(".message")).to_have_count(2)
    await expect(page.locator(".note")).to_have_count(0)


async def test_ST3_stop_keeps_what_was_said(server: ServerProcess, visit: Any) -> None:
    conversation_id = new_ulid()
    page: Page = await visit(server.url, conversation_id, model="script/slow")
    await say(page, "Go on and on")
    await expect(page.locator(STREAMING)).to_contain_text("Line 3")
    await page.keyboard.press("Escape")
    await expect(page.locator(ANSWER)).to_contain_text("Stopped")
    assert await shown_texts(page) == trimmed(await stored_texts(server.url, conversation_id))
    await expect(page.get_by_role("button", name="Try again")).to_have_count(0)


async def test_CN3_a_conversation_held_elsewhere_is_taken_over(server: ServerProcess, visit: Any) -> None:
    conversation_id = new_ulid()
    first: Page = await visit(server.url, conversation_id, model="script/slow")
    await say(first, "Who has it?")
    await expect(first.locator(STREAMING)).to_contain_text("Line 2")
    second: Page = await visit(server.url, conversation_id, model="script/slow")
    await expect(second.locator("#notice")).to_contain_text("open somewhere else")
    await expect(second.locator("#status")).to_contain_text("Open elsewhere")
    await second.get_by_role("button", name="Take over").click()
    await expect(second.locator("#notice")).to_be_hidden()
    await expect(second.locator(STREAMING)).to_contain_text("Line 4")
    await expect(first.locator("#notice")).to_contain_text("goes on there")
    await second.get_by_role("button", name="Stop").click()
    await expect(second.locator(ANSWER)).to_be_visible()
    assert await shown_texts(second) == trimmed(await stored_texts(server.url, conversation_id))
    await first.get_by_role("button", name="Continue here").click()
    await expect(first.locator("#notice")).to_be_hidden()
    await expect(first.locator(ANSWER)).to_contain_text("Stopped")
    assert await shown_texts(first) == await shown_texts(second)
    await expect(first.locator(".note")).to_have_count(0)


async def test_a_copy_of_a_tab_is_another_client(server: ServerProcess, visit: Any) -> None:
    """A browser copies what a tab remembers into its duplicate; they must not throw each other out."""
    page: Page = await visit(server.url, model="script/echo")
    await expect(page.locator("#status")).to_contain_text("Connected")
    async with page.context.expect_page() as opening:
        await page.evaluate("void open(location.href)")
    copy = await opening.value
    await expect(copy.locator("#notice")).to_contain_text("open somewhere else")
    await expect(page.locator("#status")).to_contain_text("Connected")
    await page.reload()
    await expect(page.locator("#status")).to_contain_text("Connected")


async def test_CN6_a_reload_in_mid_stream_shows_everything(server: ServerProcess, visit: Any) -> None:
    conversation_id = new_ulid()
    page: Page = await visit(server.url, conversation_id, model="script/pages")
    await say(page, "Do not lose this")
    for line in (3, 15, 30):
        await expect(page.locator(STREAMING)).to_contain_text(f"Sentence {line} ")
        await page.reload()
        await expect(page.locator(".message[data-role=user]")).to_have_text("Do not lose this")
    await page.locator(ANSWER).wait_for()
    await expect(page.locator(".message")).to_have_count(2)
    assert await shown_texts(page) == trimmed(await stored_texts(server.url, conversation_id))


async def test_a_question_is_not_lost_by_a_reload_without_a_network(
    server: ServerProcess, visit: Any
) -> None:
    conversation_id = new_ulid()
    async with Proxy(server.url) as proxy:
        page: Page = await visit(proxy.url, conversation_id, model="script/echo")
        await page.locator("#status[data-phase=online]").wait_for()
        websocket = await proxy.live_websocket()
        proxy.refusing = True
        websocket.reset()
        await page.locator("#status[data-phase=waiting]").wait_for()
        await say(page, "Is anybody there?")
        await expect(page.locator(".message[data-pending=true]")).to_contain_text(
            "when the connection is back"
        )
        proxy.refusing = False
        await page.reload()
        await expect(page.locator(ANSWER)).to_contain_text("You said: Is anybody there?")
    await expect(page.locator(".message")).to_have_count(2)
    assert [role for role, _ in await stored_texts(server.url, conversation_id)] == ["user", "assistant"]


async def test_hostile_content_is_shown_as_text(server: ServerProcess, visit: Any) -> None:
    hostile = (
        "<img src=x onerror=\"document.title='taken'\"> **<b>bold</b>** `<script>alert(1)</script>`\n"
        "```<svg/onload=alert(1)>\n<img src=x onerror=alert(1)>\n```\n"
        "[link](javascript:alert(1))"
    )
    page: Page = await visit(server.url, model="script/echo")
    await say(page, hostile)
    await expect(page.locator(ANSWER)).to_contain_text("<img src=x onerror=alert(1)>")
    await expect(page.locator(ANSWER)).to_contain_text("[link](javascript:alert(1))")
    await expect(page.locator(ANSWER)).to_contain_text("<script>alert(1)</script>")
    await page.reload()
    await expect(page.locator(ANSWER)).to_contain_text("<img src=x onerror=alert(1)>")
    strange = "#log :is(img, script, svg, b, a, iframe), #list :is(img, script, svg), h1 *"
    await expect(page.locator(strange)).to_have_count(0)
    assert await page.title() != "taken"
    await expect(page.locator("#list a").first).to_contain_text("<img src=x")


async def test_ST6_a_failed_answer_is_told_and_tried_again(server: ServerProcess, visit: Any) -> None:
    page: Page = await visit(server.url, model="script/once-broken")
    await say(page, "Once more")
    note = page.locator(".note[data-kind=error]")
    await expect(note).to_be_visible()
    await expect(page.locator(ANSWER)).to_contain_text("It breaks off he")
    await note.get_by_role("button", name="Try again").click()
    await expect(page.locator(ANSWER).last).to_contain_text("Now it works.")
    await expect(note).to_have_count(0)


async def test_a_question_during_an_answer_waits_for_its_end(server: ServerProcess, visit: Any) -> None:
    conversation_id = new_ulid()
    page: Page = await visit(server.url, conversation_id, model="script/pages")
    await say(page, "one")
    await expect(page.locator(STREAMING)).to_contain_text("Sentence 3")
    await say(page, "two")
    await expect(page.locator(".message[data-pending=true]")).to_contain_text("when the answer is finished")
    await expect(page.locator(ANSWER)).to_have_count(2, timeout=20_000)
    roles = [role for role, _ in await stored_texts(server.url, conversation_id)]
    assert roles == ["user", "assistant", "user", "assistant"]
    assert await shown_texts(page) == trimmed(await stored_texts(server.url, conversation_id))


async def test_questions_that_wait_keep_their_order_over_reloads(server: ServerProcess, visit: Any) -> None:
    conversation_id = new_ulid()
    page: Page = await visit(server.url, conversation_id, model="script/pages")
    await say(page, "one")
    await expect(page.locator(STREAMING)).to_contain_text("Sentence 3")
    await say(page, "two")
    await say(page, "three")
    await page.reload()
    await expect(page.locator(STREAMING)).to_be_visible()
    await expect(page.locator(PENDING)).to_have_count(2)
    await expect(page.locator(PENDING).first).to_contain_text("when the answer is finished")
    await page.locator(ANSWER).first.wait_for()
    await page.reload()
    await expect(page.locator(ANSWER)).to_have_count(3, timeout=30_000)
    stored = await stored_texts(server.url, conversation_id)
    assert [role for role, _ in stored] == ["user", "assistant"] * 3
    assert [text for role, text in stored if role == "user"] == ["one", "two", "three"]
    assert await shown_texts(page) == trimmed(stored)


async def test_thinking_is_folded_and_code_is_set_apart(server: ServerProcess, visit: Any) -> None:
    page: Page = await visit(server.url, model="script/thinker")
    await say(page, "Think")
    answer = page.locator(ANSWER)
    await expect(answer.locator("pre code")).to_have_text("print('<b>x</b>')")
    await expect(answer.locator("p code")).to_have_text("code")
    await expect(answer.locator("p strong")).to_have_text("more")
    thoughts = answer.locator("details.thinking")
    await expect(thoughts.locator("div")).to_be_hidden()
    await thoughts.locator("summary").click()
    await expect(thoughts.locator("div")).to_contain_text("They wrote Think.")


async def test_an_unknown_model_is_told(server: ServerProcess, visit: Any) -> None:
    page: Page = await visit(server.url, model="script/nobody")
    await say(page, "Anyone?")
    await expect(page.locator(".note[data-kind=error]")).to_be_visible()
    await page.get_by_role("button", name="script/nobody").click()
    await page.get_by_label("Name of the model").fill("script/echo")
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator(ANSWER)).to_contain_text("You said: Anyone?")


async def test_a_wrong_address_is_told(server: ServerProcess, visit: Any) -> None:
    """A fragment that is no id begins a conversation of its own."""
    page: Page = await visit(server.url, "nonsense", model="script/echo")
    await expect(page.locator("#status")).to_contain_text("Connected")
    assert "nonsense" not in page.url


async def test_on_a_narrow_screen_the_list_is_behind_a_button(server: ServerProcess, visit: Any) -> None:
    page: Page = await visit(server.url, model="script/echo", viewport={"width": 380, "height": 700})
    await say(page, "small")
    await page.locator(ANSWER).wait_for()
    await expect(page.get_by_role("link", name="small")).to_be_hidden()
    await page.get_by_role("button", name="Conversations").click()
    await expect(page.get_by_role("link", name="small")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("link", name="small")).to_be_hidden()
    wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not wide
