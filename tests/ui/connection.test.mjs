// The client's connection: what it does when things end, against a server played by the test.

import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";

import { CLOSES, Conversation, RequestError } from "../../server/ui/turnwire.js";
import { FakeSockets, answer, connected, snapshot, stored } from "./fake_socket.mjs";

const URL = "ws://localhost/ws/conversations/01J00000000000000000000000";
let sockets;
let conversation;

beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  mock.method(Math, "random", () => 1);
  sockets = new FakeSockets();
});

afterEach(() => {
  conversation.close();
  mock.reset();
  mock.timers.reset();
});

/** Let promises run that are settled already. */
const turn = () => new Promise(setImmediate);

async function open(options = {}) {
  conversation = new Conversation(URL, { createSocket: sockets.create, clientId: "tab", ...options });
  conversation.open();
  await turn();
}

async function pass(ms) {
  mock.timers.tick(ms);
  await turn();
}

test("CN6 it begins with a snapshot and comes back with its exact position", async () => {
  await open();
  assert.deepEqual(sockets.last.query, { client_id: "tab", resume: "snapshot" });
  const state = snapshot({ as_of_seq: 4, messages: [stored(0, "user", "hi")] });
  sockets.last.say(connected({ resume: "snapshot", seq: 4, from_seq: 5 }));
  assert.equal(conversation.status.phase, "connecting");
  sockets.last.say(state);
  assert.equal(conversation.status.phase, "online");
  sockets.last.say(...answer("r", ["a", "b"], { seq: 5 }).slice(0, 2));
  sockets.last.end(1006);
  assert.equal(conversation.status.phase, "waiting");
  await pass(250);
  assert.deepEqual(sockets.last.query, { client_id: "tab", epoch: "E1", last_seq: "6" });
});

test("CN6 replayed frames go on where the text ended, none doubled, none lost", async () => {
  await open();
  const frames = answer("r", ["a", "b", "c"]);
  sockets.last.say(connected(), ...frames.slice(0, 2));
  for (let cut = 2; cut < frames.length; cut += 1) {
    sockets.last.end(1006);
    await pass(250);
    sockets.last.say(connected({ resume: "replayed", from_seq: cut + 1, seq: cut + 1 }), frames[cut]);
    assert.equal(conversation.status.phase, "online");
  }
  assert.equal(conversation.view.messages[0].content, "abc");
  assert.equal(conversation.view.running, null);
});

test("CN6 a frame that came already is not applied again", async () => {
  await open();
  const frames = answer("r", ["a", "b"]);
  sockets.last.say(connected(), ...frames.slice(0, 3), frames[1], frames[2]);
  assert.equal(conversation.view.messages[0].content, "ab");
  assert.equal(sockets.made.length, 1);
});

test("CN6 a gap makes it ask for the state", async () => {
  await open();
  const frames = answer("r", ["a", "b"]);
  sockets.last.say(connected(), frames[0], frames[2]);
  assert.equal(conversation.status.phase, "waiting");
  assert.ok(sockets.last.closedByClient);
  await pass(250);
  assert.equal(sockets.last.query.resume, "snapshot");
  assert.equal(sockets.last.query.last_seq, undefined);
});

for (const [name, wrong] of [
  ["another epoch", { epoch: "E2", from_seq: 2 }],
  ["another place", { from_seq: 1 }],
])
  test(`CN6 a replay from ${name} makes it ask for the state`, async () => {
    await open();
    sockets.last.say(connected(), answer("r", ["a"])[0]);
    sockets.last.end(1006);
    await pass(250);
    sockets.last.say(connected({ resume: "replayed", seq: 1, ...wrong }));
    await pass(500);
    assert.equal(sockets.last.query.resume, "snapshot");
  });

test("CN6 what was forgotten comes as a snapshot of a new epoch", async () => {
  await open();
  sockets.last.say(connected(), ...answer("r", ["a"]).slice(0, 2));
  sockets.last.end(1006);
  await pass(250);
  sockets.last.say(
    connected({ resume: "snapshot", epoch: "E2", seq: 9, from_seq: 10 }),
    snapshot({ as_of_seq: 9, messages: [stored(0, "assistant", "all of it")] }),
  );
  assert.deepEqual(conversation.position, { epoch: "E2", lastSeq: 9 });
  assert.deepEqual(
    conversation.view.messages.map((message) => message.content),
    ["all of it"],
  );
});

test("back-off doubles its bound to a limit and starts anew once frames come", async () => {
  await open({ baseMs: 100, capMs: 400 });
  const waits = [];
  for (let at = 0; at < 5; at += 1) {
    const began = Date.now();
    sockets.last.end(1006);
    waits.push(conversation.status.retryAt - began);
    await pass(waits.at(-1));
  }
  assert.deepEqual(waits, [100, 200, 400, 400, 400]);
  sockets.last.say(connected(), answer("r", ["a"])[0]);
  sockets.last.end(1006);
  assert.equal(conversation.status.retryAt - Date.now(), 100);
});

