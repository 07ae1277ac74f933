// @ts-check
/**
 * Marks within a line of Markdown: code, strong, emphasis, strike-through and links, as data.
 *
 * The time it takes grows with the length of the text alone, whatever is in it.
 */

/** @typedef {import("./chat-markdown.js").Part} Part */
/** @typedef {import("./chat-markdown.js").Node} Node */

/** Paragraphs longer than this stay plain. */
const LONGEST = 50_000;
const DEEPEST = 12;
const LINK = /!?\[((?:[^[\]\\\n]|\\.){0,300})\]\([ \t]*<?(https:\/\/[^\s<>()]{1,2000}(?:\([^\s<>()]{0,300}\)[^\s<>()]{0,300}){0,3})>?(?:[ \t]+"[^"\n]{0,300}")?[ \t]*\)/y;
/** A link whose address is still being written. */
const BEGUN = /!?\[((?:[^[\]\\\n]|\\.){0,300})(?:\](?:\([^\s()]{0,2000})?)?$/y;
const BARE = /https:\/\/[^\s<>"'`*\\]{1,2000}/y;
const MARKS = { "**": "strong", __: "strong", "*": "em", _: "em", "~~": "s" };
const SPACE = /[\s\u00a0]/;
const WORD = /[\p{L}\p{N}]/u;

/**
 * @param {string} text
 * @param {boolean} open Whether more of it is to come.
 * @returns {readonly Part[]}
 */
export function inlineOf(text, open = false) {
  if (text.length > LONGEST || !/[`*_~[\\:]/.test(text)) return text === "" ? [] : [text];
  return new Inline(text, open, true).read();
}

/** A mark that is open, and what came after it. @typedef {{mark: string, parts: Part[]}} Level */

class Inline {
  #text;
  #open;
  #links;
  #at = 0;
  /** The first is the whole. @type {Level[]} */
  #levels = [{ mark: "", parts: [] }];
  /** Where runs of back-ticks are, by their length, the last one first. @type {Map<number, number[]>} */
  #ticks = new Map();

  /** @param {string} text @param {boolean} open @param {boolean} links Whether there may be links. */
  constructor(text, open, links) {
    this.#text = text;
    this.#open = open;
    this.#links = links;
    for (const run of Array.from(text.matchAll(/`+/g)).reverse()) {
      const places = this.#ticks.get(run[0].length) ?? [];
      this.#ticks.set(run[0].length, places);
      places.push(run.index);
    }
  }

  /** @returns {readonly Part[]} */
  read() {
    const text = this.#text;
    while (this.#at < text.length) {
      const at = this.#at;
      switch (text[at]) {
        case "\\":
          this.#escaped();
          break;
        case "`":
          this.#code();
          break;
        case "*":
        case "_":
        case "~":
          this.#mark();
          break;
        case "!":
        case "[":
          if (!this.#links || !this.#link()) this.#take(1);
          break;
        case "h":
          if (!this.#links || !this.#bare()) this.#take(1);
          break;
        default:
          this.#plain();
      }
    }
    while (this.#levels.length > 1) this.#end(this.#open && !this.#isEmpty());
    return this.#levels[0].parts;
  }

  #plain() {
    const next = /[\\`*_~![h]/g;
    next.lastIndex = this.#at;
    this.#take((next.exec(this.#text)?.index ?? this.#text.length) - this.#at);
  }

  #escaped() {
    const next = this.#text[this.#at + 1];
    if (next !== undefined && /[!-/:-@[-`{-~]/.test(next)) {
      this.#put(next);
      this.#at += 2;
    } else this.#take(1);
  }

  #code() {
    const from = this.#at;
    const length = this.#run("`");
    const places = this.#ticks.get(length) ?? [];
    while (places.length > 0 && places[places.length - 1] <= from) places.pop();
    const end = places[places.length - 1];
    if (end === undefined && !(this.#open && length < 3)) {
      this.#take(length);
      return;
    }
    const inner = this.#text.slice(from + length, end ?? this.#text.length);
    const trimmed = inner.length > 2 && inner.startsWith(" ") && inner.endsWith(" ") ? inner.slice(1, -1) : inner;
    if (trimmed !== "") this.#put({ tag: "code", parts: [trimmed] });
    this.#at = end === undefined ? this.#text.length : end + length;
  }

  #mark() {
    const text = this.#text;
    const sign = text[this.#at];
    const length = this.#run(sign);
    const before = text[this.#at - 1] ?? " ";
    const after = text[this.#at + length];
    const times = length === 1 && /\d/.test(before) && /\d/.test(after ?? "");
    if (times || length > 3 || (sign === "~" && length !== 2)) {
      this.#take(length);
      return;
    }
    const within = sign === "_" && WORD.test(before) && after !== undefined && WORD.test(after);
    const closes = !within && !SPACE.test(before);
    let left = length;
    while (closes && left > 0) {
      const found = this.#levels.findLastIndex(({ mark }) => mark[0] === sign && mark.length <= left);
      if (found < 1) break;
      const { mark } = this.#levels[found];
      while (this.#levels.length > found + 1) this.#end(false);
      if (this.#isEmpty()) break;
      this.#end(true);
      left -= mark.length;
    }
    this.#at += length;
    if (left === 0) return;
    if (after === undefined && this.#open) return; // what it begins is not there yet
    const opens = after !== undefined && !SPACE.test(after) && !(sign === "_" && WORD.test(before));
    if (!opens || left === length - 1 || this.#levels.length > DEEPEST) this.#put(sign.repeat(left));
    else {
      if (left !== 1) this.#levels.push({ mark: sign.repeat(2), parts: [] });
      if (left !== 2) this.#levels.push({ mark: sign, parts: [] });
    }
  }

  /** @returns {boolean} Whether there was one. */
  #link() {
    LINK.lastIndex = this.#at;
    const whole = LINK.exec(this.#text);
    const url = whole && httpsUrl(whole[2]);
    if (whole && url) {
      const label = new Inline(whole[1] || url.host, false, false).read();
      this.#put({ tag: "a", href: url.href, parts: label });
      this.#at += whole[0].length;
      return true;
    }
    BEGUN.lastIndex = this.#at;
    const begun = this.#open && !whole ? BEGUN.exec(this.#text) : null;
    if (!begun) return false;
    for (const part of new Inline(begun[1], true, false).read()) this.#put(part);
    this.#at += begun[0].length;
    return true;
  }

  /** @returns {boolean} Whether there was one. */
  #bare() {
    BARE.lastIndex = this.#at;
    const found = WORD.test(this.#text[this.#at - 1] ?? " ") ? null : BARE.exec(this.#text);
    if (!found) return false;
    let address = found[0].replace(/[.,;:!?_~\]|]+$/, "");
    while (address.endsWith(")") && address.split("(").length < address.split(")").length)
      address = address.slice(0, -1).replace(/[.,;:!?]+$/, "");
    const url = httpsUrl(address);
    if (!url) return false;
    this.#put({ tag: "a", href: url.href, parts: [address] });
    this.#at += address.length;
    return true;
  }

  /** The length of the run of a sign that is here. @param {string} sign */
  #run(sign) {
    let end = this.#at;
    while (this.#text[end] === sign) end += 1;
    return end - this.#at;
  }

  #isEmpty() {
    return this.#levels[this.#levels.length - 1].parts.length === 0;
  }

  /** End the innermost mark: as what it marks, or as the text that it is. @param {boolean} closed */
  #end(closed) {
    const { mark, parts } = /** @type {Level} */ (this.#levels.pop());
    if (closed) this.#put({ tag: MARKS[/** @type {keyof typeof MARKS} */ (mark)], parts });
    else {
      if (!(this.#open && parts.length === 0)) this.#put(mark);
      for (const part of parts) this.#put(part);
    }
  }

  /** @param {number} length */
  #take(length) {
    this.#put(this.#text.slice(this.#at, this.#at + length));
    this.#at += length;
  }

  /** @param {Part} part */
  #put(part) {
    const { parts } = this.#levels[this.#levels.length - 1];
    const last = parts[parts.length - 1];
    if (typeof part === "string" && typeof last === "string") parts[parts.length - 1] = last + part;
    else parts.push(part);
  }
}

/**
 * An address that a link may lead to: encrypted, and without a name in front that looks like another host.
 *
 * @param {string} text
 * @returns {URL | null}
 */
export function httpsUrl(text) {
  try {
    const url = new URL(text);
    return url.protocol === "https:" && url.username === "" && url.password === "" ? url : null;
  } catch {
    return null;
  }
}
