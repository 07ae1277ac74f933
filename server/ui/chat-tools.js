// @ts-check
/** A tool call on the page: what it is, how it stands, and the buttons to decide it. */

import { button, make } from "./chat-dom.js";

/** @typedef {import("./turnwire-frames.js").ToolCall} ToolCall */

/**
 * @typedef {object} Deciding
 * @property {(id: string, decision: "accept" | "reject") => void} decide
 * @property {(id: string, text: string) => void} answer
 */

const STATES = {
  waiting: "waits",
  running: "is running…",
  succeeded: "done",
  failed: "failed",
  cancelled: "cancelled",
};

/**
 * @param {ToolCall} call
 * @param {Deciding} deciding
 */
export function callElement(call, deciding) {
  const open = call.execution_state === "waiting";
  const details = make("details", {}, make("summary", {}, `${call.name}: ${stateOf(call)}`));
  details.open = open;
  details.append(make("pre", { tabindex: "0", "aria-label": "Arguments" }, pretty(call.arguments)));
  const result = call.error ? call.error.message || call.error.code : call.result;
  if (result !== null && result !== undefined)
    details.append(make("pre", { tabindex: "0", "aria-label": "Result" }, pretty(result)));
  const element = make("div", { class: "call", "data-call": call.tool_call_id }, details);
  if (open && call.confirmation_state === "pending") element.append(confirmation(call, deciding));
  if (open && call.confirmation_state === "awaiting_input") element.append(question(call, deciding));
  return element;
}

/** @param {ToolCall} call */
function stateOf(call) {
  if (call.execution_state === "waiting") {
    if (call.confirmation_state === "pending") return "waits for your permission";
    if (call.confirmation_state === "awaiting_input") return "asks you";
    if (call.confirmation_state === "accepted") return "allowed";
    if (call.confirmation_state === "rejected") return "declined";
  }
  return STATES[call.execution_state] ?? call.execution_state;
}

/** @param {ToolCall} call @param {Deciding} deciding */
function confirmation(call, deciding) {
  return make(
    "div",
    { class: "decide" },
    button("Allow", () => deciding.decide(call.tool_call_id, "accept"), { class: "send" }),
    button("Decline", () => deciding.decide(call.tool_call_id, "reject")),
  );
}

/** @param {ToolCall} call @param {Deciding} deciding */
function question(call, deciding) {
  const asked = parsed(call.arguments)?.question;
  const input = make("input", { type: "text", "aria-label": "Your answer" });
  const form = make("form", { class: "decide" });
  if (typeof asked === "string") form.append(make("p", {}, asked));
  form.append(input, make("button", { type: "submit", class: "send" }, "Answer"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.value.trim() !== "") deciding.answer(call.tool_call_id, input.value);
  });
  return form;
}

/** @param {string} text @returns {any} */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** @param {string} text */
function pretty(text) {
  const value = parsed(text);
  return value !== null && typeof value === "object" ? JSON.stringify(value, null, 2) : text;
}