test("back-off is fully jittered", async () => {
  mock.method(Math, "random", () => 0.25);
  await open({ baseMs: 100 });
  sockets.last.end(1006);
  assert.equal(conversation.status.retryAt - Date.now(), 25);
});

const OUTCOME = {
  stop: "stopped",
  "sign-in": "stopped",
  ask: "busy",
  "back-off": "waiting",
  "at-once": "waiting",
};
for (const [code, advice] of [...Object.entries(CLOSES), ["1005", "back-off"], ["1006", "back-off"]])
  test(`close ${code} means ${advice}`, async () => {
    await open();
    sockets.last.say(connected());
    sockets.last.end(Number(code));
    assert.equal(conversation.status.phase, OUTCOME[advice]);
    assert.equal(conversation.status.code, Number(code));
    if (advice === "at-once") assert.equal(conversation.status.retryAt, Date.now());
    await pass(60_000);
    assert.equal(sockets.made.length, OUTCOME[advice] === "waiting" ? 2 : 1);
    conversation.retry();
    await turn();
    assert.equal(conversation.status.phase, "connecting");
  });

test("CN10 a draining server is left alone for as long as it says", async () => {
  await open({ baseMs: 100 });
  sockets.last.say(connected(), { type: "draining", reconnect_after_ms: 3000 });
  sockets.last.end(1012);
  assert.equal(conversation.status.retryAt - Date.now(), 3100);
});

test("CN1 a busy conversation is told to the person, who may take over", async () => {
  await open();
  sockets.last.say({ type: "error", code: "resource_busy", message: "held", retryable: true, retry_after_ms: 1000 });
  sockets.last.end(4009);
  assert.equal(conversation.status.phase, "busy");
  const question = conversation.append("hello");
  conversation.takeOver();
  await turn();
  assert.equal(sockets.last.query.takeover, "true");
  sockets.last.say(connected());
  const [sent] = sockets.last.sentOf("append_message");
  sockets.last.say({ type: "message_appended", seq: 1, request_id: sent.request_id, message_id: "M0", sequence: 0, role: "user", content: "hello" });
  assert.equal((await question).message_id, "M0");
  sockets.last.end(1006);
  await pass(250);
  assert.equal(sockets.last.query.takeover, undefined, "only once");
});

test("ST4 what was not answered is asked again, with the same id, after what was missed", async () => {
  await open();
  sockets.last.say(connected());
  const first = conversation.append("one", { requestId: "a1" });
  const second = conversation.append("two", { requestId: "a2" });
  const asked = sockets.last.sentOf("append_message");
  assert.deepEqual(asked[0], { type: "append_message", request_id: "a1", role: "user", content: "one" });
  sockets.last.end(1006);
  await pass(250);
  sockets.last.say(connected({ resume: "replayed", from_seq: 1, seq: 1, replayed: 1 }));
  assert.deepEqual(sockets.last.sent, [], "the answer may be among what was missed");
  sockets.last.say({ type: "message_appended", seq: 1, request_id: "a1", message_id: "M0", sequence: 0, role: "user", content: "one" });
  await first;
  assert.deepEqual(sockets.last.sentOf("append_message"), [asked[1]]);
  sockets.last.say({ type: "message_appended", repeated: true, request_id: "a2", message_id: "M1", sequence: 1, role: "user", content: "two" });
  assert.equal((await second).repeated, true);
  assert.deepEqual(
    conversation.view.messages.map((message) => message.content),
    ["one", "two"],
  );
});

test("ST4 a completion that is known to run is not asked for again", async () => {
  await open();
  sockets.last.say(connected());
  const done = conversation.complete({ requestId: "r" });
  const frames = answer("r", ["a", "b"]);
  sockets.last.say(...frames.slice(0, 2));
  sockets.last.end(1006);
  await pass(250);
  sockets.last.say(connected({ resume: "replayed", from_seq: 3, seq: 2 }));
  assert.deepEqual(sockets.last.sent, []);
  sockets.last.say(...frames.slice(2));
  assert.equal((await done).finishReason, "stop");
});

test("ST7 a completion that a crash interrupted is told by the snapshot, not run again", async () => {
  await open();
  sockets.last.say(connected());
  const done = conversation.complete({ requestId: "r" });
  sockets.last.say(answer("r", ["a"])[0]);
  sockets.last.end(1006);
  await pass(250);
  const last_run = { run_id: "run-1", request_id: "r", status: "interrupted", finish_reason: null, error: null };
  sockets.last.say(connected({ resume: "snapshot", epoch: "E2" }), snapshot({ last_run }));
  assert.equal((await done).finishReason, "interrupted");
  assert.deepEqual(sockets.last.sent, []);
});

