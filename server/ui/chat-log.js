// @ts-check
/**
 * The messages of a conversation on the page. {@link Log.show} brings the page to a given state with as few
 * changes as possible; it decides nothing.
 */

import { button, make } from "./chat-dom.js";
import { copyButton, sentence, setText, showText } from "./chat-text.js";
import { callElement } from "./chat-tools.js";

/** @typedef {import("./turnwire.js").View} View */
/** @typedef {import("./turnwire.js").Message} Message */
/** @typedef {import("./chat-store.js").Question} Question */

/**
 * A question that is not stored yet, with what went wrong, if anything did.
 * - `held`: it waits for the present answer to be finished.
 *
 * @typedef {{question: Question, error: string, held: boolean}} Waiting
 */

/**
 * @typedef {object} Actions
 * @property {() => void} ask Ask the model to go on.
 * @property {(question: Question) => void} resend
 * @property {(question: Question) => void} withdraw
 * @property {(id: string, decision: "accept" | "reject") => void} decide
 * @property {(id: string, text: string) => void} answer
 */

const SPEAKERS = { user: "You", assistant: "Assistant", system: "System", tool: "Tool" };

export class Log {
  #place;
  #actions;
  /** @type {Map<string, HTMLElement>} */
  #elements = new Map();
  /** What each element shows. @type {WeakMap<HTMLElement, Message>} */
  #shown = new WeakMap();

  /** @param {HTMLElement} place @param {Actions} actions */
  constructor(place, actions) {
    this.#place = place;
    this.#actions = actions;
  }

  /** Begin with another conversation. */
  clear() {
    this.#elements.clear();
    this.#place.replaceChildren();
  }

  /**
   * @param {View} view
   * @param {readonly Waiting[]} waiting
   * @param {string} refusal Why the model was not asked; empty if nothing was refused.
   * @param {boolean} settled Whether the view is known to be what the server has.
   */
  show(view, waiting, refusal, settled) {
    /** @type {HTMLElement[]} */
    const wanted = [];
    /** @param {string} key @param {() => HTMLElement} build */
    const keyed = (key, build) => {
      const element = this.#elements.get(key) ?? build();
      this.#elements.set(key, element);
      wanted.push(element);
      return element;
    };
    if (view.truncated) keyed("truncated", () => make("p", { class: "after" }, "Older messages are not shown."));
    for (const message of view.messages) {
      if (message.role === "tool") continue; // its call shows it
      this.#showMessage(keyed(message.messageId, () => shell(message.role)), message);
    }
    const last = view.messages.at(-1);
    if (view.running && !last?.streaming && !waiting.some((one) => !one.held))
      keyed("thinking", () => make("p", { class: "after waiting-dot", "aria-label": "The model is at work" }));
    const after = this.#after(view, waiting, refusal, settled);
    if (after) keyed(`after:${after.text}`, () => noteElement(after));
    for (const one of waiting) keyed(`${one.question.appendId}:${one.error}:${one.held}`, () => this.#pending(one));
    if (wanted.length === 0 && settled) keyed("empty", emptyElement);
    this.#arrange(wanted);
  }

  /** @param {readonly HTMLElement[]} wanted */
  #arrange(wanted) {
    const keep = new Set(wanted);
    for (const [key, element] of this.#elements)
      if (!keep.has(element)) {
        element.remove();
        this.#elements.delete(key);
      }
    wanted.forEach((element, at) => {
      const there = this.#place.children[at];
      if (there !== element) this.#place.insertBefore(element, there ?? null);
    });
  }

  /** @param {HTMLElement} element @param {Message} message */
  #showMessage(element, message) {
    const old = this.#shown.get(element);
    if (old === message) return;
    this.#shown.set(element, message);
    element.dataset.streaming = String(message.streaming);
    element.setAttribute("aria-busy", String(message.streaming));
    const text = /** @type {HTMLElement} */ (element.querySelector(".text"));
    if (message.thinking !== (old?.thinking ?? "")) showThinking(element, message);
    if (message.streaming !== old?.streaming) showThinkingState(element, message);
    if (!old || message.content !== old.content) showText(text, message.content);
    if (!old || message.toolCalls !== old.toolCalls || message.drafts !== old.drafts)
      this.#showCalls(element, message);
    if (!old || message.streaming !== old.streaming || message.finishReason !== old.finishReason)
      this.#showFoot(element, message);
  }

