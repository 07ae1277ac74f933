// @ts-check
/**
 * What a client does about a close code or an error code. A test compares these tables with the
 * server's own (`protocol/codes.py`), so a code that is new there cannot be forgotten here.
 */

/**
 * - `stop`: do not reconnect by yourself.
 * - `ask`: tell the person, who may retry or take over.
 * - `sign-in`: fetch a new ticket, or ask the person to sign in.
 * - `at-once`: reconnect without waiting.
 * - `back-off`: reconnect, waiting longer after each failure.
 * @typedef {"stop" | "ask" | "sign-in" | "at-once" | "back-off"} Advice
 */

/** @type {Readonly<Record<number, Advice>>} */
export const CLOSES = Object.freeze({
  1000: "stop",
  1001: "back-off",
  1003: "stop",
  1009: "stop",
  1011: "back-off",
  1012: "back-off",
  1013: "back-off",
  4008: "at-once",
  4009: "ask",
  4010: "stop",
  4012: "at-once",
  4029: "back-off",
  4400: "stop",
  4401: "sign-in",
  4404: "stop",
});

/** What a person reads when a connection ended for good. @type {Readonly<Record<number, string>>} */
export const CLOSE_TEXTS = Object.freeze({
  1000: "The connection was closed.",
  1003: "The server refused a binary message.",
  1009: "The message was too large for the server.",
  4009: "This conversation is open somewhere else.",
  4010: "This conversation was opened somewhere else and goes on there.",
  4400: "This is not the address of a conversation.",
  4401: "You are not signed in.",
  4404: "This conversation does not exist, or it is not yours.",
});

/** Error codes, and whether the same request may work later. @type {Readonly<Record<string, boolean>>} */
export const ERRORS = Object.freeze({
  bad_frame: false,
  invalid_message: false,
  invalid_request: false,
  too_large: false,
  unauthenticated: false,
  forbidden_origin: false,
  not_found: false,
  method_not_allowed: false,
  use_project_socket: false,
  session_exists: false,
  project_exists: false,
  resource_busy: true,
  request_id_conflict: false,
  completion_busy: true,
  queue_full: true,
  nothing_to_stop: false,
  tools_pending: false,
  decision_conflict: false,
  unknown_tool_call: false,
  version_conflict: false,
  invalid_canvas: false,
  rate_limited: true,
  too_many_connections: true,
  storage_unavailable: true,
  draining: true,
  overloaded: true,
  llm_timeout: true,
  llm_unavailable: true,
  llm_rate_limited: true,
  llm_context_length: false,
  llm_content_filter: false,
  llm_bad_response: false,
  unknown_model: false,
  tool_failed: false,
  tool_timeout: false,
  outcome_unknown: false,
  invalid_export: false,
  checksum_mismatch: false,
  internal: true,
});

/**
 * What to do about a close code; one that nobody knows (1005, 1006, a proxy's own) is a lost
 * connection.
 *
 * @param {number} code
 * @returns {Advice}
 */
export function adviceFor(code) {
  return CLOSES[code] ?? "back-off";
}

/**
 * How long to wait before the next attempt, in milliseconds: "full jitter", anything between nothing
 * and an exponentially growing bound, so that a thousand clients do not come back in one moment.
 *
 * @param {number} attempt Failed attempts so far, from 0.
 * @param {{baseMs?: number, capMs?: number, random?: () => number}} [options]
 */
export function backOffMs(attempt, { baseMs = 250, capMs = 15_000, random = Math.random } = {}) {
  return random() * Math.min(capMs, baseMs * 2 ** Math.min(attempt, 30));
}
