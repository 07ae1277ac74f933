// @ts-check
/** The state of a project's canvas, made from frames by one pure function. No sockets and no page here. */

/** @typedef {import("./turnwire-frames.js").ServerFrame} ServerFrame */
/** @typedef {import("./turnwire-frames.js").CanvasNode} CanvasNode */
/** @typedef {import("./turnwire-frames.js").CanvasEdge} CanvasEdge */

/**
 * @typedef {object} Canvas
 * @property {ReadonlyMap<string, CanvasNode>} nodes
 * @property {ReadonlyMap<string, CanvasEdge>} edges
 * @property {ReadonlySet<string>} gone Deleted since the state was begun: a page read before does not bring it back.
 * @property {number} version
 */

/** @type {Canvas} */
export const EMPTY = Object.freeze({ nodes: new Map(), edges: new Map(), gone: new Set(), version: 0 });

/**
 * The state after one frame; frames that are not about the canvas leave it as it is.
 *
 * @param {Canvas} canvas
 * @param {ServerFrame} frame
 * @returns {Canvas}
 */
export function reduce(canvas, frame) {
  switch (frame.type) {
    case "connected":
      return frame.resume === "fresh" ? EMPTY : canvas;
    case "snapshot":
      return EMPTY; // its pages are asked for
    case "canvas_state":
      return put(canvas, frame, [], []);
    case "canvas_changed":
    case "canvas_batch_result":
      // An earlier outcome, told again to whoever asked again: the state has it already.
      if (frame.repeated || frame.seq === undefined) return canvas;
      return put(canvas, frame, frame.deleted_node_ids, frame.deleted_edge_ids);
    default:
      return canvas;
  }
}

/**
 * @param {Canvas} canvas
 * @param {{nodes: CanvasNode[], edges: CanvasEdge[], canvas_version: number}} told
 * @param {readonly string[]} nodeIds
 * @param {readonly string[]} edgeIds
 * @returns {Canvas}
 */
function put(canvas, told, nodeIds, edgeIds) {
  const gone = new Set([...canvas.gone, ...nodeIds, ...edgeIds]);
  return {
    nodes: newer(canvas.nodes, told.nodes, gone),
    edges: newer(canvas.edges, told.edges, gone),
    gone,
    version: Math.max(canvas.version, told.canvas_version),
  };
}

/**
 * @template {{id: string, version: number}} T
 * @param {ReadonlyMap<string, T>} known
 * @param {readonly T[]} told
 * @param {ReadonlySet<string>} gone
 * @returns {ReadonlyMap<string, T>}
 */
function newer(known, told, gone) {
  const next = new Map(known);
  for (const one of told) if (one.version >= (next.get(one.id)?.version ?? 0)) next.set(one.id, one);
  for (const id of gone) next.delete(id);
  return next;
}

/** What a node is called. @param {CanvasNode} node */
export function labelOf(node) {
  const { label, title, text, name } = node.data;
  const found = [label, title, text, name].find((value) => typeof value === "string" && value.trim() !== "");
  return typeof found === "string" ? found : node.type === "default" ? "Untitled" : node.type;
}

export const NODE = Object.freeze({ width: 160, height: 56 });

/** How large a node is drawn. @param {CanvasNode} node */
export function sizeOf({ size }) {
  return { width: Math.max(40, size?.width ?? NODE.width), height: Math.max(30, size?.height ?? NODE.height) };
}

/**
 * Where the line between two nodes meets their borders.
 *
 * @param {CanvasNode} from
 * @param {CanvasNode} to
 */
export function lineBetween(from, to) {
  const start = centre(from);
  const end = centre(to);
  return { from: border(from, start, end), to: border(to, end, start) };
}

/** @param {CanvasNode} node */
function centre(node) {
  const { width, height } = sizeOf(node);
  return { x: node.position.x + width / 2, y: node.position.y + height / 2 };
}

/**
 * @param {CanvasNode} node
 * @param {{x: number, y: number}} middle Of the node.
 * @param {{x: number, y: number}} other
 */
function border(node, middle, other) {
  const { width, height } = sizeOf(node);
  const [dx, dy] = [other.x - middle.x, other.y - middle.y];
  if (dx === 0 && dy === 0) return middle;
  const scale = Math.min(width / 2 / (Math.abs(dx) || 1e-9), height / 2 / (Math.abs(dy) || 1e-9));
  return { x: middle.x + dx * scale, y: middle.y + dy * scale };
}
