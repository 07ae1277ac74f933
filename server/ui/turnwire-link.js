// @ts-check
/**
 * One connection at a time, and when to make the next: back-off, close codes, signs of life.
 *
 * It knows the frames that concern the connection itself (`connected`, `draining`, a refusal); positions,
 * requests and state are its owner's.
 */

import { CLOSE_TEXTS, adviceFor, backOffMs } from "./turnwire-codes.js";

/** @typedef {import("./turnwire-frames.js").ServerFrame} ServerFrame */
/** @typedef {import("./turnwire-frames.js").ErrorFrame} ErrorFrame */

/**
 * - `connecting`: a connection is being made.
 * - `online`: all that was missed is here, frames come live.
 * - `waiting`: the connection was lost; the next attempt is at `retryAt`.
 * - `busy`: another connection holds the conversation; `retry()` or `takeOver()`.
 * - `stopped`: ended for a reason that a retry alone does not change; `retry()` tries nevertheless.
 * - `closed`: `close()` was called, or `open()` not yet.
 *
 * @typedef {object} Status
 * @property {"connecting" | "online" | "waiting" | "busy" | "stopped" | "closed"} phase
 * @property {number | null} code The close code that led here.
 * @property {string} reason For people; may be empty.
 * @property {number | null} retryAt Milliseconds since the epoch.
 * @property {number} attempt Failed attempts in a row.
 */

/**
 * What a WebSocket must have: the browser's, Node's and that of the `ws` package do.
 *
 * @typedef {object} Socket
 * @property {(data: string) => void} send
 * @property {(code?: number, reason?: string) => void} close
 * @property {(() => void)=} terminate
 * @property {((event: any) => void) | null} onmessage
 * @property {((event: any) => void) | null} onclose
 * @property {((event: any) => void) | null} onerror
 */

/**
 * @typedef {object} LinkOptions
 * @property {(url: string) => Socket} [createSocket] `new WebSocket(url, "turnwire.v1")` by default.
 * @property {() => Promise<string | null>} [ticket] Gets a fresh single-use ticket for every connection, or
 *   null where none is needed. An error with `code` `unauthenticated` stops; after any other one it is
 *   tried again.
 * @property {number} [baseMs] Bound of the first wait; it doubles with each failure. 250 by default.
 * @property {number} [capMs] Largest bound, 15 s by default.
 * @property {number} [connectTimeoutMs] For a connection to be admitted, 10 s by default.
 * @property {number} [answerTimeoutMs] For a sign of life after a ping, 4 s by default; what was sent and may
 *   still be on its way up gets more.
 */

/**
 * @typedef {object} Owner
 * @property {(query: Record<string, string>) => string} address The URL, with its position and the query.
 * @property {(frame: ServerFrame) => void} received Frames of an admitted connection.
 * @property {() => void} lost The connection is gone.
 * @property {(reason: string) => void} gaveUp No further attempt will be made.
 * @property {() => void} changed The status is another one.
 */

const DEFAULTS = { baseMs: 250, capMs: 15_000, connectTimeoutMs: 10_000, answerTimeoutMs: 4000 };
const HEARTBEAT_MS = 20_000;
/** A connection that lived so long was no failure, even if nothing was said on it. */
const STABLE_MS = 5000;
/** After something was sent it may be silent for so long before it is asked whether it lives. */
const SILENT_MS = 1500;
/** For a sign of life when the system says that there is no network: it may be wrong, of this machine's own
 * server for instance. */
const DOUBTED_MS = 2000;
/** As slow as an upload may be. */
const BYTES_PER_MS = 20;
/** What a lost connection without a close frame is called. */
const ABNORMAL = 1006;
const UNAUTHENTICATED = 4401;
const SUPERSEDED = 4010;

export class Link {
  timers = new Timers();
  #owner;
  #options;
  /** @type {Status} */
  #status = { phase: "closed", code: null, reason: "", retryAt: null, attempt: 0 };
  /** @type {Socket | null} */
  #socket = null;
  /** Numbers the attempts: what belongs to an older one is ignored. */
  #dials = 0;
  #takeOver = false;
  #admitted = false;
  /** Whether this attempt only looks if the place is free, and shows nothing until it is. */
  #probing = false;
  /** Why the server will not admit this connection. @type {ErrorFrame | null} */
  #refusal = null;
  #drainMs = 0;
  #heartbeatMs = HEARTBEAT_MS;
  #heardAt = 0;
  /** @type {number | null} */
  #pingedAt = null;
  /** When the present ping is given up, milliseconds since the epoch. */
  #pingUntil = 0;
  /** Sent since something was heard. */
  #sentBytes = 0;