test("ST5 a queued completion that a restart lost is asked for again", async () => {
  await open();
  sockets.last.say(connected());
  const done = conversation.complete({ requestId: "q" });
  sockets.last.say({ type: "completion_queued", seq: 1, request_id: "q", position: 1 });
  sockets.last.end(1006);
  await pass(250);
  sockets.last.say(connected({ resume: "snapshot", epoch: "E2" }), snapshot());
  assert.equal(sockets.last.sentOf("request_completion").length, 1);
  sockets.last.say(...answer("q", ["a"]));
  assert.equal((await done).finishReason, "stop");
});

test("ST6 a failed run resolves with its error; a refused one rejects", async () => {
  await open();
  sockets.last.say(connected());
  const failed = conversation.complete({ requestId: "r1" });
  const base = { request_id: "r1", run_id: "run-1" };
  sockets.last.say(
    { type: "completion_init", seq: 1, ...base, model: "m" },
    { type: "error", seq: 2, ...base, code: "llm_timeout", message: "silent", retryable: true },
    { type: "completion_done", seq: 3, ...base, finish_reason: "error" },
  );
  assert.deepEqual((await failed).error, { code: "llm_timeout", message: "silent" });
  const refused = conversation.complete({ requestId: "r2", onBusy: "reject" });
  sockets.last.say({ type: "error", request_id: "r2", code: "completion_busy", message: "busy", retryable: true });
  await assert.rejects(refused, (error) => error instanceof RequestError && error.retryable);
});

test("ST3 a stop names what it stops, and nothing to stop is no failure", async () => {
  await open();
  sockets.last.say(connected());
  conversation.complete({ requestId: "r" }).catch(() => {});
  sockets.last.say(...answer("r", ["a"]).slice(0, 2));
  const stopped = conversation.stop({ requestId: "s" });
  assert.equal(sockets.last.sentOf("stop_completion")[0].target_request_id, "r");
  sockets.last.say({ type: "stop_completion", seq: 3, request_id: "r", run_id: "run-1", message_id: "A", sequence: 0, partial_text: "a", stop_request_id: "s" });
  assert.equal((await stopped).partial_text, "a");
  const late = conversation.stop({ requestId: "s2" });
  sockets.last.say({ type: "error", request_id: "s2", code: "nothing_to_stop", message: "", retryable: false });
  assert.equal(await late, null);
});

test("ER4 a request over the rate is sent again after the time that the server says", async () => {
  await open();
  sockets.last.say(connected());
  const question = conversation.append("x", { requestId: "a" });
  sockets.last.say({ type: "error", request_id: "a", code: "rate_limited", message: "", retryable: true, retry_after_ms: 300 });
  assert.equal(sockets.last.sentOf("append_message").length, 1);
  await pass(300);
  assert.equal(sockets.last.sentOf("append_message").length, 2);
  sockets.last.say({ type: "message_appended", seq: 1, request_id: "a", message_id: "M0", sequence: 0, role: "user", content: "x" });
  await question;
});

test("ER2 a message larger than the server takes is refused here", async () => {
  await open();
  sockets.last.say(connected({ limits: { max_frame_bytes: 1000 } }));
  await assert.rejects(conversation.append("é".repeat(600)), { code: "too_large" });
  assert.deepEqual(sockets.last.sent, []);
});

test("an end for good rejects what is not answered", async () => {
  await open();
  sockets.last.say(connected());
  const question = conversation.append("x");
  sockets.last.end(4404);
  await assert.rejects(question, { code: "disconnected" });
});

test("CN9 a network that died without a word is found by a ping", async () => {
  await open();
  sockets.last.say(connected());
  const dead = sockets.last;
  await pass(20_000);
  assert.equal(dead.sentOf("ping").length, 1);
  dead.say({ type: "pong", t: dead.sentOf("ping")[0].t });
  await pass(30_000);
  assert.equal(dead.sentOf("ping").length, 2);
  await pass(10_000);
  assert.ok(dead.closedByClient);
  await pass(250);
  assert.equal(sockets.made.length, 2);
  dead.say(answer("r", ["ghost"])[0]);
  assert.equal(conversation.view.running, null, "what the old connection still says is not heard");
});

test("a server that never admits is given up after a while", async () => {
  await open();
  await pass(10_000);
  assert.equal(conversation.status.phase, "waiting");
  assert.ok(sockets.last.closedByClient);
});

test("acks are few, and for what was applied", async () => {
  await open();
  sockets.last.say(connected(), ...answer("r", ["a", "b", "c"]));
  assert.deepEqual(sockets.last.sentOf("ack"), []);
  await pass(1000);
  assert.deepEqual(sockets.last.sentOf("ack"), [{ type: "ack", seq: 7 }]);
  await pass(5000);
  assert.equal(sockets.last.sentOf("ack").length, 1);
});

