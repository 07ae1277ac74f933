// @ts-check
/** A project's canvas as the page holds it: the connection, and what a person does to the canvas. */

import { EMPTY, reduce } from "./canvas-state.js";
import { ticket } from "./chat-api.js";
import { Channel } from "./turnwire-channel.js";
import { newUlid } from "./turnwire-identity.js";
import { RequestError } from "./turnwire-requests.js";

/** @typedef {import("./turnwire-frames.js").CanvasNode} CanvasNode */
/** @typedef {import("./turnwire-frames.js").CanvasState} CanvasState */
/** @typedef {import("./canvas-state.js").Canvas} Canvas */

/** @extends {Channel<Canvas>} */
export class Project extends Channel {
  /** What went wrong last, for people; empty if nothing did. */
  trouble = "";
  /** Whether all pages of the canvas are here. */
  whole = false;
  #load = 0;

  /** @param {string} id */
  constructor(id) {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    super(`${scheme}://${location.host}/ws/projects/${id}`, { empty: EMPTY, reduce }, { ticket });
    this.on("frame", (frame) => {
      const anew = frame.type === "snapshot" || (frame.type === "connected" && frame.resume === "fresh");
      if (anew) void this.#read();
    });
  }

  /** @param {string} label @param {{x: number, y: number}} position */
  add(label, position) {
    return this.#change({ type: "canvas_node_create", node: { data: { label }, position } });
  }

  /** @param {CanvasNode} node @param {{x: number, y: number}} position */
  move({ id, version }, position) {
    return this.#change({ type: "canvas_node_update", node: { id, version, position } });
  }

  /** @param {CanvasNode} node @param {string} label */
  rename({ id, version }, label) {
    return this.#change({ type: "canvas_node_update", node: { id, version, data: { label } } });
  }

  /** @param {string} source @param {string} target */
  join(source, target) {
    return this.#change({ type: "canvas_edge_create", edge: { source, target } });
  }

  /** @param {readonly string[]} nodeIds @param {readonly string[]} edgeIds */
  remove(nodeIds, edgeIds) {
    return this.#change({ type: "canvas_batch_delete", node_ids: [...nodeIds], edge_ids: [...edgeIds] });
  }

  /** @param {any} frame */
  async #change(frame) {
    this.trouble = "";
    try {
      const told = await this.request({ ...frame, domain: "canvas", request_id: newUlid() });
      if (told.success === false) this.trouble = told.errors[0]?.message ?? "Nothing was changed.";
    } catch (error) {
      this.trouble = troubleOf(error);
    }
    this.touch();
    return this.trouble === "";
  }

  /** Read the canvas, page by page. What changes meanwhile comes as frames of its own. */
  async #read() {
    const load = (this.#load += 1);
    this.whole = false;
    let cursor = "";
    try {
      do {
        const frame = { type: "canvas_get", domain: "canvas", request_id: newUlid(), ...(cursor ? { cursor } : {}) };
        /** @type {CanvasState} */
        const page = await this.request(/** @type {any} */ (frame));
        cursor = page.next_cursor ?? "";
      } while (cursor !== "" && load === this.#load);
      this.whole = load === this.#load;
    } catch (error) {
      this.trouble = troubleOf(error);
    }
    this.touch();
  }
}

/** @param {unknown} error */
function troubleOf(error) {
  if (error instanceof RequestError && error.code === "version_conflict")
    return "It was changed somewhere else meanwhile; this is how it is now.";
  return error instanceof Error ? error.message : String(error);
}
