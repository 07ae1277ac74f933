// @ts-check
/**
 * The questions that a person has sent and that are not stored yet.
 *
 * They are put one at a time, in their order: a question is appended, and the model asked, only when nothing runs
 * and the server's state is known. So a question that was typed during an answer comes after it, also when the page
 * is loaded anew in between. No page and no sockets here.
 */

import { keepQuestions, questions } from "./chat-store.js";
import { RequestError, newUlid } from "./turnwire.js";

/** @typedef {import("./chat-store.js").Question} Question */
/** @typedef {import("./turnwire.js").View} View */
/** @typedef {import("./turnwire.js").Status} Status */

/**
 * A question that is not stored yet, with what went wrong, if anything did.
 * - `held`: it waits for its turn.
 * - `retryable`: after an error, whether the same may work later.
 *
 * @typedef {{question: Question, held: boolean, error: string, retryable: boolean}} Waiting
 */

/**
 * What is needed of a conversation.
 *
 * @typedef {object} Line
 * @property {View} view
 * @property {Status} status
 * @property {(content: string, options: {requestId: string}) => Promise<unknown>} append
 */

/**
 * @typedef {object} Around
 * @property {(requestId: string) => Promise<boolean>} complete Ask the model, and wait for the end; false when that
 *   is not known.
 * @property {() => void} changed
 */

export class Outgoing {
  #id;
  #line;
  #around;
  #closed = false;
  /** Questions from their sending to the end of their answer. */
  #delivering = 0;
  /** Oldest first. @type {readonly Waiting[]} */
  waiting;

  /** @param {string} id @param {Line} line @param {Around} around */
  constructor(id, line, around) {
    this.#id = id;
    this.#line = line;
    this.#around = around;
    this.waiting = questions(id).map(held);
  }

  /** Whether the model is at work, or about to be. */
  get busy() {
    const { running, queued } = this.#line.view;
    return running !== null || queued.length > 0 || this.#delivering > 0;
  }

  /** @param {string} text */
  send(text) {
    const question = { appendId: newUlid(), completeId: newUlid(), text };
    keepQuestions(this.#id, [...questions(this.#id), question]);
    this.waiting = [...this.waiting, held(question)];
    this.advance();
  }

  /** Try a question again, with the ids that it has: what was done already is not done twice. */
  resend(/** @type {Question} */ question) {
    this.#set(question, held(question));
    this.advance();
  }

  /** Give a question up that is not sent. */
  withdraw(/** @type {Question} */ question) {
    this.#leave(question);
    this.#settled(question);
    this.#around.changed();
  }

  /** Put the next question if it is its turn. Call it whenever the conversation changed. */
  advance() {
    if (this.#closed) return;
    if (this.#line.status.phase === "online") {
      for (const { question, held: waits } of this.waiting) if (waits && this.#isKnown(question)) this.#arrived(question);
      const next = this.busy ? undefined : this.waiting.find((entry) => entry.held);
      if (next) void this.#deliver(next.question);
    }
    this.#around.changed();
  }

  /** @param {string} requestId The model has begun with this request. */
  begun(requestId) {
    const question = questions(this.#id).find((one) => one.completeId === requestId);
    if (question) this.#settled(question);
  }

  close() {
    this.#closed = true; // what is not stored is asked when the conversation is opened again
  }

  /** @param {Question} question */
  async #deliver(question) {
    this.#delivering += 1;
    this.#set(question, { ...held(question), held: false });
    try {
      await this.#line.append(question.text, { requestId: question.appendId });
      this.#leave(question);
      if (await this.#around.complete(question.completeId)) this.#settled(question);
    } catch (error) {
      this.#failed(question, error);
    } finally {
      this.#delivering -= 1;
      this.advance();
    }
  }

  /** @param {Question} question @param {unknown} error */
  #failed(question, error) {
    if (this.#closed) return;
    const { code, retryable, message } = error instanceof RequestError ? error : unknown(error);
    if (code === "disconnected") this.#set(question, held(question)); // again, once connected again
    else this.#set(question, { question, held: false, error: message, retryable });
  }

  /** Whether an earlier life of this page has put the question already. @param {Question} question */
  #isKnown({ completeId }) {
    const { running, queued, lastRun } = this.#line.view;
    return running?.requestId === completeId || queued.includes(completeId) || lastRun?.requestId === completeId;
  }

  /** @param {Question} question */
  #arrived(question) {
    this.#leave(question);
    this.#settled(question);
  }

  /** @param {Question} question @param {Waiting} entry In the question's place. */
  #set(question, entry) {
    this.waiting = this.waiting.map((other) => (other.question.appendId === question.appendId ? entry : other));
  }

  /** @param {Question} question It is in the view now, or given up. */
  #leave(question) {
    this.waiting = this.waiting.filter((entry) => entry.question.appendId !== question.appendId);
  }

  /** @param {Question} question */
  #settled(question) {
    keepQuestions(
      this.#id,
      questions(this.#id).filter((kept) => kept.appendId !== question.appendId),
    );
  }
}

/** @param {Question} question @returns {Waiting} */
function held(question) {
  return { question, held: true, error: "", retryable: true };
}

/** @param {unknown} error */
function unknown(error) {
  return { code: "", retryable: true, message: error instanceof Error ? error.message : String(error) };
}