test("every connection has its own ticket, and an expired one is replaced once", async () => {
  let count = 0;
  await open({ ticket: async () => `t${(count += 1)}` });
  assert.equal(sockets.last.query.ticket, "t1");
  sockets.last.end(4401);
  await pass(250);
  assert.equal(sockets.last.query.ticket, "t2");
  sockets.last.end(4401);
  assert.equal(conversation.status.phase, "stopped");
});

test("without permission for a ticket it stops; without a server it goes on trying", async () => {
  const failures = [new Error("unreachable"), Object.assign(new Error("no"), { code: "unauthenticated" })];
  await open({ ticket: () => Promise.reject(failures.shift()) });
  assert.equal(conversation.status.phase, "waiting");
  await pass(250);
  assert.equal(conversation.status.phase, "stopped");
  assert.equal(conversation.status.code, 4401);
});

test("noise is ignored: binary, broken JSON, unknown types and fields", async () => {
  await open();
  sockets.last.say(connected({ new_field: 1 }));
  sockets.last.onmessage({ data: new ArrayBuffer(3) });
  sockets.last.onmessage({ data: "{" });
  sockets.last.onmessage({ data: "null" });
  sockets.last.say({ type: "from_the_future", seq: 1 }, { type: "other" });
  assert.deepEqual(conversation.position, { epoch: "E1", lastSeq: 1 });
  assert.equal(conversation.status.phase, "online");
});

test("CN9 what is sent and not answered tells a dead network within seconds", async () => {
  await open();
  sockets.last.say(connected());
  const dead = sockets.last;
  await pass(8000);
  void conversation.append("hello").catch(() => {});
  await pass(1500);
  assert.equal(dead.sentOf("ping").length, 1);
  await pass(4100);
  assert.ok(dead.closedByClient);
  assert.equal(conversation.status.phase, "waiting");
});

test("CN9 an answer in time keeps the connection, and so does a large message that is still going up", async () => {
  await open();
  sockets.last.say(connected());
  const alive = sockets.last;
  void conversation.append("hello").catch(() => {});
  alive.say({ type: "noise" });
  await pass(1500);
  assert.equal(alive.sentOf("ping").length, 0, "something came after it was sent");
  await pass(5000);
  void conversation.append("x".repeat(1_000_000)).catch(() => {});
  await pass(30_000);
  assert.ok(!alive.closedByClient);
  await pass(60_000);
  assert.ok(alive.closedByClient);
});

test("CN9 a network that the system says is gone is tried at once, and believed in if it answers", async () => {
  await open();
  sockets.last.say(connected());
  conversation.doubt();
  assert.equal(sockets.last.sentOf("ping").length, 1);
  sockets.last.say({ type: "pong", t: 0 });
  await pass(5000);
  assert.equal(conversation.status.phase, "online");
  conversation.doubt();
  await pass(2100);
  assert.equal(conversation.status.phase, "waiting");
});

test("CN1 a probe comes back when the place is free, and says nothing before", async () => {
  await open();
  sockets.last.end(4009);
  const phases = [];
  conversation.subscribe((_view, { phase }) => phases.push(phase));
  conversation.probe();
  await turn();
  assert.equal(sockets.last.query.takeover, undefined);
  sockets.last.end(4009);
  conversation.probe();
  await turn();
  sockets.last.end(1006);
  await pass(60_000);
  assert.equal(sockets.made.length, 3, "a probe that fails is not repeated by itself");
  assert.deepEqual(new Set(phases), new Set(["busy"]));
  conversation.probe();
  await turn();
  sockets.last.say(connected());
  assert.equal(conversation.status.phase, "online");
});

test("CN3 after it was superseded it comes back only as somebody else, who replaces nobody", async () => {
  await open();
  sockets.last.say(connected());
  sockets.last.end(4010);
  conversation.probe();
  await turn();
  assert.notEqual(sockets.last.query.client_id, "tab");
  assert.equal(sockets.last.query.takeover, undefined);
  sockets.last.end(4009);
  assert.deepEqual([conversation.status.phase, conversation.status.code], ["stopped", 4010]);
  conversation.takeOver();
  await turn();
  assert.equal(sockets.last.query.takeover, "true");
});

test("a token that is not accepted is told as such, without a second try", async () => {
  let asked = 0;
  const refused = Object.assign(new Error("Not accepted."), { code: "unauthenticated" });
  await open({ ticket: () => Promise.reject(((asked += 1), refused)) });
  assert.equal(conversation.status.reason, "Not accepted.");
  await pass(60_000);
  assert.equal(asked, 1);
});