  /** @param {Owner} owner @param {LinkOptions} options */
  constructor(owner, options) {
    this.#owner = owner;
    this.#options = { ...DEFAULTS, ...options };
  }

  get status() {
    return this.#status;
  }

  /** Connect now, unless connected or about to be. @param {{takeOver?: boolean}} [options] */
  open({ takeOver = false } = {}) {
    const { phase } = this.#status;
    if (phase === "online" || (phase === "connecting" && !takeOver)) return;
    this.#takeOver ||= takeOver;
    void this.#dial();
  }

  close() {
    this.#drop(1000);
    this.#set({ phase: "closed", code: null, reason: "", retryAt: null, attempt: 0 });
  }

  /** Something changed (a network, a visible page): find out at once whether the connection is alive. */
  wake() {
    if (this.#status.phase === "waiting") void this.#dial();
    else if (this.#admitted) this.#ping();
  }

  /** The system says that the network is gone: believe it if the connection does not show otherwise, soon. */
  doubt() {
    if (this.#admitted) this.#ping(DOUBTED_MS);
  }

  /** Connect if nobody else holds the place any more; until then the status stays as it is. */
  probe() {
    const { phase, code } = this.#status;
    const away = phase === "busy" || (phase === "stopped" && code === SUPERSEDED);
    if (away && !this.#probing) void this.#dial(true);
  }

  /** @param {object} frame */
  send(frame) {
    const text = JSON.stringify(frame);
    this.#sentBytes += text.length;
    this.#socket?.send(text);
  }

  /** Something was sent that is answered at once: a silence means that the connection is dead. */
  expect() {
    if (this.timers.has("answer")) return;
    const sentAt = Date.now();
    this.timers.set("answer", SILENT_MS, () => {
      if (this.#admitted && this.#heardAt < sentAt) this.#ping();
    });
  }

  /** The owner has all that it missed. */
  ready() {
    if (this.#status.phase === "connecting")
      this.#set({ ...this.#status, phase: "online", code: null, reason: "" });
  }

  /** The connection has proved itself: the next failure is a first one. */
  proved() {
    if (this.#status.attempt > 0) this.#status = { ...this.#status, attempt: 0 };
  }

  /** Give this connection up and make another. @param {string} reason */
  fail(reason) {
    this.#lost(ABNORMAL, reason);
  }

  async #dial(probing = false) {
    this.#drop();
    const dial = this.#dials;
    this.#probing = probing;
    if (!probing) this.#set({ ...this.#status, phase: "connecting", retryAt: null });
    this.timers.set("connect", this.#options.connectTimeoutMs, () => this.fail("The server does not answer."));
    try {
      const ticket = await this.#options.ticket?.();
      if (dial !== this.#dials) return;
      /** @type {Record<string, string>} */
      const query = {};
      if (this.#takeOver) query.takeover = "true";
      if (ticket) query.ticket = ticket;
      this.#attach((this.#options.createSocket ?? openWebSocket)(this.#owner.address(query)));
    } catch (error) {
      if (dial !== this.#dials) return;
      const { code, message } = /** @type {{code?: unknown, message?: string}} */ (error);
      if (code === "unauthenticated") this.#refusedSignIn(message);
      else this.#lost(ABNORMAL, message);
    }
  }

  /** @param {Socket} socket */
  #attach(socket) {
    this.#socket = socket;
    socket.onmessage = (event) => this.#receive(event.data);
    socket.onclose = (event) => this.#lost(event.code, event.reason);
    socket.onerror = () => {}; // a close follows
  }

  /**
   * Let go of the connection: nothing that it still says is heard.
   *
   * @param {number} [code]
   */
  #drop(code) {
    const socket = this.#socket;
    this.#dials += 1;
    this.#socket = null;
    this.#admitted = this.#probing = false;
    this.#refusal = null;
    this.#pingedAt = null;
    this.#sentBytes = 0;
    this.timers.clear();
    this.#owner.lost();
    if (!socket) return;
    socket.onmessage = socket.onclose = null;
    // A browser waits for a dead peer's close frame; the next connection does not.
    if (code === undefined && socket.terminate) socket.terminate();
    else socket.close(code);
  }

  /** Nobody is let in with what there is: only the person can help. @param {string} [reason] */
  #refusedSignIn(reason) {
    const text = reason || CLOSE_TEXTS[UNAUTHENTICATED];
    this.#drop();
    this.#set({ phase: "stopped", code: UNAUTHENTICATED, reason: text, retryAt: null, attempt: 0 });
    this.#owner.gaveUp(text);
  }

  /**
   * The connection ended: decide what comes next.
   *
   * @param {number} code
   * @param {string} [reason]
   */
  #lost(code, reason = "") {
    const attempt = this.#status.attempt;
    const floorMs = Math.max(this.#drainMs, this.#refusal?.retry_after_ms ?? 0);
    const text = CLOSE_TEXTS[code] ?? this.#refusal?.message ?? reason;
    const probing = this.#probing;
    this.#drainMs = 0;
    this.#drop();
    let advice = adviceFor(code);
    if (probing && advice !== "stop" && advice !== "sign-in") return; // not free yet
    // An expired ticket or token: a fresh one may do.
    if (advice === "sign-in" && this.#options.ticket && attempt === 0) advice = "back-off";
    if (advice === "ask") {
      this.#takeOver = false;
      this.#set({ phase: "busy", code, reason: text, retryAt: null, attempt: 0 });
    } else if (advice === "stop" || advice === "sign-in") {
      this.#set({ phase: "stopped", code, reason: text, retryAt: null, attempt: 0 });
      this.#owner.gaveUp(text);
    } else {
      const atOnce = advice === "at-once" && attempt === 0;
      const waitMs = atOnce ? 0 : floorMs + backOffMs(attempt, this.#options);
      const retryAt = Date.now() + waitMs;
      this.#set({ phase: "waiting", code, reason: text, retryAt, attempt: attempt + 1 });
      this.timers.set("connect", waitMs, () => void this.#dial());
    }
  }

  /** @param {unknown} data */
  #receive(data) {
    this.#heardAt = Date.now();
    this.#pingedAt = null;
    this.#sentBytes = 0;
    const frame = parse(data);
    if (!frame) return;
    if (frame.type === "connected") this.#admit(frame);
    else if (!this.#admitted) {
      if (frame.type === "error") this.#refusal = frame;
      return;
    }
    if (frame.type === "draining") this.#drainMs = frame.reconnect_after_ms;
    this.#owner.received(frame);
  }

  /** @param {import("./turnwire-frames.js").Connected} frame */
  #admit(frame) {
    this.#admitted = true;
    this.#takeOver = false;
    if (this.#probing) this.#set({ ...this.#status, phase: "connecting", retryAt: null });
    this.#probing = false;
    this.#heartbeatMs = frame.heartbeat_ms || HEARTBEAT_MS;
    this.timers.drop("connect");
    this.timers.set("proved", STABLE_MS, () => this.proved());
    this.timers.set("pulse", this.#heartbeatMs, () => this.#pulse());
  }

  #pulse() {
    const idleMs = Date.now() - this.#heardAt;
    if (idleMs >= this.#heartbeatMs) this.#ping();
    else this.timers.set("pulse", this.#heartbeatMs - idleMs, () => this.#pulse());
  }

  /** Ask for a sign of life; one that is asked for already may only be wanted sooner. */
  #ping(limitMs = this.#options.answerTimeoutMs) {
    const now = Date.now();
    const untilMs = limitMs + this.#sentBytes / BYTES_PER_MS;
    if (this.#pingedAt !== null && this.#pingUntil <= now + untilMs) return;
    if (this.#pingedAt === null) this.send({ type: "ping", t: now });
    this.#pingedAt ??= now;
    this.#pingUntil = now + untilMs;
    this.timers.set("pulse", untilMs, () => {
      if (this.#pingedAt === null) this.#pulse();
      else this.fail("The network does not answer.");
    });
  }

  /** @param {Status} status */
  #set(status) {
    this.#status = status;
    this.#owner.changed();
  }
}

/** Named timers, one of each name; a new one takes the place of the old one. */
export class Timers {
  /** @type {Map<string, ReturnType<typeof setTimeout>>} */
  #running = new Map();

  /** @param {string} name @param {number} ms @param {() => void} action */
  set(name, ms, action) {
    this.drop(name);
    const timer = setTimeout(() => {
      this.#running.delete(name);
      action();
    }, ms);
    this.#running.set(name, timer);
  }

  /** @param {string} name */
  has(name) {
    return this.#running.has(name);
  }

  /** @param {string} name */
  drop(name) {
    clearTimeout(this.#running.get(name));
    this.#running.delete(name);
  }

  clear() {
    for (const name of Array.from(this.#running.keys())) this.drop(name);
  }
}

/** @param {string} url @returns {Socket} */
function openWebSocket(url) {
  return new WebSocket(url, "turnwire.v1");
}

/**
 * @param {unknown} data
 * @returns {ServerFrame | null} Null for what is no frame; a type that nobody knows is one.
 */
function parse(data) {
  if (typeof data !== "string") return null;
  try {
    const frame = JSON.parse(data);
    return typeof frame?.type === "string" ? frame : null;
  } catch {
    return null;
  }
}
