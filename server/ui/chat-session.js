// @ts-check
/**
 * One conversation as the page holds it: the connection, the questions that are on their way, and older messages
 * that were asked for. It does not touch the page.
 */

import { call, ticket } from "./chat-api.js";
import { Outgoing } from "./chat-outgoing.js";
import {
  choiceOf,
  entryOf,
  keepChoice,
  keepPreferences,
  preferences,
  remember,
  titleFrom,
} from "./chat-store.js";
import { RequestError, connect, newUlid } from "./turnwire.js";
import { fromStore } from "./turnwire-state.js";

/** @typedef {import("./chat-store.js").Choice} Choice */
/** @typedef {import("./chat-store.js").Question} Question */
/** @typedef {import("./turnwire.js").Message} Message */
/** @typedef {import("./turnwire.js").View} View */

/** Why the model was not asked. @typedef {{code: string, text: string}} Refusal */

const OLDER_PAGE = 50;

export class ChatSession {
  #changed;
  #closed = false;
  /** What was asked for by each request of this page. @type {Map<string, Choice>} */
  #asked = new Map();
  /** Messages before those of the view. @type {readonly Message[]} */
  #older = [];
  /** @type {Refusal | null} */
  refusal = null;
  /** Whether older messages are on their way, or why they are not here. */
  loading = { busy: false, error: "" };

