// @ts-check
/**
 * Text from outside on the page: always as text nodes, never as markup. Code fences become blocks,
 * back-ticks inline code and double asterisks strong; everything else stays as it was written.
 */

/** @typedef {{kind: "text" | "code", language: string, text: string}} Block */

const INLINE = /(`[^`\n]+`|\*\*[^*\s](?:[^*\n]*[^*\s])?\*\*)/;
const INLINE_PART = /^(?:`([^`\n]+)`|\*\*([^*\n]+)\*\*)$/;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$/;

/**
 * Cut a text into paragraphs of text and of code; a fence that is still open is code to the end.
 *
 * @param {string} text
 * @returns {Block[]}
 */
export function blocksOf(text) {
  /** @type {Block[]} */
  const blocks = [];
  /** @type {string[]} */
  let lines = [];
  let fence = "";
  let language = "";
  /** @param {Block["kind"]} kind */
  const flush = (kind) => {
    const joined = lines.join("\n");
    if (kind === "code" || joined.trim() !== "")
      blocks.push({ kind, language, text: kind === "code" ? joined : joined.replace(/^\n+|\n+$/g, "") });
    lines = [];
    language = "";
  };
  for (const line of text.split("\n")) {
    const opening = FENCE.exec(line);
    if (fence === "" && opening) {
      flush("text");
      [, fence, language] = opening;
    } else if (fence !== "" && opening && opening[2] === "" && opening[1].startsWith(fence)) {
      flush("code");
      fence = "";
    } else lines.push(line);
  }
  flush(fence === "" ? "text" : "code");
  return blocks;
}

/** @type {WeakMap<Element, Block>} */
const shown = new WeakMap();

/**
 * Show a text; what is there already and did not change is left alone, so that a long answer streams
 * cheaply and a selection in it survives.
 *
 * @param {HTMLElement} place
 * @param {string} text
 */
export function showText(place, text) {
  const blocks = blocksOf(text);
  while (place.children.length > blocks.length) place.lastElementChild?.remove();
  blocks.forEach((block, at) => {
    const old = place.children[at];
    const known = old && shown.get(old);
    if (known && known.kind === block.kind && known.language === block.language) {
      if (known.text === block.text) return;
      if (block.kind === "code") setText(/** @type {Element} */ (old.querySelector("code")), block.text);
      else fillParagraph(old, block.text);
      shown.set(old, block);
      return;
    }
    const fresh = block.kind === "code" ? codeBlock(block) : fillParagraph(document.createElement("p"), block.text);
    shown.set(fresh, block);
    if (old) old.replaceWith(fresh);
    else place.append(fresh);
  });
}

/**
 * Set an element's text; one that only grew is appended to.
 *
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  const node = element.firstChild;
  if (node instanceof Text && element.childNodes.length === 1) {
    if (node.data === text) return;
    if (text.startsWith(node.data)) node.appendData(text.slice(node.data.length));
    else node.data = text;
  } else element.textContent = text;
}

/**
 * @param {Element} paragraph
 * @param {string} text
 */
function fillParagraph(paragraph, text) {
  const parts = text.split(INLINE);
  if (parts.length === 1) setText(paragraph, text);
  else paragraph.replaceChildren(...parts.filter((part) => part !== "").map(inline));
  return paragraph;
}

/** @param {string} part @returns {Node | string} */
function inline(part) {
  const [, code, strong] = INLINE_PART.exec(part) ?? [];
  if (code === undefined && strong === undefined) return part;
  const element = document.createElement(code === undefined ? "strong" : "code");
  element.textContent = code ?? strong;
  return element;
}

/** @param {Block} block */
function codeBlock(block) {
  const figure = document.createElement("div");
  figure.className = "block";
  const header = document.createElement("header");
  const language = document.createElement("span");
  language.textContent = block.language || "code";
  const code = document.createElement("code");
  code.textContent = block.text;
  header.append(
    language,
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