  /** @param {HTMLElement} element @param {Message} message */
  #showCalls(element, message) {
    const place = /** @type {HTMLElement} */ (element.querySelector(".calls"));
    const calls = message.toolCalls.map((call) => callElement(call, this.#actions));
    const drafts = message.drafts.map((draft) =>
      make("p", { class: "after" }, `Preparing to use ${draft.name || "a tool"}…`),
    );
    place.replaceChildren(...calls, ...drafts);
  }

  /** @param {HTMLElement} element @param {Message} message */
  #showFoot(element, message) {
    element.querySelector(".foot-row")?.remove();
    if (message.role !== "assistant" || message.streaming) return;
    const row = make("div", { class: "after foot-row" });
    const note = FOOTS[message.finishReason ?? ""];
    if (note) row.append(make("span", {}, note));
    if (message.content !== "") row.append(copyButton(() => message.content, "Copy this answer"));
    if (row.childElementCount > 0) element.append(row);
  }

  /**
   * What is to be said after the last message: how the last run ended, or that nobody was asked.
   *
   * @param {View} view
   * @param {readonly Waiting[]} waiting
   * @param {string} refusal
   * @param {boolean} settled
   * @returns {Note | null}
   */
  #after(view, waiting, refusal, settled) {
    if (!settled || view.running || view.queued.length > 0 || waiting.length > 0) return null;
    const again = { label: "Try again", action: this.#actions.ask };
    if (refusal) return { kind: "error", text: sentence(refusal), ...again };
    if (view.waiting.length > 0) return null;
    const run = view.lastRun;
    switch (run?.finishReason) {
      case "error":
        return { kind: "error", text: sentence(run.error?.message || "the model could not answer."), ...again };
      case "interrupted":
        return { kind: "error", text: "The server restarted during this answer.", ...again };
      case "length":
        return { kind: "info", text: "The answer reached its limit.", ...again, label: "Go on" };
    }
    const last = view.messages.at(-1);
    if (last?.role === "user" && run?.finishReason !== "stopped")
      return { kind: "info", text: "This was not answered yet.", ...again, label: "Ask now" };
    return null;
  }

  /** @param {Waiting} waiting */
  #pending({ question, error, held }) {
    const element = shell("user");
    element.dataset.pending = "true";
    showText(/** @type {HTMLElement} */ (element.querySelector(".text")), question.text);
    const state = sentence(error) || (held ? "Sent when the answer is finished" : "Sending…");
    const row = make("div", { class: "after", "data-kind": error ? "error" : "info" }, make("span", {}, state));
    if (error) row.append(button("Try again", () => this.#actions.resend(question)));
    if (error || held) row.append(button("Take back", () => this.#actions.withdraw(question)));
    element.append(row);
    return element;
  }
}

/** @typedef {{kind: "error" | "info", text: string, label: string, action: () => void}} Note */

/** @param {Note} note */
function noteElement(note) {
  const attributes = { class: "after note", "data-kind": note.kind };
  return make("div", attributes, make("span", {}, note.text), button(note.label, note.action));
}

/** @type {Record<string, string>} */
const FOOTS = { stopped: "Stopped", error: "Broken off", interrupted: "Interrupted", length: "Cut at its limit" };

/** @param {Message["role"]} role */
function shell(role) {
  const label = SPEAKERS[role];
  return make(
    "article",
    { class: "message", "data-role": role, "aria-label": label },
    make("div", { class: "text" }),
    make("div", { class: "calls" }),
  );
}

/** @param {HTMLElement} element @param {Message} message */
function showThinking(element, message) {
  let details = element.querySelector("details.thinking");
  if (!details) {
    details = make("details", { class: "thinking" }, make("summary"), make("div"));
    element.prepend(details);
    showThinkingState(element, message);
  }
  setText(/** @type {Element} */ (details.lastElementChild), message.thinking);
}

/** @param {HTMLElement} element @param {Message} message */
function showThinkingState(element, message) {
  const summary = element.querySelector("details.thinking > summary");
  if (summary) summary.textContent = message.streaming && message.content === "" ? "Thinking…" : "Thoughts";
}

function emptyElement() {
  return make(
    "div",
    { class: "empty" },
    make("h2", {}, "What is on your mind?"),
    make("p", {}, "Answers stream in as they are made, and survive a lost connection."),
  );
}
