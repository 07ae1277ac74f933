// The state of a canvas: pages and changes make the same, in whatever order they come.

import assert from "node:assert/strict";
import { test } from "node:test";

import { EMPTY, labelOf, lineBetween, reduce } from "../../server/ui/canvas-state.js";

const node = (id, over = {}) => ({ id, type: "default", position: { x: 0, y: 0 }, size: null, data: {}, version: 1, created_by: null, ...over });
const page = (nodes, edges = [], canvas_version = 1) => ({ type: "canvas_state", nodes, edges, canvas_version, next_cursor: null });
const changed = (over = {}) => ({ type: "canvas_changed", seq: 1, op: "update", nodes: [], edges: [], deleted_node_ids: [], deleted_edge_ids: [], canvas_version: 2, ...over });
const ids = ({ nodes, edges }) => [[...nodes.keys()], [...edges.keys()]];

test("pages add up, and a change that came before its page is not undone by it", () => {
  const edge = { id: "e", source: "a", target: "b", type: "default", data: {}, version: 1, created_by: null };
  let canvas = reduce(EMPTY, page([node("a"), node("b")]));
  canvas = reduce(canvas, changed({ nodes: [node("c", { version: 3 })], deleted_node_ids: ["d"] }));
  canvas = reduce(canvas, page([node("c"), node("d")], [edge]));
  assert.deepEqual(ids(canvas), [["a", "b", "c"], ["e"]]);
  assert.equal(canvas.nodes.get("c").version, 3);
  assert.equal(canvas.version, 2);
});

test("CV3 what is deleted is gone, with its edges", () => {
  const edge = { id: "e", source: "a", target: "b", version: 1 };
  const before = reduce(EMPTY, page([node("a"), node("b")], [edge]));
  const after = reduce(before, changed({ op: "delete", deleted_node_ids: ["a"], deleted_edge_ids: ["e"] }));
  assert.deepEqual(ids(after), [["b"], []]);
});

test("a batch that failed and an outcome told again change nothing; a new state begins anew", () => {
  const before = reduce(EMPTY, page([node("a")]));
  assert.equal(reduce(before, { ...changed(), type: "canvas_batch_result", success: false, seq: undefined }), before);
  assert.equal(reduce(before, changed({ repeated: true, nodes: [node("z")] })), before);
  assert.equal(reduce(before, { type: "snapshot" }), EMPTY);
});

test("a line ends at the borders, and a label is what there is", () => {
  const { from, to } = lineBetween(node("a"), node("b", { position: { x: 400, y: 0 } }));
  assert.deepEqual([from, to], [{ x: 160, y: 28 }, { x: 400, y: 28 }]);
  assert.equal(labelOf(node("a", { data: { label: "A" } })), "A");
  assert.equal(labelOf(node("a", { type: "box", data: { label: 3 } })), "box");
});