  /**
   * @param {string} id
   * @param {() => void} changed Told of everything that may show; the state is read from here then.
   */
  constructor(id, changed) {
    this.id = id;
    this.#changed = changed;
    this.conversation = connect(addressOf(id), { ticket });
    this.outgoing = new Outgoing(id, this.conversation, {
      complete: (requestId) => this.#complete(requestId),
      changed,
    });
    this.conversation.on("frame", (frame) => this.#heard(frame));
    this.conversation.subscribe(() => this.outgoing.advance());
  }

  /** The state to show, with the older messages that were loaded. @returns {View} */
  get view() {
    const { view } = this.conversation;
    const first = view.messages[0]?.sequence ?? 0;
    const older = this.#older.filter((message) => (message.sequence ?? 0) < first);
    // A state after a long absence may begin later: what lies between is not here.
    if (older.length === 0 || older.at(-1)?.sequence !== first - 1) return view;
    return { ...view, messages: [...older, ...view.messages], truncated: older[0].sequence !== 0 };
  }

  /** Whether it is held elsewhere, or not reached for a reason that does not go away by itself. */
  get away() {
    return ["busy", "stopped", "closed"].includes(this.conversation.status.phase);
  }

  /** Which model is asked next. @returns {Choice} */
  get choice() {
    const chosen = choiceOf(this.id);
    if (chosen) return chosen;
    const known = entryOf(this.id);
    if (known?.model) return { model: known.asked, reasoning: false };
    return this.conversation.view.messages.length > 0 ? { model: "", reasoning: false } : preferences();
  }

  /** The model to name: the one that answers or answered, unless another one was chosen since. */
  get model() {
    const { running } = this.conversation.view;
    if (running?.model) return running.model;
    const known = entryOf(this.id);
    const { model } = this.choice;
    return known?.model && known.asked === model ? known.model : model;
  }

  /** @param {Choice} choice From now on, in this conversation. */
  choose(choice) {
    keepChoice(this.id, choice);
    this.#changed();
  }

  /** Put a question and have it answered; during an answer it is held until that is finished. */
  send(/** @type {string} */ text) {
    keepChoice(this.id, this.choice); // what is the default for new ones may become another one
    this.outgoing.send(text);
  }

  /** Ask the model to go on from what is there. */
  async ask() {
    await this.#complete(newUlid());
  }

  async stop() {
    await this.conversation.stop().catch(() => null);
  }

  /** @param {string} id @param {"accept" | "reject"} decision */
  async decide(id, decision) {
    await this.#andGoOn(id, this.conversation.confirm(id, decision));
  }

  /** @param {string} id @param {string} text */
  async answer(id, text) {
    await this.#andGoOn(id, this.conversation.append(text, { role: "tool", toolCallId: id }));
  }

  /** Get a page of messages from before the first one that is here. */
  async loadOlder() {
    const first = this.view.messages[0]?.sequence ?? 0;
    if (this.loading.busy || first === 0) return;
    this.loading = { busy: true, error: "" };
    this.#changed();
    const offset = Math.max(0, first - OLDER_PAGE);
    try {
      const query = `limit=${first - offset}&offset=${offset}`;
      const { items } = await call("GET", `/api/sessions/${this.id}/messages?${query}`);
      const known = this.#older.filter((message) => (message.sequence ?? 0) >= first);
      this.#older = [...items.map(fromRest), ...known];
      this.loading = { busy: false, error: "" };
    } catch (error) {
      this.loading = { busy: false, error: messageOf(error) };
    }
    if (!this.#closed) this.#changed();
  }

  close() {
    this.#closed = true;
    this.outgoing.close();
    this.conversation.close();
  }

  /**
   * Ask the model and wait for the end of its answer.
   *
   * @param {string} requestId
   * @returns {Promise<boolean>} False when the connection ended for good before the end was known: the
   *   view will tell what became of it.
   */
  async #complete(requestId) {
    this.refusal = null;
    this.#changed();
    const choice = this.choice;
    this.#asked.set(requestId, choice);
    try {
      await this.conversation.complete({
        requestId,
        model: choice.model || undefined,
        reasoning: choice.reasoning || undefined,
      });
    } catch (error) {
      if (isDisconnected(error)) return false;
      this.refusal = refusalOf(error);
    } finally {
      this.#asked.delete(requestId);
    }
    this.#changed();
    return true;
  }

  /**
   * After the last decision the model goes on.
   *
   * @param {string} id
   * @param {Promise<unknown>} deciding
   */
  async #andGoOn(id, deciding) {
    try {
      await deciding;
    } catch (error) {
      if (this.#closed) return;
      this.refusal = refusalOf(error);
      this.#changed();
      return;
    }
    const open = this.conversation.view.waiting.filter((one) => one.tool_call_id !== id);
    if (open.length === 0 && !this.outgoing.busy) await this.ask();
  }

  /** @param {import("./turnwire.js").ServerFrame} frame */
  #heard(frame) {
    switch (frame.type) {
      case "completion_init": {
        const asked = this.#asked.get(frame.request_id ?? "")?.model;
        remember(this.id, { model: frame.model, asked: asked ?? this.choice.model });
        this.outgoing.begun(frame.request_id ?? "");
        break;
      }
      case "llm_text_chunk":
      case "llm_thinking_chunk": {
        const works = this.#asked.get(frame.request_id ?? "");
        if (works) keepPreferences(works);
        this.#asked.delete(frame.request_id ?? "");
        break;
      }
      case "snapshot": {
        const named = frame.session.metadata?.title;
        const first = frame.truncated ? undefined : frame.messages.find((message) => message.role === "user");
        const title = typeof named === "string" && named !== "" ? named : first && titleFrom(first.content);
        if (title) remember(this.id, { title });
      }
    }
  }
}

/** @param {string} id */
function addressOf(id) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  return `${scheme}://${location.host}/ws/conversations/${id}`;
}

/** A message of the HTTP interface, whose fields are in another style. @param {any} item @returns {Message} */
function fromRest(item) {
  return fromStore({
    message_id: item.messageId,
    sequence: item.sequence,
    role: item.role,
    content: item.content,
    tool_call_id: item.toolCallId,
    tool_calls: (item.toolCalls ?? []).map((/** @type {any} */ one) => ({
      run_id: "",
      message_id: item.messageId,
      tool_call_id: one.toolCallId,
      name: one.name,
      arguments: one.arguments,
      arguments_sha256: one.argumentsSha256,
      confirmation_state: one.confirmationState,
      execution_state: one.executionState,
      result: one.result,
      error: one.error,
      sequence: item.sequence,
    })),
    metadata: item.metadata ?? {},
    created_at: item.createdAt,
  });
}

/** @param {unknown} error */
export function isDisconnected(error) {
  return error instanceof RequestError && error.code === "disconnected";
}

/** @param {unknown} error @returns {Refusal} */
function refusalOf(error) {
  const code = error instanceof RequestError ? error.code : "";
  return { code, text: isDisconnected(error) ? "This could not be sent." : messageOf(error) };
}

/** @param {unknown} error */
function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}
