// The state of a conversation, from frames: a pure function, so tables and cut points.

import assert from "node:assert/strict";
import { test } from "node:test";

import { EMPTY, reduce } from "../../server/ui/turnwire-state.js";
import { answer, connected, snapshot, stored } from "./fake_socket.mjs";

const play = (frames, view = EMPTY) => frames.reduce(reduce, view);
const appended = (sequence, content, over = {}) => ({
  type: "message_appended",
  message_id: `M${sequence}`,
  sequence,
  role: "user",
  content,
  tool_call_id: null,
  origin: "socket",
  ...over,
});
const call = (over = {}) => ({
  run_id: "run-1",
  message_id: "A",
  tool_call_id: "c1",
  name: "canvas_edit",
  arguments: "{}",
  arguments_sha256: "x",
  confirmation_state: "pending",
  execution_state: "waiting",
  result: null,
  error: null,
  sequence: null,
  ...over,
});
const texts = (view) => view.messages.map((message) => message.content);

test("a stream of chunks is the message, and its end changes nothing but its state", () => {
  const frames = [appended(0, "hi", { seq: 1 }), ...answer("r", ["one ", "二 ", "👩‍💻"], { seq: 2 })];
  const before = play(frames.slice(0, -2));
  const after = play(frames);
  assert.deepEqual(texts(before), ["hi", "one 二 👩‍💻"]);
  assert.equal(before.messages[1].streaming, true);
  assert.equal(before.running.model, "script/x");
  assert.deepEqual(texts(after), texts(before));
  assert.equal(after.messages[1].streaming, false);
  assert.equal(after.messages[1].spoken, "one 二 👩‍💻");
  assert.equal(after.running, null);
  assert.equal(after.lastRun.finishReason, "stop");
  assert.equal(after.lastRun.model, "script/x");
});

test("CN7 prefix, snapshot and rest make the same messages as the whole, at every cut", () => {
  const chunks = ["a", "b ", "c. ", "d"];
  const frames = [appended(0, "hi", { seq: 1 }), ...answer("r", chunks, { seq: 2 })];
  const whole = play(frames);
  for (let cut = 2; cut < 2 + chunks.length; cut += 1) {
    const text = chunks.slice(0, cut - 1).join("");
    const state = snapshot({
      as_of_seq: cut,
      messages: [stored(0, "user", "hi")],
      running: {
        request_id: "r",
        run_id: "run-1",
        message_id: text ? "A" : null,
        text,
        thinking: "",
        next_sentence_index: 0,
        sentence: text,
        tool_calls: [],
      },
    });
    const rebuilt = play([connected({ resume: "snapshot" }), state, ...frames.slice(cut + 1)]);
    assert.deepEqual(texts(rebuilt), texts(whole), `cut at ${cut}`);
    assert.deepEqual(
      rebuilt.messages.map((message) => message.sequence),
      [0, 1],
    );
  }
});

test("a message told again is there once, in its place", () => {
  const view = play([appended(0, "a", { seq: 1 }), appended(1, "b", { seq: 2 }), appended(0, "a", { repeated: true })]);
  assert.deepEqual(texts(view), ["a", "b"]);
});

test("a message older than the window is not put on top of it", () => {
  const view = play([
    snapshot({ messages: [stored(7, "user", "late")], truncated: true }),
    appended(3, "old", { repeated: true }),
  ]);
  assert.deepEqual(texts(view), ["late"]);
});

test("ST3 a stopped message ends with the text that was stored", () => {
  const frames = answer("r", ["one ", "two"]).slice(0, 3);
  const view = play([
    ...frames,
    {
      type: "stop_completion",
      seq: 4,
      request_id: "r",
      run_id: "run-1",
      message_id: "A",
      sequence: 0,
      partial_text: "one two",
      stop_request_id: "s",
    },
    { type: "completion_done", seq: 5, request_id: "r", run_id: "run-1", finish_reason: "stopped" },
  ]);
  assert.deepEqual(texts(view), ["one two"]);
  assert.equal(view.messages[0].finishReason, "stopped");
  assert.equal(view.messages[0].streaming, false);
  assert.equal(view.running, null);
});

