// @ts-check
/**
 * What one holds of a resource of the server: its state, kept in step over lost connections, and requests to it.
 *
 * It knows positions (`epoch`, `seq`) and requests that are not answered; what frames mean is told by whoever makes it.
 */

import { newUlid, tabClientId } from "./turnwire-identity.js";
import { Link } from "./turnwire-link.js";
import { Requests } from "./turnwire-requests.js";

/** @typedef {import("./turnwire-frames.js").ServerFrame} ServerFrame */
/** @typedef {import("./turnwire-frames.js").Connected} Connected */
/** @typedef {import("./turnwire-frames.js").RequestFrame} RequestFrame */
/** @typedef {import("./turnwire-link.js").Status} Status */

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
 * The state of a resource and the connection to it, which it keeps until {@link Channel.close}.
 *
 * @template V What a person should see, made from frames by `reduce`.
 */
export class Channel {
  #url;
  #clientId;
  #ackEveryMs;
  #link;
  #requests = new Requests();
  #listeners = new Listeners();
  #reduce;
  /** @type {V} */
  #view;

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
   * @param {{empty: V, reduce: (view: V, frame: ServerFrame) => V}} state
   * @param {Options} [options]
   */
  constructor(url, { empty, reduce }, options = {}) {
    this.#view = empty;
    this.#reduce = reduce;
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
   * @param {(view: V, status: Status) => void} listener
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

  /** Connect in place of whoever holds the resource. */
  takeOver() {
    this.#link.open({ takeOver: true });
  }

  /** Leave. What is not answered is rejected; the view stays. */
  close() {
    this.#link.close();
    this.#requests.abandon("It was closed here.");
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
   * Come back if whoever holds the resource has left. It never takes it from anybody, and changes the
   * status only when it succeeds.
   */
  probe() {
    // As somebody else, so that a holder of the same id (a copied tab) is asked too, not replaced.
    if (this.status.code === SUPERSEDED) this.#clientId = newUlid();
    this.#link.probe();
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

  /** Tell the listeners, for something beside the view changed that they show. */
  touch() {
    this.#changed();
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
    this.#view = this.#reduce(this.#view, frame);
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
