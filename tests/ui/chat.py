"""What tests of the page do over and over, as a person does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Page

STREAMING = ".message[data-role=assistant][data-streaming=true]"
ANSWER = ".message[data-role=assistant][data-streaming=false]"
PENDING = ".message[data-pending=true]"
ONLINE = "#status[data-phase=online]"


async def say(page: Page, text: str) -> None:
    await page.get_by_label("Message", exact=True).fill(text)
    await page.keyboard.press("Enter")


async def shown_texts(page: Page) -> list[tuple[str, str]]:
    """Role and text of every message on the page; for texts without marks, exactly what was said."""
    pairs = await page.evaluate(
        """[...document.querySelectorAll('.message')]
            .map((message) => [message.dataset.role, message.querySelector('.text').textContent])"""
    )
    return [(role, text) for role, text in pairs]


def trimmed(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(role, text.strip("\n")) for role, text in pairs]
