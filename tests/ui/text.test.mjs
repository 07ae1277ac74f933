// How text is cut into blocks: nothing is lost but the fences themselves.

import assert from "node:assert/strict";
import { test } from "node:test";

import { blocksOf } from "../../server/ui/chat-text.js";
import { titleFrom } from "../../server/ui/chat-store.js";

const text = (content) => ({ kind: "text", language: "", text: content });
const code = (content, language = "") => ({ kind: "code", language, text: content });

for (const [name, given, expected] of [
  ["nothing", "", []],
  ["plain text", "a\n\nb", [text("a\n\nb")]],
  ["a fence between texts", "a\n```py\nx\n```\nb", [text("a"), code("x", "py"), text("b")]],
  ["a fence still open", "a\n```py\nx\ny", [text("a"), code("x\ny", "py")]],
  ["a fence just begun", "a\n```", [text("a"), code("")]],
  ["a longer fence around a shorter one", "````\n```\nx\n```\n````", [code("```\nx\n```")]],
  ["tildes", "~~~\n```\n~~~", [code("```")]],
  ["back-ticks within a line are no fence", "```not `` a fence``` at all", [text("```not `` a fence``` at all")]],
  ["markup", "<img onerror=x>", [text("<img onerror=x>")]],
])
  test(name, () => assert.deepEqual(blocksOf(given), expected));

test("every prefix of a text can be shown", () => {
  const whole = "a\n```py\nx = `1`\n```\n\nb `c`\n~~~\nd\n~~~";
  for (let end = 0; end <= whole.length; end += 1) assert.ok(Array.isArray(blocksOf(whole.slice(0, end))));
});

test("a title is the first line, cut between characters", () => {
  assert.equal(titleFrom("  Hello   there\nmore"), "Hello there");
  assert.equal(titleFrom("👩".repeat(100)), `${"👩".repeat(79)}…`);
});
