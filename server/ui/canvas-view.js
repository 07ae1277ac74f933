// @ts-check
/**
 * A canvas as SVG: nodes and edges, with hands on them. It shows what it is given and tells what a person wants;
 * it changes nothing by itself.
 *
 * With the keyboard: Tab goes from one to the next, the arrows move, Enter renames, C and then Enter on another
 * one connects, Delete removes.
 */

import { NODE, labelOf, lineBetween, sizeOf } from "./canvas-state.js";

/** @typedef {import("./canvas-state.js").Canvas} Canvas */
/** @typedef {import("./turnwire-frames.js").CanvasNode} CanvasNode */
/** @typedef {{x: number, y: number}} Point */

/**
 * @typedef {object} Wishes
 * @property {(at: Point) => void} add
 * @property {(id: string, to: Point) => void} move
 * @property {(id: string) => void} rename
 * @property {(source: string, target: string) => void} join
 * @property {(nodeIds: string[], edgeIds: string[]) => void} remove
 * @property {(text: string) => void} say For those who do not see it.
 */

const SVG = "http://www.w3.org/2000/svg";
const STEP = 20;
const ZOOM = { least: 0.2, most: 3 };
const MOVED_PX = 3;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class CanvasView {
  #svg;
  #wishes;
  #world = make("g", {});
  #edgeLayer = make("g", {});
  #nodeLayer = make("g", {});
  #rubber = make("line", { class: "rubber", "marker-end": "url(#arrow)" });
  /** @type {Canvas} */
  #canvas = { nodes: new Map(), edges: new Map(), gone: new Set(), version: 0 };
  /** @type {Map<string, SVGGElement>} */
  #elements = new Map();
  #origin = { x: 40, y: 40 };
  #scale = 1;
  /** Where nodes are that are being moved, or whose move is not confirmed. @type {Map<string, Point>} */
  #places = new Map();
  /** The node that a connection was begun from with the keyboard. */
  #from = "";
  /** The node that is dragged. */
  #held = "";
  selected = "";

  /** @param {SVGSVGElement} svg @param {Wishes} wishes */
  constructor(svg, wishes) {
    this.#svg = svg;
    this.#wishes = wishes;
    this.#world.append(this.#edgeLayer, this.#nodeLayer, this.#rubber);
    svg.append(arrow(), this.#world);
    this.#endRubber();
    svg.addEventListener("pointerdown", (event) => this.#press(event));
    svg.addEventListener("dblclick", (event) => this.#double(event));
    svg.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    svg.addEventListener("keydown", (event) => this.#key(event));
    svg.addEventListener("focusin", (event) => this.#select(idOf(event.target)));
    this.#transform();
  }

  /** @param {Canvas} canvas */
  show(canvas) {
    this.#canvas = canvas;
    const keep = new Set([...canvas.nodes.keys(), ...canvas.edges.keys()]);
    for (const [id, element] of this.#elements)
      if (!keep.has(id)) {
        element.remove();
        this.#elements.delete(id);
        if (this.selected === id) this.selected = "";
      }
    for (const node of canvas.nodes.values()) this.#showNode(node);
    this.#showEdges();
  }

  /** Where a node is shown whose move is not settled. @param {string} id */
  placeOf(id) {
    return this.#places.get(id) ?? null;
  }

  /** Whether the node is in the person's hand. @param {string} id */
  holds(id) {
    return this.#held === id;
  }

  /** A move came to its end: the node is where the canvas says. @param {string} id @param {Canvas} canvas */
  settle(id, canvas) {
    this.#places.delete(id);
    this.show(canvas);
  }

  /** A free place near the middle of what is to be seen. @returns {Point} */
  get room() {
    const { width, height } = this.#svg.getBoundingClientRect();
    let x = (width / 2 - this.#origin.x) / this.#scale - NODE.width / 2;
    let y = (height / 2 - this.#origin.y) / this.#scale - NODE.height / 2;
    const taken = Array.from(this.#canvas.nodes.values(), (node) => this.#placeOf(node));
    while (taken.some((place) => Math.abs(place.x - x) < STEP && Math.abs(place.y - y) < STEP)) {
      x += 2 * STEP;
      y += 2 * STEP;
    }
    return { x, y };
  }

  /** Show all that there is. */
  fit() {
    const boxes = Array.from(this.#canvas.nodes.values(), (node) => ({ ...node.position, ...sizeOf(node) }));
    if (boxes.length === 0) return;
    const left = Math.min(...boxes.map(({ x }) => x));
    const top = Math.min(...boxes.map(({ y }) => y));
    const wide = Math.max(...boxes.map(({ x, width }) => x + width)) - left;
    const high = Math.max(...boxes.map(({ y, height }) => y + height)) - top;
    const { width, height } = this.#svg.getBoundingClientRect();
    this.#scale = Math.min(1, Math.max(ZOOM.least, Math.min((width - 80) / wide, (height - 80) / high)));
    this.#origin = { x: (width - wide * this.#scale) / 2 - left * this.#scale, y: (height - high * this.#scale) / 2 - top * this.#scale };
    this.#transform();
  }

  /** Remove what is selected. */
  removeSelected() {
    if (this.#canvas.nodes.has(this.selected)) this.#wishes.remove([this.selected], []);
    else if (this.#canvas.edges.has(this.selected)) this.#wishes.remove([], [this.selected]);
  }

  /** @param {CanvasNode} node */
  #showNode(node) {
    let element = this.#elements.get(node.id);
    if (!element) {
      element = make("g", { class: "node", tabindex: "0", role: "group", "data-id": node.id });
      element.append(make("rect", { rx: "10" }), make("text", {}), make("circle", { class: "handle", r: "7" }), make("title", {}));
      this.#nodeLayer.append(element);
      this.#elements.set(node.id, element);
    }
    const { width, height } = sizeOf(node);
    const { x, y } = this.#placeOf(node);
    const label = labelOf(node);
    const [rect, text, handle, title] = /** @type {any} */ (element.children);
    set(element, { transform: `translate(${x} ${y})`, "aria-label": label });
    set(rect, { width: String(width), height: String(height) });
    set(text, { x: String(width / 2), y: String(height / 2) });
    set(handle, { cx: String(width), cy: String(height / 2) });
    const short = Array.from(label);
    const room = Math.max(3, Math.floor(width / 8.5));
    const shown = short.length > room ? `${short.slice(0, room - 1).join("")}…` : label;
    if (text.textContent !== shown) text.textContent = shown;
    if (title.textContent !== label) title.textContent = label;
    element.dataset.selected = String(this.selected === node.id);
    element.dataset.made = node.created_by ? "model" : "person";
  }

  #showEdges() {
    for (const edge of this.#canvas.edges.values()) {
      const [from, to] = [this.#canvas.nodes.get(edge.source), this.#canvas.nodes.get(edge.target)];
      if (!from || !to) continue; // its page has not come yet
      let element = this.#elements.get(edge.id);
      if (!element) {
        element = make("g", { class: "edge", tabindex: "0", role: "group", "data-id": edge.id });
        element.append(make("line", { class: "reach" }), make("line", { class: "line", "marker-end": "url(#arrow)" }));
        this.#edgeLayer.append(element);
        this.#elements.set(edge.id, element);
      }
      const line = lineBetween({ ...from, position: this.#placeOf(from) }, { ...to, position: this.#placeOf(to) });
      const ends = { x1: `${line.from.x}`, y1: `${line.from.y}`, x2: `${line.to.x}`, y2: `${line.to.y}` };
      for (const child of Array.from(element.children)) set(child, ends);
      set(element, { "aria-label": `${labelOf(from)} to ${labelOf(to)}` });
      element.dataset.selected = String(this.selected === edge.id);
    }
  }

  /** @param {CanvasNode} node @returns {Point} */
  #placeOf(node) {
    return this.#places.get(node.id) ?? node.position;
  }

  /** @param {string} id */
  #select(id) {
    if (this.selected === id) return;
    this.selected = id;
    for (const [other, element] of this.#elements) element.dataset.selected = String(other === id);
  }

  /** @param {PointerEvent} event */
  #press(event) {
    if (event.button !== 0) return;
    const id = idOf(event.target);
    const node = this.#canvas.nodes.get(id);
    this.#select(id);
    this.#elements.get(id)?.focus({ preventScroll: true });
    if (node && event.target instanceof Element && event.target.classList.contains("handle")) this.#pull(event, node);
    else if (node) this.#drag(event, node);
    else if (id === "") this.#pan(event);
    event.preventDefault();
  }

  /** @param {PointerEvent} event @param {CanvasNode} node */
  #drag(event, node) {
    const from = this.#placeOf(node);
    const start = this.#point(event);
    this.#held = node.id;
    this.#follow(event, {
      move: (at) => {
        this.#places.set(node.id, { x: from.x + at.x - start.x, y: from.y + at.y - start.y });
        this.show(this.#canvas);
      },
      end: (moved) => {
        this.#held = "";
        const to = this.#places.get(node.id);
        if (moved && to) this.#wishes.move(node.id, { x: Math.round(to.x), y: Math.round(to.y) });
        else this.settle(node.id, this.#canvas);
      },
    });
  }

  /** @param {PointerEvent} event @param {CanvasNode} node */
  #pull(event, node) {
    const { width, height } = sizeOf(node);
    const { x, y } = this.#placeOf(node);
    this.#follow(event, {
      move: (at) => {
        set(this.#rubber, { x1: `${x + width}`, y1: `${y + height / 2}`, x2: `${at.x}`, y2: `${at.y}` });
        this.#rubber.removeAttribute("visibility");
      },
      end: (_moved, last) => {
        this.#endRubber();
        const target = idOf(document.elementFromPoint(last.clientX, last.clientY));
        if (target !== node.id && this.#canvas.nodes.has(target)) this.#wishes.join(node.id, target);
      },
    });
  }

  /** @param {PointerEvent} event */
  #pan(event) {
    const from = this.#origin;
    this.#svg.focus({ preventScroll: true });
    this.#follow(event, {
      move: (_at, now) => {
        this.#origin = { x: from.x + now.clientX - event.clientX, y: from.y + now.clientY - event.clientY };
        this.#transform();
      },
      end: () => {},
    });
  }

  /**
   * Follow the pointer until it is let go.
   *
   * @param {PointerEvent} first
   * @param {{move: (at: Point, event: PointerEvent) => void, end: (moved: boolean, last: PointerEvent) => void}} told
   */
  #follow(first, told) {
    let moved = false;
    const over = new AbortController();
    /** @param {PointerEvent} event */
    const mine = (event) => event.pointerId === first.pointerId;
    const { signal } = over;
    addEventListener("pointermove", (event) => {
      if (!mine(event)) return;
      moved ||= Math.hypot(event.clientX - first.clientX, event.clientY - first.clientY) > MOVED_PX;
      if (moved) told.move(this.#point(event), event);
    }, { signal });
    for (const kind of /** @type {const} */ (["pointerup", "pointercancel"]))
      addEventListener(kind, (event) => {
        if (!mine(event)) return;
        over.abort();
        told.end(moved && kind === "pointerup", event);
      }, { signal });
  }

  /** @param {MouseEvent} event */
  #double(event) {
    const id = idOf(event.target);
    if (this.#canvas.nodes.has(id)) this.#wishes.rename(id);
    else if (id === "") this.#wishes.add(this.#point(event));
  }

  /** @param {WheelEvent} event */
  #wheel(event) {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) {
      const at = this.#point(event);
      const scale = Math.min(ZOOM.most, Math.max(ZOOM.least, this.#scale * Math.exp(-event.deltaY / 300)));
      this.#origin = { x: this.#origin.x + at.x * (this.#scale - scale), y: this.#origin.y + at.y * (this.#scale - scale) };
      this.#scale = scale;
    } else this.#origin = { x: this.#origin.x - event.deltaX, y: this.#origin.y - event.deltaY };
    this.#transform();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const node = this.#canvas.nodes.get(this.selected);
    const step = ARROWS[/** @type {keyof typeof ARROWS} */ (event.key)];
    if (step && node) {
      const { x, y } = this.#placeOf(node);
      const to = { x: x + step[0] * STEP, y: y + step[1] * STEP };
      this.#places.set(node.id, to);
      this.show(this.#canvas);
      this.#wishes.move(node.id, to);
    } else if (event.key === "Delete" || event.key === "Backspace") this.removeSelected();
    else if (event.key === "Enter" && node && this.#from !== "" && this.#from !== node.id) {
      this.#wishes.join(this.#from, node.id);
      this.#from = "";
    } else if (event.key === "Enter" && node) this.#wishes.rename(node.id);
    else if (event.key.toLowerCase() === "c" && node && !event.ctrlKey && !event.metaKey) {
      this.#from = node.id;
      this.#wishes.say(`From ${labelOf(node)}: go to another one and press Enter to connect them.`);
    } else if (event.key === "Escape") this.#from = "";
    else return;
    event.preventDefault();
  }

  /** Where an event is on the canvas. @param {MouseEvent} event @returns {Point} */
  #point(event) {
    const { left, top } = this.#svg.getBoundingClientRect();
    return { x: (event.clientX - left - this.#origin.x) / this.#scale, y: (event.clientY - top - this.#origin.y) / this.#scale };
  }

  #transform() {
    set(this.#world, { transform: `translate(${this.#origin.x} ${this.#origin.y}) scale(${this.#scale})` });
  }

  #endRubber() {
    set(this.#rubber, { visibility: "hidden" });
  }
}

/** The id of the node or edge that something belongs to; empty for the ground. @param {EventTarget | null} target */
function idOf(target) {
  const element = target instanceof Element ? target.closest("[data-id]") : null;
  return element?.getAttribute("data-id") ?? "";
}

function arrow() {
  const marker = make("marker", { id: "arrow", viewBox: "0 0 10 10", refX: "9", refY: "5", markerWidth: "8", markerHeight: "8", orient: "auto" });
  marker.append(make("path", { d: "M0 0 10 5 0 10z", class: "tip" }));
  const definitions = make("defs", {});
  definitions.append(marker);
  return definitions;
}

/**
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, string>} attributes
 * @returns {SVGElementTagNameMap[T]}
 */
function make(tag, attributes) {
  const element = /** @type {SVGElementTagNameMap[T]} */ (document.createElementNS(SVG, tag));
  set(element, attributes);
  return element;
}

/** @param {Element} element @param {Record<string, string>} attributes */
function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes))
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