test("ST6 a failed run shows its error and keeps its text where it was", () => {
  const view = play([
    appended(0, "hi", { seq: 1 }),
    ...answer("r", ["half"], { seq: 2 }).slice(0, 2),
    { type: "error", seq: 4, request_id: "r", run_id: "run-1", code: "llm_timeout", message: "silent" },
    { type: "completion_done", seq: 5, request_id: "r", run_id: "run-1", finish_reason: "error" },
    appended(2, "again", { seq: 6 }),
  ]);
  assert.deepEqual(texts(view), ["hi", "half", "again"]);
  assert.equal(view.lastRun.error.code, "llm_timeout");
  assert.equal(view.messages[1].finishReason, "error");
});

test("a refusal does not change the conversation", () => {
  const view = play(answer("r", ["x"]).slice(0, 2));
  assert.equal(reduce(view, { type: "error", request_id: "r2", code: "completion_busy", message: "" }), view);
});

test("ST5 queued completions come and go", () => {
  let view = play([{ type: "completion_queued", seq: 1, request_id: "q", position: 1 }]);
  assert.deepEqual(view.queued, ["q"]);
  view = play([{ type: "completion_done", seq: 2, request_id: "q", run_id: null, finish_reason: "stopped" }], view);
  assert.deepEqual(view.queued, []);
  assert.equal(view.lastRun, null);
});

test("TL1 fragments of tool calls come together, and a call takes their place", () => {
  const chunk = (index, id, name, text) => ({
    type: "tool_call_chunk",
    request_id: "r",
    run_id: "run-1",
    message_id: "A",
    index,
    id,
    function: { name, arguments: text },
  });
  let view = play([
    chunk(0, "c1", "search", '{"q":'),
    chunk(1, "c2", "search", "{"),
    chunk(0, null, null, '"x"}'),
    chunk(1, null, null, "}"),
  ]);
  assert.deepEqual(
    view.messages[0].drafts.map((draft) => draft.arguments),
    ['{"q":"x"}', "{}"],
  );
  view = play([{ type: "tool_call", seq: 5, request_id: "r", ...call() }], view);
  assert.deepEqual(
    view.waiting.map((waiting) => waiting.tool_call_id),
    ["c1"],
  );
  view = play(
    [
      {
        type: "tool_confirmation_processed",
        seq: 6,
        tool_call_id: "c1",
        decision: "accept",
        confirmation_state: "accepted",
        arguments_sha256: "x",
      },
    ],
    view,
  );
  assert.deepEqual(view.waiting, []);
  assert.equal(view.messages[0].toolCalls[0].confirmation_state, "accepted");
  view = play(
    [
      {
        type: "tool_call",
        seq: 7,
        request_id: "r",
        ...call({ confirmation_state: "accepted", execution_state: "succeeded", result: "ok", sequence: 2 }),
      },
    ],
    view,
  );
  assert.equal(view.messages[0].toolCalls.length, 1);
  assert.equal(view.messages[0].toolCalls[0].result, "ok");
});

test("ST7 after a crash the snapshot tells how the last run ended", () => {
  const view = play([
    snapshot({
      messages: [stored(0, "user", "hi"), stored(1, "assistant", "ha", { metadata: { finish_reason: "interrupted" } })],
      last_run: { run_id: "run-1", request_id: "r", status: "interrupted", finish_reason: null, error: null },
    }),
  ]);
  assert.equal(view.lastRun.finishReason, "interrupted");
  assert.equal(view.messages[1].finishReason, "interrupted");
});

test("unknown types and fields leave the state alone", () => {
  const view = play(answer("r", ["x"]));
  assert.equal(reduce(view, { type: "from_the_future", seq: 99 }), view);
});
