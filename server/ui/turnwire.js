// @ts-check
/**
 * A client for conversations of a Turnwire server, in browsers and in Node.
 *
 *     import { connect } from "./turnwire.js";
 *
 *     const conversation = connect("wss://example.org/ws/conversations/01J…");
 *     conversation.subscribe((view) => render(view));
 *     await conversation.append("Hello");
 *     const { finishReason } = await conversation.complete();
 *
 * It keeps the connection: after a drop it comes back with its exact position, so that no text is lost or
 * doubled, and sends again what was not answered, which the server does once.
 */

import { newUlid, tabClientId } from "./turnwire-identity.js";
import { Link } from "./turnwire-link.js";
import { Requests } from "./turnwire-requests.js";
import { EMPTY, reduce } from "./turnwire-state.js";

export { CLOSES, ERRORS, adviceFor, backOffMs } from "./turnwire-codes.js";
export { isUlid, newUlid, tabClientId } from "./turnwire-identity.js";
export { RequestError } from "./turnwire-requests.js";
export { EMPTY, reduce } from "./turnwire-state.js";

/** @typedef {import("./turnwire-frames.js").ServerFrame} ServerFrame */
/** @typedef {import("./turnwire-frames.js").Connected} Connected */
/** @typedef {import("./turnwire-frames.js").MessageAppended} MessageAppended */
/** @typedef {import("./turnwire-frames.js").CompletionStopped} CompletionStopped */
/** @typedef {import("./turnwire-frames.js").ToolConfirmationProcessed} ToolConfirmationProcessed */
/** @typedef {import("./turnwire-frames.js").RequestFrame} RequestFrame */
/** @typedef {import("./turnwire-requests.js").Completion} Completion */
/** @typedef {import("./turnwire-state.js").View} View */
/** @typedef {import("./turnwire-state.js").Message} Message */
/** @typedef {import("./turnwire-link.js").Status} Status */
/** @typedef {import("./turnwire-link.js").Socket} Socket */

/**
 * @typedef {object} ConversationOptions
 * @property {string} [clientId] Stable across reconnects; the tab's by default.
 * @property {number} [ackEveryMs] At most one `ack` in this time, 1 s by default.
 */

/** @typedef {ConversationOptions & import("./turnwire-link.js").LinkOptions} Options */

const ACK_EVERY_MS = 1000;
const MAX_FRAME_BYTES = 1_048_576;
const SUPERSEDED = 4010;

/**
 * Open a conversation.
 *
 * @param {string} url `ws://host/ws/conversations/{session_id}`.
 * @param {Options} [options]
 */
export function connect(url, options) {
  const conversation = new Conversation(url, options);
  conversation.open();
  return conversation;
}

/** One conversation and the connection to it, which it keeps until {@link Conversation.close}. */
export class Conversation {
  #url;
  #clientId;
  #ackEveryMs;
  #link;
  #requests = new Requests();
  #listeners = new Listeners();
  /** @type {View} */
  #view = EMPTY;

  // The position. The epoch is null when only a snapshot can tell where we are; `#nextEpoch` is that of
  // the snapshot that comes next. `#goal` is the last frame that was there when we connected.
  /** @type {string | null} */
  #epoch = null;
  /** @type {string | null} */
  #nextEpoch = null;
  #lastSeq = 0;
  #goal = 0;
  #acked = 0;
  #maxFrameBytes = MAX_FRAME_BYTES;

