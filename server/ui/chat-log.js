// @ts-check
/**
 * The messages of a conversation on the page. {@link Log.show} brings the page to a given state with as few
 * changes as possible; it decides nothing.
 */

import { button, make } from "./chat-dom.js";
import { copyButton, sentence, setText, showPlain, showText } from "./chat-text.js";
import { callElement } from "./chat-tools.js";

/** @typedef {import("./turnwire.js").View} View */
/** @typedef {import("./turnwire.js").Message} Message */
/** @typedef {import("./turnwire.js").Status} Status */
/** @typedef {import("./chat-store.js").Question} Question */
/** @typedef {import("./chat-outgoing.js").Waiting} Waiting */
/** @typedef {import("./chat-session.js").Refusal} Refusal */

/**
 * What is to be seen.
 *
 * @typedef {object} Scene
 * @property {View} view
 * @property {readonly Waiting[]} waiting
 * @property {Refusal | null} refusal
 * @property {Status} status
 * @property {boolean} away Whether the connection does not come back by itself.
 * @property {string} model That is asked next; empty for the server's default.
 * @property {{busy: boolean, error: string}} loading Of older messages.
 */

/**
 * @typedef {object} Actions
 * @property {() => void} ask Ask the model to go on.
 * @property {() => void} askDefault Ask the server's default model from now on.
 * @property {() => void} older Load older messages.
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

  /** @param {Scene} scene */
  show(scene) {
    const { view, waiting, status } = scene;
    const live = status.phase === "online";
    this.#place.dataset.live = String(live);
    /** @type {HTMLElement[]} */
    const wanted = [];
    /** @param {string} key @param {() => HTMLElement} build */
    const keyed = (key, build) => {
      const element = this.#elements.get(key) ?? build();
      this.#elements.set(key, element);
      wanted.push(element);
      return element;
    };
    if (view.truncated) {
      const { busy, error } = scene.loading;
      keyed(`older:${busy}:${error}`, () => this.#olderElement(busy, error));
    }
    for (const message of view.messages) {
      if (message.role === "tool") continue; // its call shows it
      this.#showMessage(keyed(message.messageId, () => shell(message.role)), message);
    }
    const last = view.messages.at(-1);
    if (live && view.running && !last?.streaming && !waiting.some((one) => !one.held))
      keyed("thinking", () => make("p", { class: "after waiting-dot", "aria-label": "The model is at work" }));
    const after = this.#after(scene);
    if (after) keyed(`after:${after.text}:${after.buttons.map(({ label }) => label)}`, () => noteElement(after));
    for (const one of waiting) {
      const state = stateOf(one, scene);
      keyed(`${one.question.appendId}:${state}`, () => this.#pending(one, state));
    }
    if (wanted.length === 0 && live) keyed("empty", emptyElement);
    this.#arrange(wanted);
  }

  /** @param {boolean} busy @param {string} error */
  #olderElement(busy, error) {
    const load = button(busy ? "Loading…" : "Show older messages", this.#actions.older);
    load.disabled = busy;
    return make("div", { class: "after older", "data-kind": error ? "error" : "info" }, sentence(error), load);
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
    const changed = !old || message.content !== old.content || message.streaming !== old.streaming;
    if (changed && message.role === "assistant") showText(text, message.content, message.streaming);
    else if (changed) showPlain(text, message.content);
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
   * @param {Scene} scene
   * @returns {Note | null}
   */
  #after({ view, waiting, refusal, status, away, model }) {
    if (away && view.running)
      return { kind: "info", text: "The answer goes on. Its rest is shown here once this is connected again.", buttons: [] };
    if (status.phase !== "online" || view.running || view.queued.length > 0) return null;
    if (waiting.some((one) => one.held || !one.error)) return null;
    const again = { label: "Try again", action: this.#actions.ask };
    /** @param {string} code @param {string} text @returns {Note} */
    const error = (code, text) => {
      const bad = code === "unknown_model" && model !== "";
      const standard = { label: "Use the default model", action: this.#actions.askDefault };
      return { kind: "error", text: sentence(text), buttons: bad ? [standard, again] : [again] };
    };
    if (refusal) return error(refusal.code, refusal.text);
    if (view.waiting.length > 0) return null;
    const run = view.lastRun;
    const last = view.messages.at(-1);
    if (run?.finishReason === "error")
      return error(run.error?.code ?? "", run.error?.message || "the model could not answer.");
    if (run?.finishReason === "interrupted") return error("", "The server restarted during this answer.");
    if (run?.finishReason === "length" || (last?.role === "assistant" && last.finishReason === "length"))
      return { kind: "info", text: "The answer reached its limit.", buttons: [{ ...again, label: "Go on" }] };
    if (last?.role === "user" && run?.finishReason !== "stopped")
      return { kind: "info", text: "This was not answered yet.", buttons: [{ ...again, label: "Ask now" }] };
    return null;
  }

  /** @param {Waiting} waiting @param {string} state */
  #pending({ question, error, held, retryable }, state) {
    const element = shell("user");
    element.dataset.pending = "true";
    showPlain(/** @type {HTMLElement} */ (element.querySelector(".text")), question.text);
    const row = make("div", { class: "after", "data-kind": error ? "error" : "info" }, make("span", {}, state));
    if (error && retryable) row.append(button("Try again", () => this.#actions.resend(question)));
    if (error || held) row.append(button("Take back", () => this.#actions.withdraw(question)));
    element.append(row);
    return element;
  }
}

/**
 * How it stands with a question that is not stored yet.
 *
 * @param {Waiting} waiting
 * @param {Scene} scene
 */
function stateOf({ error, held }, { status, away, view }) {
  if (error) return sentence(error);
  if (away) return "Not sent: there is no connection";
  if (status.phase !== "online") return "Sent when the connection is back";
  return held && (view.running || view.queued.length > 0) ? "Sent when the answer is finished" : "Sending…";
}

/** @typedef {{kind: "error" | "info", text: string, buttons: {label: string, action: () => void}[]}} Note */

/** @param {Note} note */
function noteElement(note) {
  const attributes = { class: "after note", "data-kind": note.kind };
  const buttons = note.buttons.map(({ label, action }) => button(label, action));
  return make("div", attributes, make("span", {}, note.text), ...buttons);
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
