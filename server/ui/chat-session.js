// @ts-check
/**
 * One conversation as the page holds it: the connection, and the questions that are on their way. It does not
 * touch the page.
 */

import { keepQuestions, preferences, questions, remember, titleFrom } from "./chat-store.js";
import { RequestError, connect, newUlid } from "./turnwire.js";

/** @typedef {import("./chat-store.js").Question} Question */
/** @typedef {import("./chat-log.js").Waiting} Waiting */

const TOKEN = "turnwire.token";

export class ChatSession {
  #changed;
  #closed = false;
  /** Questions from their sending to the end of their answer. */
  #delivering = 0;
  /** @type {readonly Waiting[]} */
  waiting = [];
  /** Why the model was not asked; empty if nothing was refused. */
  refusal = "";

  /**
   * @param {string} id
   * @param {() => void} changed Told of everything that may show; the state is read from here then.
   */
  constructor(id, changed) {
    this.id = id;
    this.#changed = changed;
    this.conversation = connect(addressOf(id), { ticket });
    this.conversation.on("frame", (frame) => this.#heard(frame));
    this.conversation.subscribe(() => this.#advance());
    for (const question of questions(id)) this.resend(question);
  }

  /** Whether the model is at work, or about to be. */
  get busy() {
    const { running, queued } = this.conversation.view;
    return running !== null || queued.length > 0 || this.#delivering > 0;
  }

  /** Put a question and have it answered; during an answer it is held until that is finished. */
  send(/** @type {string} */ text) {
    const question = { appendId: newUlid(), completeId: newUlid(), text };
    keepQuestions(this.id, [...questions(this.id), question]);
    const entry = { question, error: "", held: this.busy };
    this.waiting = [...this.waiting, entry];
    if (!entry.held) void this.#deliver(entry);
    this.#changed();
  }

  /** Try a question again, with the ids that it has: what was done already is not done twice. */
  resend(/** @type {Question} */ question) {
    this.#leave(question);
    const entry = { question, error: "", held: false };
    this.waiting = [...this.waiting, entry];
    void this.#deliver(entry);
  }

  /** Give a question up that is not sent. */
  withdraw(/** @type {Question} */ question) {
    this.#leave(question);
    this.#settled(question);
    this.#changed();
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

  close() {
    this.#closed = true;
    this.conversation.close();
  }

  /** @param {Waiting} entry */
  async #deliver(entry) {
    const { question } = entry;
    this.#delivering += 1;
    try {
      await this.conversation.append(question.text, { requestId: question.appendId });
      this.#leave(question);
      if (await this.#complete(question.completeId)) this.#settled(question);
    } catch (error) {
      if (this.#closed) return; // asked again when the conversation is opened again
      this.waiting = this.waiting.map((other) =>
        other.question === question ? { ...other, error: messageOf(error) } : other,
      );
    } finally {
      this.#delivering -= 1;
      this.#advance();
    }
  }

  /**
   * Ask the model and wait for the end of its answer.
   *
   * @param {string} requestId
   * @returns {Promise<boolean>} False when the connection ended for good before the end was known: the
   *   view will tell what became of it.
   */
  async #complete(requestId) {
    this.refusal = "";
    this.#changed();
    const { model, reasoning } = preferences();
    try {
      await this.conversation.complete({
        requestId,
        model: model || undefined,
        reasoning: reasoning || undefined,
      });
    } catch (error) {
      if (isDisconnected(error)) return false;
      this.refusal = messageOf(error);
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
      this.refusal = messageOf(error);
      this.#changed();
      return;
    }
    const open = this.conversation.view.waiting.filter((call) => call.tool_call_id !== id);
    if (open.length === 0 && !this.busy) await this.ask();
  }

  /** Send the next held question when the model is free. */
  #advance() {
    const next = this.busy || this.#closed ? undefined : this.waiting.find((entry) => entry.held);
    if (next) this.resend(next.question);
    this.#changed();
  }

  /** @param {import("./turnwire.js").ServerFrame} frame */
  #heard(frame) {
    if (frame.type === "completion_init") {
      remember(this.id, { model: frame.model });
      const begun = questions(this.id).find((question) => question.completeId === frame.request_id);
      if (begun) this.#settled(begun);
    }
    if (frame.type !== "snapshot" || frame.truncated) return;
    const first = frame.messages.find((message) => message.role === "user");
    if (first) remember(this.id, { title: titleFrom(first.content) });
  }

  /** @param {Question} question It is in the view now, or given up. */
  #leave(question) {
    this.waiting = this.waiting.filter((entry) => entry.question.appendId !== question.appendId);
  }

  /** @param {Question} question */
  #settled(question) {
    keepQuestions(
      this.id,
      questions(this.id).filter((kept) => kept.appendId !== question.appendId),
    );
  }
}

/** @param {string} id */
function addressOf(id) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  return `${scheme}://${location.host}/ws/conversations/${id}`;
}

/** @param {string} token For this tab only. */
export function signIn(token) {
  sessionStorage.setItem(TOKEN, token);
}

/** A ticket for one connection, when a token was given; a server without sign-in needs none. */
async function ticket() {
  const token = sessionStorage.getItem(TOKEN);
  if (!token) return null;
  const answer = await fetch("/api/ws-ticket", {
    method: "POST",
    headers: { authorization: `Bearer ${token}` },
  });
  if (answer.status === 401) throw Object.assign(new Error("The token was not accepted."), { code: "unauthenticated" });
  const body = await answer.json();
  if (typeof body?.data?.ticket !== "string") throw new Error("No ticket.");
  return body.data.ticket;
}

/** @param {unknown} error */
function isDisconnected(error) {
  return error instanceof RequestError && error.code === "disconnected";
}

/** @param {unknown} error */
function messageOf(error) {
  if (isDisconnected(error)) return "This could not be sent.";
  return error instanceof Error ? error.message : String(error);
}