  /**
   * @param {string} url
   * @param {Options} [options]
   */
  constructor(url, options = {}) {
    this.#url = new URL(url);
    this.#clientId = options.clientId ?? tabClientId();
    this.#ackEveryMs = options.ackEveryMs ?? ACK_EVERY_MS;
    this.#link = new Link(
      {
        address: (query) => this.#address(query),
        received: (frame) => this.#received(frame),
        lost: () => this.#requests.disconnected(),
        gaveUp: (reason) => this.#requests.abandon(reason),
        changed: () => this.#changed(),
      },
      options,
    );
  }

  /** What a person should see now. */
  get view() {
    return this.#view;
  }

  /** How the connection is. */
  get status() {
    return this.#link.status;
  }

  /** Where to resume from; null when only a snapshot can tell. */
  get position() {
    return this.#epoch === null ? null : { epoch: this.#epoch, lastSeq: this.#lastSeq };
  }

  /** The requests that are not answered yet, oldest first. */
  get unanswered() {
    return this.#requests.unanswered;
  }

  /**
   * Be told of every change of the view or of the connection, beginning with the present state.
   *
   * @param {(view: View, status: Status) => void} listener
   * @returns {() => void} Ends it.
   */
  subscribe(listener) {
    const end = this.#listeners.add("change", () => listener(this.#view, this.status));
    listener(this.#view, this.status);
    return end;
  }

  /**
   * Be told of every frame, when the view has it already; or of errors that belong to no request.
   *
   * @param {"frame" | "fault"} event
   * @param {(frame: ServerFrame) => void} listener
   * @returns {() => void} Ends it.
   */
  on(event, listener) {
    return this.#listeners.add(event, listener);
  }

  /** Connect now, unless connected. */
  open() {
    this.#link.open();
  }

  /** Try again now, whatever was waited for. */
  retry() {
    this.#link.open();
  }

  /** Connect in place of whoever holds the conversation. */
  takeOver() {
    this.#link.open({ takeOver: true });
  }

  /** Leave. What is not answered is rejected; the view stays. */
  close() {
    this.#link.close();
    this.#requests.abandon("The conversation was closed.");
  }

  /** Call it when the network or the page's visibility changed: a dead connection is then found at once. */
  wake() {
    this.#link.wake();
  }

  /** Call it when the system says that the network is gone: it is found out within seconds whether it is. */
  doubt() {
    this.#link.doubt();
  }

  /**
   * Come back if whoever holds the conversation has left. It never takes it from anybody, and changes the
   * status only when it succeeds.
   */
  probe() {
    // As somebody else, so that a holder of the same id (a copied tab) is asked too, not replaced.
    if (this.status.code === SUPERSEDED) this.#clientId = newUlid();
    this.#link.probe();
  }

  /**
   * Put a message at the end. Messages come in the order of the calls if each is awaited.
   *
   * @param {string} content
   * @param {{role?: "user" | "system" | "tool", toolCallId?: string, metadata?: Record<string, unknown>,
   *   requestId?: string}} [options]
   * @returns {Promise<MessageAppended>} Rejects with a {@link RequestError}.
   */
  append(content, { role = "user", toolCallId, metadata, requestId = newUlid() } = {}) {
    const frame = { request_id: requestId, role, content, tool_call_id: toolCallId, metadata };
    return this.request(defined({ type: "append_message", ...frame }));
  }

  /**
   * Ask the model to go on.
   *
   * @param {{model?: string, reasoning?: boolean, onBusy?: "enqueue" | "reject" | "interrupt",
   *   onPending?: "reject" | "decline" | "run_decided", requestId?: string}} [options]
   * @returns {Promise<Completion>} Resolves at its end, however it ends; rejects when it was refused.
   */
  complete({ model, reasoning, onBusy, onPending, requestId = newUlid() } = {}) {
    const frame = { request_id: requestId, model, reasoning, on_busy: onBusy, on_pending: onPending };
    return this.request(defined({ type: "request_completion", ...frame }));
  }

  /**
   * Stop a completion: the given one, or the one that runs.
   *
   * @param {{targetRequestId?: string, scope?: "one" | "all", requestId?: string}} [options]
   * @returns {Promise<CompletionStopped | null>} Null when there was nothing to stop.
   */
  stop({ targetRequestId = this.#view.running?.requestId, scope, requestId = newUlid() } = {}) {
    const frame = { request_id: requestId, target_request_id: targetRequestId, scope };
    return this.request(defined({ type: "stop_completion", ...frame }));
  }

  /**
   * Decide a tool call that waits.
   *
   * @param {string} toolCallId
   * @param {"accept" | "reject"} decision
   * @param {{arguments?: string, reason?: string, requestId?: string}} [options]
   * @returns {Promise<ToolConfirmationProcessed>}
   */
  confirm(toolCallId, decision, { arguments: edited, reason, requestId = newUlid() } = {}) {
    const frame = { request_id: requestId, tool_call_id: toolCallId, decision, arguments: edited, reason };
    return this.request(defined({ type: "confirm_tool", ...frame }));
  }

  /**
   * Send any request; it is sent again after each reconnect until it is answered.
   *
   * @param {RequestFrame} frame
   * @returns {Promise<any>}
   */
  request(frame) {
    const promise = this.#requests.add(frame);
    this.#flush();
    this.#changed();
    return promise;
  }

  /** @param {Record<string, string>} query */
  #address(query) {
    const url = new URL(this.#url);
    const position = this.#epoch === null
      ? { resume: "snapshot" }
      : { epoch: this.#epoch, last_seq: String(this.#lastSeq) };
    for (const [name, value] of Object.entries({ client_id: this.#clientId, ...position, ...query }))
      url.searchParams.set(name, value);
    return url.href;
  }

  /** @param {ServerFrame} frame */
  #received(frame) {
    if (frame.type === "connected") this.#connected(frame);
    else if (frame.type === "snapshot") this.#snapshot(frame);
    else if (frame.seq === undefined) this.#apply(frame);
    else if (this.#epoch === null || frame.seq > this.#lastSeq + 1) this.#outOfStep();
    else if (frame.seq === this.#lastSeq + 1) {
      this.#lastSeq = frame.seq;
      this.#link.proved();
      this.#apply(frame);
      this.#acknowledgeSoon();
      this.#caughtUp();
    }
  }

  /** @param {Connected} frame */
  #connected(frame) {
    this.#goal = frame.seq;
    this.#maxFrameBytes = frame.limits?.max_frame_bytes ?? MAX_FRAME_BYTES;
    if (frame.resume === "snapshot") {
      this.#epoch = null;
      this.#nextEpoch = frame.epoch;
    } else if (frame.resume === "fresh") {
      this.#epoch = frame.epoch;
      this.#lastSeq = frame.from_seq - 1;
    } else if (frame.epoch !== this.#epoch || frame.from_seq !== this.#lastSeq + 1) {
      this.#outOfStep();
      return;
    }
    this.#acked = this.#lastSeq;
    this.#apply(frame);
    this.#caughtUp();
  }

  /** @param {import("./turnwire-frames.js").Snapshot} frame */
  #snapshot(frame) {
    if (this.#nextEpoch === null) {
      this.#outOfStep();
      return;
    }
    this.#epoch = this.#nextEpoch;
    this.#nextEpoch = null;
    this.#lastSeq = this.#acked = frame.as_of_seq;
    this.#apply(frame);
    this.#caughtUp();
  }

  /** What came does not go on from what was there: ask for the state instead. */
  #outOfStep() {
    this.#epoch = this.#nextEpoch = null;
    this.#link.fail("Out of step with the server.");
  }

  /** @param {ServerFrame} frame */
  #apply(frame) {
    this.#view = reduce(this.#view, frame);
    const againMs = this.#requests.settle(frame);
    if (againMs !== null) this.#link.timers.set("again", againMs, () => this.#flush());
    this.#listeners.tell("frame", frame);
    if (frame.type === "error" && frame.request_id === undefined) this.#listeners.tell("fault", frame);
    this.#changed();
  }

  /** Once all that was missed is here (an answer may be among it), ask again what is not answered. */
  #caughtUp() {
    if (this.#epoch === null || this.#lastSeq < this.#goal || this.status.phase !== "connecting") return;
    this.#link.ready();
    this.#flush();
  }

  #flush() {
    if (this.status.phase !== "online") return;
    for (const frame of this.#requests.takeUnsent()) {
      if (new TextEncoder().encode(JSON.stringify(frame)).length > this.#maxFrameBytes)
        this.#requests.refuse(frame.request_id, "too_large", "The message is too large.");
      else {
        this.#link.send(frame);
        this.#link.expect();
      }
    }
  }

  #acknowledgeSoon() {
    if (this.#link.timers.has("ack")) return;
    this.#link.timers.set("ack", this.#ackEveryMs, () => {
      if (this.#lastSeq === this.#acked) return;
      this.#acked = this.#lastSeq;
      this.#link.send({ type: "ack", seq: this.#acked });
    });
  }

  #changed() {
    this.#listeners.tell("change");
  }
}

/** Who wants to be told of what. One listener that throws does not keep the others from being told. */
class Listeners {
  /** @type {Map<string, Set<(frame: any) => void>>} */
  #known = new Map();

  /** @param {string} event @param {(frame: any) => void} listener @returns {() => void} */
  add(event, listener) {
    const listeners = this.#known.get(event) ?? new Set();
    this.#known.set(event, listeners.add(listener));
    return () => void listeners.delete(listener);
  }

  /** @param {string} event @param {unknown} [frame] */
  tell(event, frame) {
    for (const listener of Array.from(this.#known.get(event) ?? [])) {
      try {
        listener(frame);
      } catch (error) {
        console.error(error);
      }
    }
  }
}

/**
 * Without the fields that are undefined: the server refuses those that do not belong.
 *
 * @template {object} T
 * @param {T} frame
 * @returns {T}
 */
function defined(frame) {
  return /** @type {T} */ (Object.fromEntries(Object.entries(frame).filter(([, value]) => value !== undefined)));
}
