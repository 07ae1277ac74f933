"""Chromium for the tests of the page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Browser, Page, async_playwright

from protocol.ids import new_ulid
from tests.foreign import outside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_ABOUT_NETWORK = ("WebSocket connection to", "Failed to load resource", "net::ERR")


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """A Chromium of the test's own."""
    program = outside.chromium()
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield chromium
        await chromium.close()


@pytest.fixture
async def visit(browser: Browser) -> AsyncIterator[Callable[..., Coroutine[Any, Any, Page]]]:
    """Gives a function that opens the page as another person: a browser profile of its own.

    At the end of the test nothing may have gone wrong in any of them: no uncaught error, no breach of the
    security policy, no request to elsewhere.
    """
    wrong: list[str] = []

    async def open_page(
        base_url: str, conversation_id: str | None = None, *, model: str, **more: Any
    ) -> Page:
        context = await browser.new_context(**more)
        preferences = json.dumps(json.dumps({"model": model, "reasoning": model == "script/thinker"}))
        key = "'turnwire.preferences'"
        await context.add_init_script(
            f"localStorage.getItem({key}) ?? localStorage.setItem({key}, {preferences})"
        )
        page = await context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "console",
            lambda message: (
                wrong.append(f"console: {message.text}")
                if message.type in {"error", "warning"}
                and not any(part in message.text for part in _ABOUT_NETWORK)
                else None
            ),
        )
        page.on(
            "request",
            lambda request: (
                wrong.append(f"elsewhere: {request.url}")
                if not request.url.startswith((base_url, "data:"))
                else None
            ),
        )
        await page.goto(f"{base_url}/#{conversation_id or new_ulid()}")
        return page

    yield open_page
    assert wrong == []
