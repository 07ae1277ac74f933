// Questions on their way: one at a time, in their order, whatever happens to the page in between.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

const kept = new Map();
globalThis.localStorage = {
  getItem: (key) => kept.get(key) ?? null,
  setItem: (key, value) => void kept.set(key, value),
  removeItem: (key) => void kept.delete(key),
};

const { Outgoing } = await import("../../server/ui/chat-outgoing.js");
const { questions } = await import("../../server/ui/chat-store.js");
const { EMPTY, RequestError } = await import("../../server/ui/turnwire.js");

const turn = () => new Promise(setImmediate);
let line;
let done;

beforeEach(() => {
  kept.clear();
  done = [];
  line = {
    view: EMPTY,
    status: { phase: "online" },
    appended: [],
    append: async (text) => {
      line.appended.push(text);
      await line.refusing?.(text);
    },
  };
});

const ends = new Map();
const outgoing = () =>
  new Outgoing("C", line, {
    complete: (requestId) => new Promise((resolve) => ends.set(requestId, resolve)),
    changed: () => {},
  });

/** End the answer that was begun last. */
async function finish(value = true) {
  const [id, resolve] = [...ends].at(-1);
  ends.delete(id);
  resolve(value);
  await turn();
}

test("a question waits for the end of the answer before it", async () => {
  const page = outgoing();
  for (const text of ["one", "two", "three"]) page.send(text);
  await turn();
  assert.deepEqual(line.appended, ["one"]);
  await finish();
  assert.deepEqual(line.appended, ["one", "two"]);
  await finish();
  await finish();
  assert.deepEqual(line.appended, ["one", "two", "three"]);
  assert.deepEqual(questions("C"), []);
});

test("after a reload nothing is sent before it is known what runs, and then in order", async () => {
  const before = outgoing();
  for (const text of ["one", "two", "three"]) before.send(text);
  await turn();
  const first = questions("C")[0];
  before.close();
  line.appended = [];
  line.status = { phase: "connecting" };
  const after = outgoing();
  after.advance();
  await turn();
  assert.deepEqual(line.appended, []);
  line.status = { phase: "online" };
  line.view = { ...EMPTY, running: { requestId: first.completeId, runId: "r", model: null, error: null } };
  after.advance();
  await turn();
  assert.deepEqual(line.appended, [], "the first one is being answered");
  assert.deepEqual(after.waiting.map(({ question }) => question.text), ["two", "three"]);
  line.view = EMPTY;
  after.advance();
  await turn();
  assert.deepEqual(line.appended, ["two"]);
  await finish();
  assert.deepEqual(line.appended, ["two", "three"]);
});

test("what was not done for lack of a connection is done again; what was refused is not", async () => {
  const page = outgoing();
  line.refusing = () => Promise.reject(new RequestError("disconnected", "", "r"));
  line.status = { phase: "online" };
  const asked = line.append;
  line.append = (text) => {
    line.status = { phase: "stopped" };
    return asked(text);
  };
  page.send("one");
  await turn();
  assert.equal(page.waiting[0].held, true);
  line.append = asked;
  line.refusing = () => Promise.reject(new RequestError("too_large", "Too large.", "r"));
  line.status = { phase: "online" };
  page.advance();
  await turn();
  assert.deepEqual(page.waiting.map(({ held, error, retryable }) => ({ held, error, retryable })), [
    { held: false, error: "Too large.", retryable: false },
  ]);
  line.refusing = undefined;
  page.send("two");
  await turn();
  assert.equal(line.appended.at(-1), "two", "it does not keep the next one from being sent");
});

test("a question that is taken back is not sent", async () => {
  const page = outgoing();
  page.send("one");
  page.send("two");
  await turn();
  page.withdraw(page.waiting.find(({ question }) => question.text === "two").question);
  await finish();
  assert.deepEqual(line.appended, ["one"]);
});
