// @ts-check
/**
 * What this browser remembers: the list of conversations with titles, questions that are on their way, drafts,
 * and which model was chosen. The conversations themselves are the server's.
 */

import { isUlid } from "./turnwire.js";

/**
 * @typedef {object} Entry
 * @property {string} id
 * @property {string} title Given by the person, or from the first message; empty until there is one.
 * @property {string} model The one that answered last; empty if not known.
 * @property {string} asked The one that was asked for then; empty for the server's default.
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

/** Which model is to answer; an empty name is the server's default. @typedef {{model: string, reasoning: boolean}} Choice */

/**
 * A session as the server lists it.
 *
 * @typedef {{sessionId: string, projectId: string | null, metadata: Record<string, unknown>,
 *   messageCount: number, lastActiveAt: string}} Listed
 */

const LIST = "turnwire.conversations";
const HIDDEN = "turnwire.hidden";
const PREFERENCES = "turnwire.preferences";
const QUESTIONS = "turnwire.questions.";
const DRAFT = "turnwire.draft.";
const CHOICE = "turnwire.choice.";
const LONGEST_LIST = 1000;
const LONGEST_TITLE = 80;
/** What is so new may not be in a list that the server made meanwhile. */
const FRESH_MS = 60_000;
const OLD_MS = 30 * 24 * 3600_000;

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
      asked: String(entry.asked ?? ""),
      usedAt: Number(entry.usedAt) || 0,
    }))
    .sort((one, other) => other.usedAt - one.usedAt);
}

/** @param {string} id */
export function entryOf(id) {
  return conversations().find((entry) => entry.id === id) ?? null;
}

/**
 * Remember something about a conversation; one that is new goes on the list.
 *
 * @param {string} id
 * @param {Partial<Entry>} change
 */
export function remember(id, change) {
  const list = conversations();
  const known = list.find((entry) => entry.id === id) ?? blank(id, Date.now());
  const others = list.filter((entry) => entry.id !== id);
  if (hidden().has(id)) write(HIDDEN, Array.from(hidden()).filter((other) => other !== id));
  write(LIST, [{ ...known, ...change, id }, ...others].slice(0, LONGEST_LIST));
}

/** @param {string} id Take it off the list, with what was not sent. */
export function forget(id) {
  write(
    LIST,
    conversations().filter((entry) => entry.id !== id),
  );
  keepQuestions(id, []);
  keepDraft(id, "");
  drop(CHOICE + id);
}

/** @param {string} id Take it off the list, also when the server lists it. */
export function hide(id) {
  forget(id);
  write(HIDDEN, [...hidden(), id].slice(-LONGEST_LIST));
}

/** Forget everything that is a person's. */
export function forgetAll() {
  for (const key of keys()) if (key.startsWith("turnwire.") && key !== PREFERENCES) drop(key);
}

/**
 * Bring this browser's list together with the server's.
 *
 * @param {readonly Listed[]} listed
 * @param {boolean} complete Whether these are all: what is not among them is gone then.
 * @param {number} askedAt
 */
export function merge(listed, complete, askedAt) {
  const known = new Map(conversations().map((entry) => [entry.id, entry]));
  const secret = hidden();
  const there = new Set();
  for (const { sessionId, projectId, metadata, messageCount, lastActiveAt } of listed) {
    there.add(sessionId);
    const old = known.get(sessionId);
    if (projectId !== null || secret.has(sessionId) || !isUlid(sessionId) || (!old && messageCount === 0)) continue;
    const entry = old ?? blank(sessionId, 0);
    const title = typeof metadata?.title === "string" ? metadata.title : entry.title;
    known.set(sessionId, { ...entry, title, usedAt: Math.max(entry.usedAt, Date.parse(lastActiveAt) || 0) });
  }
  const list = Array.from(known.values()).filter(
    ({ id, usedAt }) => !complete || there.has(id) || usedAt > askedAt - FRESH_MS || questions(id).length > 0,
  );
  list.sort((one, other) => other.usedAt - one.usedAt);
  write(LIST, list.slice(0, LONGEST_LIST));
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
  else drop(QUESTIONS + id);
}

/** What was typed and not sent. @param {string} id */
export function draftOf(id) {
  return String(read(DRAFT + id) ?? "");
}

/** @param {string} id @param {string} text */
export function keepDraft(id, text) {
  if (text.trim() !== "") write(DRAFT + id, text);
  else drop(DRAFT + id);
}

/** What was chosen for this conversation; null if nothing was. @param {string} id @returns {Choice | null} */
export function choiceOf(id) {
  const kept = read(CHOICE + id);
  return kept ? choice(kept) : null;
}

/** @param {string} id @param {Choice} chosen */
export function keepChoice(id, chosen) {
  write(CHOICE + id, chosen);
}

/** What a new conversation begins with: the last choice that worked. @returns {Choice} */
export function preferences() {
  return choice(read(PREFERENCES));
}

/** @param {Choice} chosen */
export function keepPreferences(chosen) {
  write(PREFERENCES, chosen);
}

/** Forget drafts and choices of conversations that never came to be, when they are a month old. */
export function tidy() {
  const listed = new Set(conversations().map((entry) => entry.id));
  for (const key of keys()) {
    const prefix = [DRAFT, CHOICE].find((one) => key.startsWith(one));
    if (!prefix) continue;
    const id = key.slice(prefix.length);
    if (!listed.has(id) && (!isUlid(id) || timeOf(id) < Date.now() - OLD_MS)) drop(key);
  }
}

/** @param {string} ulid When it was made, milliseconds since the epoch. */
function timeOf(ulid) {
  const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
  return Array.from(ulid.slice(0, 10)).reduce((sum, digit) => sum * 32 + digits.indexOf(digit), 0);
}

/** @param {string} id @param {number} usedAt @returns {Entry} */
function blank(id, usedAt) {
  return { id, title: "", model: "", asked: "", usedAt };
}

/** @param {any} kept @returns {Choice} */
function choice(kept) {
  return { model: String(kept?.model ?? ""), reasoning: kept?.reasoning === true };
}

/** @returns {Set<string>} */
function hidden() {
  const list = read(HIDDEN);
  return new Set(Array.isArray(list) ? list.map(String) : []);
}

/** @returns {string[]} */
function keys() {
  return attempt(() => Object.keys(localStorage)) ?? [];
}

/** @param {string} key @returns {any} */
function read(key) {
  return attempt(() => JSON.parse(localStorage.getItem(key) ?? "null")) ?? null;
}

/** @param {string} key @param {unknown} value */
function write(key, value) {
  attempt(() => localStorage.setItem(key, JSON.stringify(value)));
}

/** @param {string} key */
function drop(key) {
  attempt(() => localStorage.removeItem(key));
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
