// @ts-check
/**
 * Text from outside on the page: always as text nodes in elements that are made here, never as markup.
 * {@link showText} brings what is there to what should be there with as few changes as possible, so that a
 * long answer streams cheaply, nothing flickers, and a selection in it survives.
 */

import { httpsUrl } from "./chat-inline.js";
import { blocksOf } from "./chat-markdown.js";

/** @typedef {import("./chat-markdown.js").Node} Node_ */
/** @typedef {import("./chat-markdown.js").Part} Part */

/** What a place shows. @typedef {{text: string, lines: number[], nodes: Node_[]}} Shown */

/** @type {WeakMap<HTMLElement, Shown>} */
const shown = new WeakMap();
/** What the elements show that were made here. @type {WeakMap<Node, Part>} */
const made = new WeakMap();

/**
 * Show a text in Markdown.
 *
 * @param {HTMLElement} place
 * @param {string} text
 * @param {boolean} [open] Whether more of it is to come.
 */
export function showText(place, text, open = false) {
  const old = shown.get(place);
  // What is added to a text changes its last two blocks at most: what looked like a table was none, for instance.
  const first = old && text.startsWith(old.text) ? Math.max(0, old.nodes.length - 2) : 0;
  const from = first > 0 && old ? old.lines[first] : 0;
  const kept = old?.nodes.slice(0, first) ?? [];
  const blocks = blocksOf(from > 0 ? afterLine(text, from) : text, open);
  const nodes = [...kept, ...blocks.map(({ node }) => node)];
  const lines = [...(old?.lines.slice(0, first) ?? []), ...blocks.map(({ line }) => line + from)];
  bring(place, nodes, kept.length);
  shown.set(place, { text, lines, nodes });
}

/**
 * Show a text as it was written; only code in fences is set apart.
 *
 * @param {HTMLElement} place
 * @param {string} text
 */
export function showPlain(place, text) {
  /** @type {Part[]} */
  const nodes = [];
  /** @type {string[]} */
  let lines = [];
  const flush = () => {
    if (lines.join("").trim() !== "") nodes.push({ tag: "p", parts: [lines.join("\n").replace(/^\n+|\n+$/g, "")] });
    lines = [];
  };
  const all = text.split("\n");
  for (let at = 0; at < all.length; at += 1) {
    if (!/^ {0,3}(`{3}|~{3})/.test(all[at])) {
      lines.push(all[at]);
      continue;
    }
    const end = all.findIndex((line, other) => other > at && /^ {0,3}(`{3,}|~{3,})[ \t]*$/.test(line));
    const [block] = blocksOf(all.slice(at, end < 0 ? undefined : end + 1).join("\n"));
    if (block?.node.tag !== "fence" || end < 0) {
      lines.push(all[at]);
      continue;
    }
    flush();
    nodes.push(block.node);
    at = end;
  }
  flush();
  bring(place, nodes, 0);
}

/** @param {string} text @param {number} line */
function afterLine(text, line) {
  let at = 0;
  for (let count = 0; count < line; count += 1) at = text.indexOf("\n", at) + 1;
  return text.slice(at);
}

/**
 * Bring an element's children to the given parts.
 *
 * @param {Element} place
 * @param {readonly Part[]} parts
 * @param {number} from The first that may have changed.
 */
function bring(place, parts, from) {
  while (place.childNodes.length > parts.length) place.lastChild?.remove();
  for (let at = from; at < parts.length; at += 1) {
    const there = place.childNodes[at];
    const part = parts[at];
    const old = there && made.get(there);
    if (there && old !== undefined && change(there, old, part)) continue;
    const fresh = create(part);
    if (there) there.replaceWith(fresh);
    else place.append(fresh);
  }
}

/**
 * Change a node to show another part.
 *
 * @param {Node} there
 * @param {Part} old
 * @param {Part} part
 * @returns {boolean} False if it has to be made anew.
 */
