// @ts-check
/**
 * What this browser remembers: the list of conversations with titles, questions that are on their way, and
 * preferences. The conversations themselves are the server's.
 */

import { isUlid } from "./turnwire.js";

/**
 * @typedef {object} Entry
 * @property {string} id
 * @property {string} title From the first message; empty until there is one.
 * @property {string} model The one that answered last; empty if not known.
 * @property {number} usedAt Milliseconds since the epoch.
 */

/**
 * A question that is not known to be stored. Its ids make it safe to ask again, after a reload too.
 *
 * @typedef {object} Question
 * @property {string} appendId
 * @property {string} completeId
 * @property {string} text
 */

/** @typedef {{model: string, reasoning: boolean}} Preferences */

const LIST = "turnwire.conversations";
const PREFERENCES = "turnwire.preferences";
const QUESTIONS = "turnwire.questions.";
const LONGEST_LIST = 200;
const LONGEST_TITLE = 80;

/** @returns {Entry[]} Latest used first. */
export function conversations() {
  const list = read(LIST);
  if (!Array.isArray(list)) return [];
  return list
    .filter((entry) => typeof entry?.id === "string" && isUlid(entry.id))
    .map((entry) => ({
      id: entry.id,
      title: String(entry.title ?? ""),
      model: String(entry.model ?? ""),
      usedAt: Number(entry.usedAt) || 0,
    }))
    .sort((one, other) => other.usedAt - one.usedAt);
}

/**
 * Remember something about a conversation; one that is new goes on the list.
 *
 * @param {string} id
 * @param {Partial<Entry>} change
 */
export function remember(id, change) {
  const list = conversations();
  const known = list.find((entry) => entry.id === id) ?? { id, title: "", model: "", usedAt: Date.now() };
  const others = list.filter((entry) => entry.id !== id);
  write(LIST, [{ ...known, ...change, id }, ...others].slice(0, LONGEST_LIST));
}

/** @param {string} id */
export function forget(id) {
  write(
    LIST,
    conversations().filter((entry) => entry.id !== id),
  );
  keepQuestions(id, []);
}

/** @param {string} text */
export function titleFrom(text) {
  const line = text.trim().split("\n", 1)[0].replace(/\s+/g, " ");
  const characters = Array.from(line);
  return characters.length > LONGEST_TITLE ? `${characters.slice(0, LONGEST_TITLE - 1).join("")}…` : line;
}

/** @param {string} id @returns {Question[]} */
export function questions(id) {
  const list = read(QUESTIONS + id);
  return Array.isArray(list) ? list.filter((one) => one?.appendId && one.completeId && one.text) : [];
}

/** @param {string} id @param {Question[]} list */
export function keepQuestions(id, list) {
  if (list.length > 0) write(QUESTIONS + id, list);
  else attempt(() => localStorage.removeItem(QUESTIONS + id));
}

/** @returns {Preferences} */
export function preferences() {
  const kept = read(PREFERENCES);
  return { model: String(kept?.model ?? ""), reasoning: kept?.reasoning === true };
}

/** @param {Preferences} chosen */
export function keepPreferences(chosen) {
  write(PREFERENCES, chosen);
}

/** @param {string} key @returns {any} */
function read(key) {
  return attempt(() => JSON.parse(localStorage.getItem(key) ?? "null")) ?? null;
}

/** @param {string} key @param {unknown} value */
function write(key, value) {
  attempt(() => localStorage.setItem(key, JSON.stringify(value)));
}

/**
 * A browser may forbid storage, or have no room: the page works without memory then.
 *
 * @template T
 * @param {() => T} action
 * @returns {T | null}
 */
function attempt(action) {
  try {
    return action();
  } catch {
    return null;
  }
}
