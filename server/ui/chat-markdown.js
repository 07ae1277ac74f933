// @ts-check
/**
 * Blocks of a text in Markdown: what models write of it, as data. Everything that is not understood stays as it was
 * written. It makes no elements; {@link module:chat-text} does.
 *
 * A text that is still being written is read with `open`: a mark that has just begun counts as closed at the end, or
 * is left out until it is clear what it becomes, so that nothing is shown as one thing and then as another.
 */

import { inlineOf } from "./chat-inline.js";

/**
 * An element to be: `tag` and what is in it. The tag `fence` is a block of code, its language in `language`.
 *
 * @typedef {object} Node
 * @property {string} tag
 * @property {readonly Part[]} parts
 * @property {string} [href]
 * @property {string} [language]
 * @property {number} [start] Number of the first item of an ordered list.
 * @property {string} [align] Of a table's cell.
 */

/** @typedef {Node | string} Part */

/** A block at the top, and the line that it begins with. @typedef {{line: number, node: Node}} Block */

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}>[ \t]?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*))?$/;
const DELIMITERS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
/** A last line that may become anything yet. */
const UNCLEAR = /^\s*(?:[-*+_|:>]+|#{1,6}|\d{1,9}[.)]?|`{1,2}|~{1,2}|-[-\s]+|`{3,}[^`]*|~{3,}.*)[ \t]*$/;
/** The same within code. */
const UNCLEAR_IN_CODE = /^ {0,3}(?:`+|~+)[ \t]*$/;
const DEEPEST = 8;
/** Blank lines that a list may have between its items. */
const MOST_BLANKS = 4;

/**
 * @param {string} text
 * @param {boolean} open Whether more of it is to come.
 * @returns {Block[]}
 */
export function blocksOf(text, open = false) {
  const lines = text.split("\n");
  const last = lines[lines.length - 1];
  if (open && last !== "" && (inFence(lines) ? UNCLEAR_IN_CODE : UNCLEAR).test(last)) lines.pop();
  return new Reader(lines, open, 0).read();
}

/** Whether the last line comes after the beginning of code. @param {readonly string[]} lines */
function inFence(lines) {
  let fence = "";
  for (const line of lines.slice(0, -1)) {
    const mark = FENCE.exec(line);
    if (!mark) continue;
    if (fence === "") fence = mark[1];
    else if (mark[2] === "" && mark[1].startsWith(fence)) fence = "";
  }
  return fence !== "";
}

/** Reads lines into blocks, from the first to the last. */
class Reader {
  #lines;
  #open;
  #depth;
  #at = 0;

  /** @param {readonly string[]} lines @param {boolean} open @param {number} depth Of quotes and lists around it. */
  constructor(lines, open, depth) {
    this.#lines = lines;
    this.#open = open;
    this.#depth = depth;
  }

  /** @returns {Block[]} */
  read() {
    const blocks = [];
    while (this.#at < this.#lines.length) {
      const line = this.#at;
      if (this.#blank(line)) this.#at += 1;
      else blocks.push({ line, node: this.#block() });
    }
    return blocks;
  }

  /** @returns {Node} */
  #block() {
    const line = this.#lines[this.#at];
    const fence = FENCE.exec(line);
    if (fence) return this.#fence(fence);
    const heading = HEADING.exec(line);
    if (heading) {
      this.#at += 1;
      return { tag: `h${Math.min(6, heading[1].length + 2)}`, parts: this.#inline(heading[2]) };
    }
    if (RULE.test(line)) {
      this.#at += 1;
      return { tag: "hr", parts: [] };
    }
    const nested = this.#depth < DEEPEST;
    if (nested && QUOTE.test(line)) return this.#quote();
    if (nested && ITEM.exec(line)?.[3] !== undefined) return this.#list();
    return this.#table() ?? this.#paragraph();
  }

  /** @param {RegExpExecArray} opening @returns {Node} */
  #fence([, fence, language]) {
    const lines = [];
    for (this.#at += 1; this.#at < this.#lines.length; this.#at += 1) {
      const mark = FENCE.exec(this.#lines[this.#at]);
      if (mark && mark[2] === "" && mark[1].startsWith(fence)) {
        this.#at += 1;
        break;
      }
      lines.push(this.#lines[this.#at]);
    }
    return { tag: "fence", language, parts: [lines.join("\n")] };
  }

  /** @returns {Node} */
  #quote() {
    const lines = [];
    for (; this.#at < this.#lines.length && QUOTE.test(this.#lines[this.#at]); this.#at += 1)
      lines.push(this.#lines[this.#at].replace(QUOTE, ""));
    return { tag: "blockquote", parts: this.#within(lines) };
  }

  /** @returns {Node} */
  #list() {
    const first = /** @type {RegExpExecArray} */ (ITEM.exec(this.#lines[this.#at]));
    const ordered = /\d/.test(first[2]);
    const base = first[1].length;
    const items = [];
    while (this.#at < this.#lines.length) {
      const item = ITEM.exec(this.#lines[this.#at]);
      if (!item || item[3] === undefined || RULE.test(this.#lines[this.#at])) break;
      if (item[1].length < base || item[1].length > base + 1 || /\d/.test(item[2]) !== ordered) break;
      items.push(this.#item(item, base));
    }
    return { tag: ordered ? "ol" : "ul", parts: items, ...(ordered ? { start: Number.parseInt(first[2], 10) } : {}) };
  }

  /** @param {RegExpExecArray} item @param {number} base @returns {Node} */
  #item([, indent, mark, , rest], base) {
    const lines = [rest];
    const inner = indent.length + mark.length + 1;
    for (this.#at += 1; this.#at < this.#lines.length; this.#at += 1) {
      const line = this.#lines[this.#at];
      const depth = line.length - line.trimStart().length;
      if (this.#blank(this.#at)) {
        let next = this.#at + 1;
        while (next < this.#lines.length && next < this.#at + MOST_BLANKS && this.#blank(next)) next += 1;
        const after = this.#lines[next] ?? "";
        if (after.length - after.trimStart().length < base + 2) {
          if (this.#sameList(after, base)) this.#at = next;
          break;
        }
        lines.push("");
      } else if (depth >= base + 2) lines.push(line.slice(Math.min(depth, inner)));
      else if (this.#beginsBlock(line) || lines[lines.length - 1] === "") break;
      else lines.push(line.trimStart());
    }
    const blocks = this.#within(lines);
    // A list is close unless its items have paragraphs of their own.
    const [head, ...others] = blocks;
    const parts = typeof head === "object" && head.tag === "p" ? [...head.parts, ...others] : blocks;
    return { tag: "li", parts };
  }

  /** Whether a line after blank ones goes on with the list. @param {string} line @param {number} base */
  #sameList(line, base) {
    const item = ITEM.exec(line);
    return item !== null && item[3] !== undefined && item[1].length >= base && item[1].length <= base + 1;
  }

  /** @returns {Node | null} Null if there is no table here. */
  #table() {
    const head = this.#lines[this.#at];
    if (!head.includes("|")) return null;
    const marks = this.#lines[this.#at + 1];
    // While it is written, a first line that begins as a table's does is one.
    const hopeful = this.#open && head.trimStart().startsWith("|") && this.#at + 2 >= this.#lines.length;
    const names = cells(head);
    if (marks === undefined ? !hopeful : !(DELIMITERS.test(marks) || (hopeful && /^[\s|:-]*$/.test(marks)))) return null;
    const aligns = cells(marks ?? "").map(alignOf);
    if (!hopeful && aligns.length !== names.length) return null;
    /** @param {string} tag @param {readonly string[]} texts @returns {Node} */
    const row = (tag, texts) => ({
      tag: "tr",
      parts: names.map((_name, at) => ({ tag, align: aligns[at] ?? "", parts: this.#inline(texts[at] ?? "") })),
    });
    const rows = [];
    for (this.#at += 2; this.#at < this.#lines.length; this.#at += 1) {
      const line = this.#lines[this.#at];
      if (!line.includes("|") || this.#beginsBlock(line)) break;
      rows.push(row("td", cells(line)));
    }
    const parts = [{ tag: "thead", parts: [row("th", names)] }];
    return { tag: "table", parts: rows.length > 0 ? [...parts, { tag: "tbody", parts: rows }] : parts };
  }

  /** @returns {Node} */
  #paragraph() {
    const lines = [];
    for (; this.#at < this.#lines.length && !this.#blank(this.#at); this.#at += 1) {
      const line = this.#lines[this.#at];
      if (lines.length > 0 && (this.#beginsBlock(line) || this.#beginsTable())) break;
      lines.push(line);
    }
    return { tag: "p", parts: this.#inline(lines.join("\n")) };
  }

  /** @param {string} line Whether it ends the paragraph before it. */
  #beginsBlock(line) {
    if (FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return true;
    if (this.#depth >= DEEPEST) return false;
    const item = ITEM.exec(line);
    return QUOTE.test(line) || (item !== null && item[3] !== undefined && item[1].length < 4);
  }

  #beginsTable() {
    const marks = this.#lines[this.#at + 1];
    const line = this.#lines[this.#at];
    if (!line.includes("|")) return false;
    if (marks === undefined) return this.#open && line.trimStart().startsWith("|");
    return marks.includes("|") && DELIMITERS.test(marks) && cells(marks).length === cells(line).length;
  }

  /** @param {readonly string[]} lines @returns {Part[]} */
  #within(lines) {
    const atEnd = this.#open && this.#at >= this.#lines.length;
    return new Reader(lines, atEnd, this.#depth + 1).read().map(({ node }) => node);
  }

  /** @param {string} text */
  #inline(text) {
    return inlineOf(text, this.#open && this.#at >= this.#lines.length - 1);
  }

  /** @param {number} at */
  #blank(at) {
    return this.#lines[at].trim() === "";
  }
}

/** The cells of a table's line; a bar after a backslash or in code is none of its bars. @param {string} line */
function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  const texts = [""];
  for (const part of inner.match(/\\.|`[^`]*`|[^|\\`]+|[|\\`]/g) ?? []) {
    if (part === "|") texts.push("");
    else texts[texts.length - 1] += part === "\\|" ? "|" : part;
  }
  return texts.map((text) => text.trim());
}

/** @param {string} mark */
function alignOf(mark) {
  if (!mark.endsWith(":")) return "";
  return mark.startsWith(":") ? "center" : "right";
}
