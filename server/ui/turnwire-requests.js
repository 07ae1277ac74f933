// @ts-check
/**
 * The requests of a conversation that are not answered yet: what to send again after a reconnect, and
 * which frame answers which promise.
 *
 * Every request is repeat-safe: the server knows its `request_id`, so one that is sent twice is done once.
 * No sockets and no clocks here.
 */

import { ERRORS } from "./turnwire-codes.js";
import { finishOf } from "./turnwire-state.js";

/** @typedef {import("./turnwire-frames.js").ServerFrame} ServerFrame */
/** @typedef {import("./turnwire-frames.js").RequestFrame} RequestFrame */
/** @typedef {import("./turnwire-frames.js").Snapshot} Snapshot */
/** @typedef {import("./turnwire-frames.js").Fault} Fault */

/**
 * How a completion ended, whether well or not; a run that failed has an `error`.
 *
 * @typedef {object} Completion
 * @property {string} requestId
 * @property {string | null} runId
 * @property {import("./turnwire-frames.js").FinishReason} finishReason
 * @property {import("./turnwire-frames.js").Usage | null} usage
 * @property {import("./turnwire-frames.js").Timing | null} timing
 * @property {Fault | null} error
 */

/** A request that was refused, or whose answer will not come. */
export class RequestError extends Error {
  /**
   * @param {string} code An error code of the server, or `disconnected`: the connection ended for good and
   *   whether the request was done is not known. Repeating it with the same `requestId` is safe.
   * @param {string} message
   * @param {string} requestId
   * @param {Record<string, unknown>} [details]
   */
  constructor(code, message, requestId, details = {}) {
    super(message || code);
    this.name = "RequestError";
    this.code = code;
    this.requestId = requestId;
    this.details = details;
    /** Whether the same request may work later. */
    this.retryable = code === "disconnected" || (ERRORS[code] ?? false);
  }
}

/**
 * - `sent`: on the present connection.
 * - `accepted`: the server has said that a completion waits or runs, so its end will come by itself.
 *
 * @typedef {object} Pending
 * @property {RequestFrame} frame
 * @property {boolean} sent
 * @property {"no" | "queued" | "started"} accepted
 * @property {Fault | null} error
 * @property {Promise<any>} promise
 * @property {(value: any) => void} resolve
 * @property {(error: RequestError) => void} reject
 */

export class Requests {
  /** In the order in which they were made. @type {Map<string, Pending>} */
  #pending = new Map();

