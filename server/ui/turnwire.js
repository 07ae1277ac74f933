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

import { Channel } from "./turnwire-channel.js";
import { newUlid } from "./turnwire-identity.js";
import { EMPTY, reduce } from "./turnwire-state.js";

export { CLOSES, ERRORS, adviceFor, backOffMs } from "./turnwire-codes.js";
export { isUlid, newUlid, tabClientId } from "./turnwire-identity.js";
export { RequestError } from "./turnwire-requests.js";
export { EMPTY, reduce } from "./turnwire-state.js";

/** @typedef {import("./turnwire-frames.js").ServerFrame} ServerFrame */
/** @typedef {import("./turnwire-frames.js").MessageAppended} MessageAppended */
/** @typedef {import("./turnwire-frames.js").CompletionStopped} CompletionStopped */
/** @typedef {import("./turnwire-frames.js").ToolConfirmationProcessed} ToolConfirmationProcessed */
/** @typedef {import("./turnwire-requests.js").Completion} Completion */
/** @typedef {import("./turnwire-state.js").View} View */
/** @typedef {import("./turnwire-state.js").Message} Message */
/** @typedef {import("./turnwire-link.js").Status} Status */
/** @typedef {import("./turnwire-link.js").Socket} Socket */

/** @typedef {import("./turnwire-channel.js").Options} Options */

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

/**
 * One conversation and the connection to it, which it keeps until it is closed.
 *
 * @extends {Channel<View>}
 */
export class Conversation extends Channel {
  /**
   * @param {string} url
   * @param {Options} [options]
   */
  constructor(url, options) {
    super(url, { empty: EMPTY, reduce }, options);
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
  stop({ targetRequestId = this.view.running?.requestId, scope, requestId = newUlid() } = {}) {
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
