"""Answers in Markdown, as they stream and as they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.async_api import expect

from tests.ui.chat import ANSWER, say

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.harness.processes import ServerProcess

STREAMED = """
async (text) => {
  const { showText } = await import("/ui/chat-text.js");
  const [streamed, whole] = [document.createElement("div"), document.createElement("div")];
  const tags = new Map();
  const turned = [];
  for (let end = 1; end < text.length; end += 1) {
    const before = streamed.textContent.length;
    showText(streamed, text.slice(0, end), true);
    if (streamed.textContent.length < before - 1) turned.push(["less", text.slice(0, end)]);
    [...streamed.children].forEach((child, at) => {
      const old = tags.get(at);
      if (old && old !== child) turned.push([old.outerHTML, child.outerHTML]);
      tags.set(at, child);
    });
  }
  showText(streamed, text);
  showText(whole, text);
  return { streamed: streamed.innerHTML, whole: whole.innerHTML, turned };
}
"""

TEXT = """# Title

Some *long* and **wide ones** with `code`; see https://example.net/a_(b) and [this](https://example.org/x).

1. one
   - in **Africa**
   - 2 km
2. two

> a quote
> of *two* lines

| River | Length |
|:------|-------:|
| Nile | `6650` |

```py
# no heading
| no | table |
```
- last

---

### End **now**"""


async def test_what_models_write_is_shown_as_they_mean_it(server: ServerProcess, visit: Any) -> None:
    page: Page = await visit(server.url, model="script/marked-up")
    await say(page, "# not a heading of *mine*")
    answer = page.locator(ANSWER)
    for _ in range(2):
        await expect(answer.get_by_role("heading", name="Rivers")).to_be_visible()
        await expect(answer.locator("em")).to_have_text(["long"])
        await expect(answer.locator("strong")).to_have_text(["wide"])
        await expect(answer.locator("ol > li > ul > li")).to_have_text(["in Africa", "6650 km"])
        await expect(answer.locator("blockquote")).to_contain_text("Panta rhei.")
        await expect(answer.locator("tbody td")).to_have_text(["Nile", "6650", "Amazon", "6400"])
        await expect(answer.locator("pre code")).to_have_text('print("flow")')
        await expect(answer).to_contain_text("[not](javascript:alert(1))")
        await expect(answer.locator("a")).to_have_text(["one", "https://example.net/a_(b)"])
        await expect(answer.locator("a + .target")).to_have_text([" (example.org)"])
        link = answer.get_by_role("link", name="one", exact=True)
        await expect(link).to_have_attribute("href", "https://example.org/nile")
        await expect(link).to_have_attribute("rel", "noopener noreferrer nofollow")
        await expect(page.locator(".message[data-role=user] .text")).to_have_text("# not a heading of *mine*")
        await page.reload()


async def test_a_streamed_text_does_not_turn_into_something_else(server: ServerProcess, visit: Any) -> None:
    """At every letter each block stays the element that it was, and nothing that was read goes away."""
    page: Page = await visit(server.url, model="script/echo")
    result = await page.evaluate(STREAMED, TEXT)
    assert result["turned"] == []
    assert result["streamed"] == result["whole"]


async def test_no_text_becomes_an_element_of_another_kind(server: ServerProcess, visit: Any) -> None:
    hostile = (
        "[a](javascript:alert(1)) [b](data:text/html,x) [c](http://example.org) ![d](https://example.org/d.png)\n"
        '[<img src=x onerror=alert(1)>](https://example.org/"onclick="alert(1)) <https://example.org/e>\n'
        "| <b>x</b> | <script>alert(1)</script> |\n|---|---|\n"
        "| <svg onload=alert(1)> | [f](https://example.org) |\n"
        "# <iframe src=//example.org>\n> <style>*{display:none}</style>\n"
        "[https://bank.example](https://evil.example/) [g](https://bank.example@evil.example)"
    )
    page: Page = await visit(server.url, model="script/echo")
    await say(page, hostile)
    answer = page.locator(ANSWER)
    await expect(answer).to_contain_text("<script>alert(1)</script>")
    await expect(
        page.locator("#log :is(img, script, svg, b, iframe, style, [onclick], [onerror])")
    ).to_have_count(0)
    for address in await answer.locator("a").evaluate_all("(links) => links.map((link) => link.href)"):
        assert address.startswith("https://e")
    await expect(answer.locator("a", has_text="https://bank.example")).to_have_attribute(
        "href", "https://evil.example/"
    )
    await expect(answer.locator(".target", has_text="evil.example")).to_be_visible()