  /** The frames that are not answered, oldest first. */
  get unanswered() {
    return Array.from(this.#pending.values(), (pending) => pending.frame);
  }

  /**
   * Take on a request; the same id again gives the same promise.
   *
   * @param {RequestFrame} frame
   * @returns {Promise<any>}
   */
  add(frame) {
    const known = this.#pending.get(frame.request_id);
    if (known) return known.promise;
    /** @type {(value: any) => void} */
    let resolve = () => {};
    /** @type {(error: RequestError) => void} */
    let reject = () => {};
    const promise = new Promise((done, failed) => {
      resolve = done;
      reject = failed;
    });
    this.#pending.set(frame.request_id, {
      frame,
      sent: false,
      accepted: "no",
      error: null,
      promise,
      resolve,
      reject,
    });
    return promise;
  }

  /** Forget what was sent: the connection is another one. */
  disconnected() {
    for (const pending of this.#pending.values()) pending.sent = false;
  }

  /** The frames to send now, oldest first; they count as sent. @returns {RequestFrame[]} */
  takeUnsent() {
    const frames = [];
    for (const pending of this.#pending.values()) {
      if (pending.sent || pending.accepted !== "no") continue;
      pending.sent = true;
      frames.push(pending.frame);
    }
    return frames;
  }

  /**
   * Settle what the frame answers.
   *
   * @param {ServerFrame} frame
   * @returns {number | null} Milliseconds after which an unsent request should be sent again.
   */
  settle(frame) {
    if (frame.type === "snapshot") {
      this.#reconcile(frame);
      return null;
    }
    if (frame.type === "stop_completion" && frame.stop_request_id) {
      const stop = this.#pending.get(frame.stop_request_id);
      if (stop?.frame.type === "stop_completion") this.#resolve(stop, frame);
    }
    const pending = this.#pending.get(frame.request_id ?? "");
    if (!pending) return null;
    if (frame.type === "error") return this.#failed(pending, frame);
    if (pending.frame.type.startsWith("canvas_")) {
      if (frame.type.startsWith("canvas_")) this.#resolve(pending, frame);
      return null;
    }
    switch (pending.frame.type) {
      case "append_message":
        if (frame.type === "message_appended") this.#resolve(pending, frame);
        break;
      case "confirm_tool":
        if (frame.type === "tool_confirmation_processed") this.#resolve(pending, frame);
        break;
      case "stop_completion":
        if (frame.type === "stop_completion") this.#resolve(pending, frame);
        break;
      case "request_completion":
        if (frame.type === "completion_queued") pending.accepted = "queued";
        if (frame.type === "completion_init") pending.accepted = "started";
        if (frame.type === "completion_done")
          this.#complete(pending, frame.run_id, frame.finish_reason, frame.usage, frame.timing);
        break;
    }
    return null;
  }

  /**
   * Give up on everything: the connection ended and nobody will try again.
   *
   * @param {string} message
   */
  abandon(message) {
    for (const pending of Array.from(this.#pending.values()))
      this.#reject(pending, new RequestError("disconnected", message, pending.frame.request_id));
  }

  /**
   * Give up on one request that cannot be sent.
   *
   * @param {string} requestId
   * @param {string} code
   * @param {string} message
   */
  refuse(requestId, code, message) {
    const pending = this.#pending.get(requestId);
    if (pending) this.#reject(pending, new RequestError(code, message, requestId));
  }

  /**
   * @param {Pending} pending
   * @param {import("./turnwire-frames.js").ErrorFrame} frame
   * @returns {number | null}
   */
  #failed(pending, frame) {
    if (frame.seq !== undefined) {
      // It ends a run or a queued request; `completion_done` follows.
      pending.error = { code: frame.code, message: frame.message };
      return null;
    }
    if (frame.code === "draining") return null; // asked again after the reconnect
    if (frame.code === "rate_limited") {
      pending.sent = false;
      return frame.retry_after_ms ?? 1000;
    }
    if (frame.code === "nothing_to_stop") this.#resolve(pending, null);
    else
      this.#reject(
        pending,
        new RequestError(frame.code, frame.message, pending.frame.request_id, frame.details),
      );
    return null;
  }

  /**
   * Compare with a state that stands for frames which were missed.
   *
   * @param {Snapshot} snapshot
   */
  #reconcile(snapshot) {
    for (const pending of Array.from(this.#pending.values())) {
      if (pending.frame.type !== "request_completion") continue;
      const id = pending.frame.request_id;
      const last = snapshot.last_run;
      if (snapshot.running?.request_id === id) pending.accepted = "started";
      else if (snapshot.queued?.includes(id)) pending.accepted = "queued";
      else if (last?.request_id === id) {
        pending.error = last.error;
        this.#complete(pending, last.run_id, finishOf(last), null, null);
      } else if (pending.accepted === "started") {
        const text = "The run ended while the connection was away.";
        this.#reject(pending, new RequestError("outcome_unknown", text, id));
      } else pending.accepted = "no"; // it never arrived, or a restart lost the queue
    }
  }

  /**
   * @param {Pending} pending
   * @param {string | null} runId
   * @param {Completion["finishReason"]} finishReason
   * @param {Completion["usage"]} usage
   * @param {Completion["timing"]} timing
   */
  #complete(pending, runId, finishReason, usage, timing) {
    /** @type {Completion} */
    const completion = {
      requestId: pending.frame.request_id,
      runId,
      finishReason,
      usage,
      timing,
      error: pending.error,
    };
    this.#resolve(pending, completion);
  }

  /** @param {Pending} pending @param {unknown} value */
  #resolve(pending, value) {
    this.#pending.delete(pending.frame.request_id);
    pending.resolve(value);
  }

  /** @param {Pending} pending @param {RequestError} error */
  #reject(pending, error) {
    this.#pending.delete(pending.frame.request_id);
    pending.reject(error);
  }
}
