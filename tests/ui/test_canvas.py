"""A project's canvas on its page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from protocol.ids import new_ulid
from tests.harness.project import ProjectClient
from tests.ui.chat import ONLINE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from playwright.async_api import Page

    from tests.harness.processes import ServerProcess

    Visit = Callable[..., Coroutine[Any, Any, Page]]


@pytest.fixture
def project_id() -> str:
    return new_ulid()


async def open_canvas(server: ServerProcess, visit: Visit, project_id: str) -> Page:
    page = await visit(server.url, model="script/echo")
    await page.goto(f"{server.url}/ui/project.html#{project_id}")
    await page.locator(ONLINE).wait_for()
    return page


async def add(page: Page, label: str, x: int, y: int) -> None:
    await page.locator("#canvas").dblclick(position={"x": x, "y": y})
    await page.get_by_label("Name of the node").fill(label)
    await page.keyboard.press("Enter")
    await expect(node(page, label)).to_be_visible()


def node(page: Page, label: str) -> Any:
    return page.locator(f".node[aria-label='{label}']")


async def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    await page.mouse.move(*start)
    await page.mouse.down()
    await page.mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    await page.mouse.move(*end)
    await page.mouse.up()


async def middle(page: Page, selector: str) -> tuple[float, float]:
    box = await page.locator(selector).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


async def test_nodes_are_made_moved_joined_named_and_deleted(
    server: ServerProcess, visit: Visit, project_id: str
) -> None:
    page = await open_canvas(server, visit, project_id)
    await expect(page.locator("#canvas-empty")).to_be_visible()
    await add(page, "First", 150, 120)
    await add(page, "<b>Second</b>", 500, 300)
    rect = ".node[aria-label='First'] rect"
    start = await middle(page, rect)
    await drag(page, start, (start[0] + 60, start[1] + 200))
    moved = await middle(page, rect)
    assert abs(moved[0] - start[0] - 60) < 3
    handle = await middle(page, ".node[aria-label='First'] .handle")
    await drag(page, handle, await middle(page, ".node[aria-label='<b>Second</b>'] rect"))
    await expect(page.locator(".edge")).to_have_attribute("aria-label", "First to <b>Second</b>")
    await page.locator(rect).dblclick()
    await page.get_by_label("Name of the node").fill("Renamed")
    await page.keyboard.press("Enter")
    await expect(node(page, "Renamed")).to_be_visible()
    await expect(page.locator("#counts")).to_have_text("2 nodes, 1 edge")
    await page.reload()
    await expect(page.locator(".edge")).to_have_attribute("aria-label", "Renamed to <b>Second</b>")
    assert await page.locator("#canvas b").count() == 0
    await page.locator(".node[aria-label='Renamed'] rect").click()
    await page.keyboard.press("Delete")
    await expect(page.locator("#counts")).to_have_text("1 node, 0 edges")
    await page.locator(".node rect").click()
    await page.get_by_role("button", name="Delete").click()
    await expect(page.locator("#canvas-empty")).to_be_visible()


async def places(page: Page) -> list[tuple[float, float]]:
    """Where the nodes one and two are drawn."""
    values = await page.evaluate(
        """["one", "two"].map((label) => {
            const { e, f } = document.querySelector(`.node[aria-label=${label}]`).transform.baseVal[0].matrix;
            return [e, f];
        })"""
    )
    return [(x, y) for x, y in values]


async def test_the_keyboard_is_enough(server: ServerProcess, visit: Visit, project_id: str) -> None:
    page = await open_canvas(server, visit, project_id)
    for label in ("one", "two"):
        await page.get_by_role("button", name="Add a node").click()
        await page.get_by_label("Name of the node").fill(label)
        await page.keyboard.press("Enter")
        await node(page, label).wait_for()
    await node(page, "one").focus()
    for _ in range(5):
        await page.keyboard.press("ArrowDown")
    await page.keyboard.press("c")
    await node(page, "two").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator(".edge")).to_have_attribute("aria-label", "one to two")
    for _ in range(2):
        await expect(page.locator(".edge")).to_have_count(1)
        (one_x, one_y), (two_x, two_y) = await places(page)
        assert (two_x - one_x, one_y - two_y) == (40, 60)
        await page.reload()
    await page.locator(".edge").focus()
    await page.keyboard.press("Delete")
    await expect(page.locator(".edge")).to_have_count(0)


async def test_what_a_model_draws_appears(server: ServerProcess, visit: Visit, project_id: str) -> None:
    """The page takes the project over from another client while a model draws on it, and shows all pages."""
    async with await ProjectClient.open(server.ws_url, project_id) as client:
        await client.create(nodes=230, edges=[("n0", "n1")])
        page = await visit(server.url, model="script/echo")
        await page.goto(f"{server.url}/ui/project.html#{project_id}")
        await page.get_by_role("button", name="Take over").click()
        await expect(page.locator(".node")).to_have_count(230)
        await expect(page.locator(".edge")).to_have_count(1)