function change(there, old, part) {
  if (typeof part === "string" || typeof old === "string") {
    if (typeof part !== "string" || !(there instanceof Text)) return false;
    setData(there, part);
  } else {
    const element = /** @type {Element} */ (there);
    const same = old.tag === part.tag && old.href === part.href && old.language === part.language;
    if (!same || old.align !== part.align || old.start !== part.start) return false;
    if (part.tag === "fence") setText(/** @type {Element} */ (element.querySelector("code")), String(part.parts[0]));
    else bring(inside(element, part), part.parts, 0);
  }
  made.set(there, part);
  return true;
}

/** @param {Part} part @returns {Node} */
function create(part) {
  /** @type {Node} */
  let node;
  if (typeof part === "string") node = document.createTextNode(part);
  else if (part.tag === "fence") node = codeBlock(part.language ?? "", String(part.parts[0]));
  else {
    const element = elementFor(part);
    bring(inside(element, part), part.parts, 0);
    node = element;
  }
  made.set(node, part);
  return node;
}

/** The tags that a text may lead to. */
const TAGS = new Set(
  "p h3 h4 h5 h6 hr blockquote ul ol li table thead tbody tr th td strong em s code a".split(" "),
);

/** @param {Node_} node @returns {Element} */
function elementFor(node) {
  if (!TAGS.has(node.tag)) throw new TypeError(`no element for ${node.tag}`);
  if (node.tag === "a") return link(node);
  const element = document.createElement(node.tag);
  if (node.align) element.className = node.align;
  if (node.start !== undefined && node.start !== 1) element.setAttribute("start", String(node.start));
  if (node.tag !== "table") return element;
  const scroller = document.createElement("div");
  scroller.className = "table";
  scroller.tabIndex = 0; // a wide table scrolls, with the keyboard too
  scroller.append(element);
  return scroller;
}

/** Where an element's parts go. @param {Element} element @param {Node_} node */
function inside(element, node) {
  return node.tag === "table" || node.tag === "a" ? /** @type {Element} */ (element.firstElementChild) : element;
}

/** A link that says where it leads, unless its text does. @param {Node_} node */
function link(node) {
  const url = httpsUrl(node.href ?? "");
  const around = document.createElement("span");
  const element = document.createElement(url ? "a" : "span");
  around.append(element);
  if (!url || !(element instanceof HTMLAnchorElement)) return around;
  element.href = url.href;
  element.title = url.href;
  element.target = "_blank";
  element.rel = "noopener noreferrer nofollow";
  element.referrerPolicy = "no-referrer";
  const text = node.parts.length === 1 ? node.parts[0] : "";
  if (typeof text === "string" && httpsUrl(text)?.host === url.host) return around;
  const target = document.createElement("span");
  target.className = "target";
  target.textContent = ` (${url.host})`;
  around.append(target);
  return around;
}

/**
 * Set an element's text; one that only grew is appended to.
 *
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  const node = element.firstChild;
  if (node instanceof Text && element.childNodes.length === 1) setData(node, text);
  else element.textContent = text;
}

/** @param {Text} node @param {string} text */
function setData(node, text) {
  if (node.data === text) return;
  if (text.startsWith(node.data)) node.appendData(text.slice(node.data.length));
  else node.data = text;
}

/** @param {string} language @param {string} text */
function codeBlock(language, text) {
  const figure = document.createElement("div");
  figure.className = "block";
  const header = document.createElement("header");
  const name = document.createElement("span");
  name.textContent = language || "code";
  const code = document.createElement("code");
  code.textContent = text;
  header.append(
    name,
    copyButton(() => code.textContent ?? "", "Copy code"),
  );
  const pre = document.createElement("pre");
  pre.tabIndex = 0; // wide code scrolls, with the keyboard too
  pre.append(code);
  figure.append(header, pre);
  return figure;
}

/** The server's messages begin in lower case, as parts of sentences. @param {string} text */
export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/**
 * @param {() => string} text
 * @param {string} label
 */
export function copyButton(text, label) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = "Copy";
  button.setAttribute("aria-label", label);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}
