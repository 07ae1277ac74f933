// How text is read: Markdown as data, nothing of it lost, in a time that grows with its length alone.

import assert from "node:assert/strict";
import { test } from "node:test";

import { httpsUrl, inlineOf } from "../../server/ui/chat-inline.js";
import { blocksOf } from "../../server/ui/chat-markdown.js";
import { titleFrom } from "../../server/ui/chat-store.js";

/** A node as short text: `tag(parts)`, links with their address. */
const short = (part) =>
  typeof part === "string"
    ? part
    : `${part.tag}${part.language ? `:${part.language}` : ""}${part.href ? `<${part.href}>` : ""}(${part.parts.map(short).join("|")})`;
const blocks = (text, open) => blocksOf(text, open).map(({ node }) => short(node));
const inline = (text, open) => inlineOf(text, open).map(short).join("|");

for (const [name, given, expected] of [
  ["nothing", "", []],
  ["paragraphs keep their lines", "a\nb\n\nc", ["p(a\nb)", "p(c)"]],
  ["white space at the end is kept", "a  ", ["p(a  )"]],
  ["a fence between texts", "a\n```py\nx\n```\nb", ["p(a)", "fence:py(x)", "p(b)"]],
  ["a fence still open", "a\n```py\nx\ny", ["p(a)", "fence:py(x\ny)"]],
  ["a longer fence around a shorter one", "````\n```\nx\n```\n````", ["fence(```\nx\n```)"]],
  ["tildes", "~~~\n```\n~~~", ["fence(```)"]],
  ["markup", "<img onerror=x>", ["p(<img onerror=x>)"]],
  ["headings", "# A\n#B\n###### C ##", ["h3(A)", "p(#B)", "h6(C)"]],
  ["a rule", "a\n\n---\nb", ["p(a)", "hr()", "p(b)"]],
  ["a quote", "> a\n> - b\n\nc", ["blockquote(p(a)|ul(li(b)))", "p(c)"]],
  ["a list after a text", "a:\n- b\n- c", ["p(a:)", "ul(li(b)|li(c))"]],
  ["nested lists", "1. a\n   - b\n   - c\n2. d", ["ol(li(a|ul(li(b)|li(c)))|li(d))"]],
  ["loose items are one list", "- a\n\n- b\n\n  c\n\nd", ["ul(li(a)|li(b|p(c)))", "p(d)"]],
  ["code in an item", "- a\n  ```\n  x\n  ```", ["ul(li(a|fence(x)))"]],
  ["bullets of two kinds", "- a\n1. b", ["ul(li(a))", "ol(li(b))"]],
  [
    "a table",
    "| a | b |\n|---|--:|\n| 1 | `x|y` |\nend",
    ["table(thead(tr(th(a)|th(b)))|tbody(tr(td(1)|td(code(x|y)))))", "p(end)"],
  ],
  ["bars without a table", "a | b\nc | d", ["p(a | b\nc | d)"]],
])
  test(name, () => assert.deepEqual(blocks(given), expected));

for (const [name, given, expected] of [
  ["marks", "*a* **b** _c_ __d__ ~~e~~ `f`", "em(a)| |strong(b)| |em(c)| |strong(d)| |s(e)| |code(f)"],
  ["marks within marks", "***a*** **b *c* d**", "strong(em(a))| |strong(b |em(c)| d)"],
  ["no marks", "a_b_c 2*3*4 * a ** b ~c~ \\*d\\*", "a_b_c 2*3*4 * a ** b ~c~ *d*"],
  ["marks that nothing ends", "**a *b `c [d", "**a *b `c [d"],
  ["code is left alone", "`**a**` ``b`c``", "code(**a**)| |code(b`c)"],
  ["a link", "[a **b**](https://c.d/e_(f))", "a<https://c.d/e_(f)>(a |strong(b))"],
  ["a bare address", "see https://a.b/c).", "see |a<https://a.b/c>(https://a.b/c)|)."],
  ["an image is a link", "![i](https://a.b/i.png)", "a<https://a.b/i.png>(i)"],
  ["no other scheme", "[a](javascript:alert(1)) [b](http://c.d) [e](data:x)", "[a](javascript:alert(1)) [b](http://c.d) [e](data:x)"],
  ["no name in front of the host", "[a](https://bank.example@evil.example/)", "[a](https://bank.example@evil.example/)"],
])
  test(name, () => assert.equal(inline(given), expected));

test("while it is written, a mark counts as closed, and one that just began is not shown", () => {
  assert.equal(inline("a **b", true), "a |strong(b)");
  assert.equal(inline("a **", true), "a ");
  assert.equal(inline("a `b", true), "a |code(b)");
  assert.equal(inline("[a", true), "a");
  assert.equal(inline("[a](https://b", true), "a");
  assert.deepEqual(blocks("a\n-", true), ["p(a)"]);
  assert.deepEqual(blocks("a\n##", true), ["p(a)"]);
  assert.deepEqual(blocks("| a | b |", true), ["table(thead(tr(th(a)|th(b))))"]);
  assert.deepEqual(blocks("| a | b |\n|--", true), ["table(thead(tr(th(a)|th(b))))"]);
  assert.deepEqual(blocks("```\n-", true), ["fence(-)"]);
});

test("every prefix of a text can be shown", () => {
  const whole = "# a\n```py\nx = `1`\n```\n\nb `c` [d](https://e.f) **g *h***\n> i\n- j\n  1. k\n\n|l|m|\n|-|-|\n|n|o|\n~~~\nd\n~~~";
  for (let end = 0; end <= whole.length; end += 1)
    for (const open of [false, true]) assert.ok(Array.isArray(blocksOf(whole.slice(0, end), open)));
});

test("no text is slow to read", { timeout: 20_000 }, () => {
  const parts = ["*", "_", "[", "`", "**a ", "[a](https://", "> ", "- ", "|", "~~", "`a``b", "![", "1. ", "\\", "h", "*a _b "];
  for (const part of [...parts, ...parts.map((one) => `${one}\n`), " - \n\n", "\n", "|\n|-\n"])
    for (const open of [false, true]) {
      const before = performance.now();
      blocksOf(part.repeat(40_000 / part.length), open);
      assert.ok(performance.now() - before < 1500, JSON.stringify(part));
    }
});

test("only encrypted addresses without names in front are links", () => {
  assert.equal(httpsUrl("https://a.b/")?.host, "a.b");
  for (const text of ["http://a.b", "javascript:alert(1)", "https://x@a.b", "//a.b", "a", " "]) assert.equal(httpsUrl(text), null);
});

test("a title is the first line, cut between characters", () => {
  assert.equal(titleFrom("  Hello   there\nmore"), "Hello there");
  assert.equal(titleFrom("👩".repeat(100)), `${"👩".repeat(79)}…`);
});
