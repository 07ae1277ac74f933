"""Signing in on the page, against a server that asks who one is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from tests.harness.fixtures import QUICK
from tests.harness.processes import ServerProcess
from tests.ui.chat import ANSWER, ONLINE, STREAMING, say
from tests.ui.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.async_api import Page

    from tests.harness.processes import StubProcess


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    place = tmp_path / "tokens"
    place.write_text("secret-of-ada ada\nsecret-of-bob bob\n")
    return place


@pytest.fixture
def guarded(database_url: str, stub: StubProcess, tokens: Path) -> Iterator[ServerProcess]:
    """A server with a token file."""
    process = ServerProcess(database_url, stub.url, tokens_file=tokens, **QUICK).start()
    yield process
    process.close()


async def give(page: Page, token: str) -> None:
    await page.get_by_label("Access token").fill(token)
    await page.keyboard.press("Enter")


async def test_a_wrong_token_is_told_and_a_right_one_works_for_every_connection(
    guarded: ServerProcess, visit: Any
) -> None:
    async with Proxy(guarded.url) as proxy:
        page: Page = await visit(proxy.url, model="script/echo")
        await expect(page.locator("#notice")).to_contain_text("You are not signed in.")
        for wrong in ("wrong", "日本語", "two words"):
            await give(page, wrong)
            await expect(page.locator("#notice [role=status]")).to_have_text(
                "This access token is not accepted."
            )
            await expect(page.get_by_label("Access token")).to_be_focused()
        await give(page, "secret-of-ada")
        await page.locator(ONLINE).wait_for()
        await expect(page.locator("#notice")).to_be_hidden()
        await say(page, "It is me")
        await expect(page.locator(ANSWER)).to_contain_text("You said: It is me")
        for _ in range(2):
            (await proxy.live_websocket()).reset()
            await page.locator("#status:not([data-phase=online])").wait_for()
            await page.locator(ONLINE).wait_for()
        await page.reload()
        await page.locator(ONLINE).wait_for()
        await expect(page.locator(ANSWER)).to_contain_text("You said: It is me")


async def test_a_token_that_ends_is_asked_for_again(guarded: ServerProcess, visit: Any, tokens: Path) -> None:
    """The next connection is refused; what was typed is kept, and another token of the same person works."""
    async with Proxy(guarded.url) as proxy:
        page: Page = await visit(proxy.url, model="script/slow")
        await give(page, "secret-of-ada")
        await page.locator(ONLINE).wait_for()
        await say(page, "How long?")
        await expect(page.locator(STREAMING)).to_contain_text("Line 2")
        await page.get_by_label("Message", exact=True).fill("a thought")
        tokens.write_text("another-of-ada ada\n")
        async with page.expect_response(lambda response: response.status == 401):
            while await page.get_by_label("Access token").count() == 0:
                proxy.reset_all()
                await page.locator("#status:not([data-phase=online])").wait_for()
                await page.locator("#status:is([data-phase=online], [data-phase=stopped])").wait_for()
        await expect(page.locator("#notice")).to_contain_text("This access token is not accepted.")
        await give(page, "another-of-ada")
        await page.locator(ONLINE).wait_for()
        await expect(page.get_by_label("Message", exact=True)).to_have_value("a thought")
        await expect(page.locator(".message[data-role=assistant]")).to_contain_text("Line 9")


async def test_signing_out_forgets_what_is_a_persons(guarded: ServerProcess, visit: Any) -> None:
    page: Page = await visit(guarded.url, model="script/echo")
    await give(page, "secret-of-ada")
    await say(page, "Of Ada's")
    await expect(page.locator(ANSWER)).to_be_visible()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Access token")).to_be_visible()
    await expect(page.locator("#list a")).to_have_count(0)
    await give(page, "secret-of-bob")
    await page.locator(ONLINE).wait_for()
    await expect(page.locator("#list a")).to_have_count(0)
    await page.get_by_role("button", name="Sign out").click()
    await give(page, "secret-of-ada")
    await page.get_by_role("link", name="Of Ada's").click()
    await expect(page.locator(ANSWER)).to_contain_text("You said: Of Ada's")
