// A client of this protocol that shares no code with the project: plain `ws`, following protocol/SPEC.md.
//
// It converses; at random moments in mid-stream it destroys its socket (no close frame), comes back with its
// position, and in the end compares what it collected with what the server stored, byte for byte.
//
//     node converse.mjs --http URL --model NAME [--rounds 25] [--seed 1] [--most-drops 5]
//
// Prints one JSON object; exit code 1 when anything was lost, doubled or out of order.

import { createRequire } from "node:module";
import { parseArgs } from "node:util";

const modules = process.env.TURNWIRE_TEST_NODE_MODULES;
const WebSocket = createRequire(modules ? `${modules}/` : import.meta.url)("ws");

const { values: given } = parseArgs({
  options: {
    http: { type: "string" },
    model: { type: "string" },
    rounds: { type: "string", default: "25" },
    seed: { type: "string", default: "1" },
    "most-drops": { type: "string", default: "5" },
  },
});
const ROUND_MS = 60_000;
const random = generator(Number(given.seed));

/** Mulberry32: the same drops for the same seed. */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const between = (least, most) => least + Math.floor(random() * (most - least + 1));
const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const ulid = () => `01${Array.from({ length: 24 }, () => ALPHABET[between(0, 31)]).join("")}`;

/** One conversation over as many connections as it takes. */
class Round {
  constructor(index) {
    this.id = ulid();
    this.clientId = `foreign-${index}`;
    this.dropsLeft = between(1, Number(given["most-drops"]));
    this.drops = 0;
    this.connections = 0;
    this.frames = 0;
    this.replayed = 0;
    this.position = null;
    this.chunks = new Map();
    this.sentences = new Map();
    this.complete = new Map();
    this.problems = [];
    this.finish = null;
    this.asked = false;
  }

  run() {
    return new Promise((resolve) => {
      this.end = () => {
        clearTimeout(this.timer);
        this.end = () => {};
        const socket = this.socket;
        this.socket = null;
        socket?.terminate();
        resolve();
      };
      this.timer = setTimeout(() => this.fail(`not done after ${ROUND_MS} ms`), ROUND_MS);
      this.connect();
    });
  }

  fail(problem) {
    this.problems.push(problem);
    this.end();
  }

  connect() {
    const url = new URL(`/ws/conversations/${this.id}`, given.http.replace(/^http/, "ws"));
    url.searchParams.set("client_id", this.clientId);
    if (this.position) {
      url.searchParams.set("epoch", this.position.epoch);
      url.searchParams.set("last_seq", this.position.seq);
    }
    const socket = new WebSocket(url, "turnwire.v1");
    this.socket = socket;
    this.connections += 1;
    this.framesHere = 0;
    this.dropAt = this.dropsLeft > 0 ? between(1, 25) : Infinity;
    socket.on("message", (data, binary) => {
      if (binary) this.fail("a binary message");
      else if (this.socket === socket) this.receive(JSON.parse(data.toString("utf8")));
    });
    socket.on("close", (code) => {
      if (this.socket === socket) this.fail(`closed by the server: ${code}`);
    });
    socket.on("error", (error) => {
      if (this.socket === socket) this.fail(`socket error: ${error.message}`);
    });
  }

  receive(frame) {
    if (frame.type === "connected") this.connected(frame);
    else if (frame.seq !== undefined) this.sequenced(frame);
    else if (frame.type === "error") this.fail(`refused: ${frame.code} ${frame.message}`);
  }

  connected(frame) {
    if (this.position === null) {
      if (frame.resume !== "fresh") this.fail(`a new conversation is ${frame.resume}`);
      this.position = { epoch: frame.epoch, seq: frame.from_seq - 1 };
    } else if (frame.resume !== "replayed" || frame.epoch !== this.position.epoch)
      this.fail(`came back as ${frame.resume} of ${frame.epoch}`);
    else if (frame.from_seq !== this.position.seq + 1)
      this.fail(`goes on from ${frame.from_seq} after ${this.position.seq}`);
    this.replayed += frame.replayed;
    if (this.asked) return;
    this.asked = true;
    const content = `Round ${this.id}: what is 生活?`;
    this.say({ type: "append_message", request_id: "question", role: "user", content });
    this.say({ type: "request_completion", request_id: "answer", model: given.model });
  }

  say(frame) {
    this.socket.send(JSON.stringify(frame));
  }

  sequenced(frame) {
    if (frame.seq !== this.position.seq + 1)
      return this.fail(`seq ${frame.seq} after ${this.position.seq} (${frame.type})`);
    this.position.seq = frame.seq;
    this.frames += 1;
    this.framesHere += 1;
    const add = (map) => map.set(frame.message_id, (map.get(frame.message_id) ?? "") + frame.text);
    if (frame.type === "llm_text_chunk") add(this.chunks);
    else if (frame.type === "llm_text_sentence") add(this.sentences);
    else if (frame.type === "assistant_message_complete") this.complete.set(frame.message_id, frame.content);
    else if (frame.type === "error") this.fail(`the run failed: ${frame.code} ${frame.message}`);
    else if (frame.type === "completion_done") {
      this.finish = frame.finish_reason;
      return this.end();
    }
    if (this.framesHere >= this.dropAt) this.drop();
  }

  /** Go away as a network does: no close frame, half of the time with a reset, at once or a moment later. */
  drop() {
    this.dropsLeft -= 1;
    this.drops += 1;
    const socket = this.socket;
    this.socket = null; // what it still delivers was never received
    if (random() < 0.5) socket.terminate();
    else socket._socket.resetAndDestroy();
    setTimeout(() => this.connect(), random() < 0.5 ? 0 : between(1, 60));
  }

  async compare() {
    const answer = await fetch(`${given.http}/api/sessions/${this.id}/messages`);
    const body = await answer.json();
    const items = body?.data?.items ?? body?.data ?? [];
    const stored = new Map(items.filter((m) => m.role === "assistant").map((m) => [m.messageId ?? m.message_id, m.content]));
    if (this.finish !== "stop") this.problems.push(`finished as ${this.finish}`);
    if (stored.size === 0) this.problems.push("nothing is stored");
    for (const [name, map] of Object.entries({ chunks: this.chunks, sentences: this.sentences, complete: this.complete }))
      for (const id of new Set([...stored.keys(), ...map.keys()]))
        if (!same(map.get(id), stored.get(id)))
          this.problems.push(
            `${name} of ${id}: ${map.get(id)?.length} characters, stored ${stored.get(id)?.length}`,
          );
    this.characters = [...stored.values()].join("").length;
  }
}

/** Equal as bytes. */
function same(one, other) {
  return one !== undefined && other !== undefined && Buffer.from(one).equals(Buffer.from(other));
}

const summary = { rounds: 0, drops: 0, connections: 0, frames: 0, replayed: 0, characters: 0, problems: [] };
for (let index = 0; index < Number(given.rounds); index += 1) {
  const round = new Round(index);
  await round.run();
  await round.compare();
  summary.rounds += 1;
  for (const name of ["drops", "connections", "frames", "replayed", "characters"]) summary[name] += round[name];
  summary.problems.push(...round.problems.map((problem) => `round ${index} (${round.id}): ${problem}`));
}
console.log(JSON.stringify(summary));
process.exitCode = summary.problems.length > 0 ? 1 : 0;
