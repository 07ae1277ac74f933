"""A canvas as a client knows it that has taken the frames of its changes: what is checked of each.

Pure. A change is whole (CV1): the next version, entities that grow by one version, edges whose ends are
there, no edge left without its node (CV3). What was not seen from its beginning, or from a whole reading, is
not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

Entity = dict[str, Any]

CHANGES: Final = frozenset({"canvas_batch_result", "canvas_changed"})
"""Types that tell of a change, when they have a ``seq``."""


def result_fault(frame: dict[str, Any]) -> str | None:
    """Say what is wrong with the result of a batch by itself, if anything (CV1)."""
    told = any(
        frame.get(name) for name in ("nodes", "edges", "deleted_node_ids", "deleted_edge_ids")
    ) or bool(frame.get("temp_id_mapping"))
    if frame["success"] == bool(frame["errors"]):
        return f"success is {frame['success']} with {len(frame['errors'])} errors (CV1)"
    if "seq" in frame:
        return None if frame["success"] else "a batch that failed has a seq (CV1)"
    if told and not frame.get("repeated"):
        return "a batch that changed something has no seq (CV5)"
    return None


def merged(pages: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Make one canvas of its pages, of the version of the last; and say what is wrong with them."""
    kinds = [name for page in pages for name in ("nodes", "edges") for _ in page[name]]
    nodes, edges = ([one for page in pages for one in page[name]] for name in ("nodes", "edges"))
    counts = Counter(one["id"] for one in (*nodes, *edges))
    faults = [f"{key} was read {count} times" for key, count in counts.items() if count > 1]
    if kinds != ["nodes"] * len(nodes) + ["edges"] * len(edges):
        faults.append("an edge came before a node")
    return {"canvas_version": pages[-1]["canvas_version"], "nodes": nodes, "edges": edges}, faults


class Canvas:
    """Nodes and edges by id. ``version`` is None until something tells it; ``whole`` says all is known."""

    def __init__(self) -> None:
        self.version: int | None = None
        self.whole = False
        self._nodes: dict[str, Entity] = {}
        self._edges: dict[str, Entity] = {}

    def lose(self) -> None:
        """Some changes were not seen."""
        self.version, self.whole = None, False

    def take(self, frame: dict[str, Any]) -> list[str]:
        """Take the frame of a change; return what is wrong with it."""
        version: int = frame["canvas_version"]
        if self.version is None and version == 1:
            self.version, self.whole = 0, True
            self._nodes.clear()
            self._edges.clear()
        faults = []
        if self.version is not None and version != self.version + 1:
            faults.append(f"canvas_version {version} came after {self.version}")
            self.whole = False
        self.version = version
        return faults + self._change(frame) if self.whole else faults

    def read(self, whole: dict[str, Any]) -> list[str]:
        """Compare with a canvas that was read whole, or adopt that; return what differs."""
        version = whole["canvas_version"]
        nodes, edges = ({one["id"]: one for one in whole[name]} for name in ("nodes", "edges"))
        if self.version is not None and self.version != version:
            late = self.version < version
            return [f"version {version} was read when frames told of {self.version} only"] if late else []
        if not self.whole:
            self.version, self.whole, self._nodes, self._edges = version, True, nodes, edges
            return []
        return [
            f"{kind} {key}: {read.get(key)} was read, but frames made it {known.get(key)}"
            for kind, known, read in (("node", self._nodes, nodes), ("edge", self._edges, edges))
            for key in sorted(known.keys() | read.keys())
            if known.get(key) != read.get(key)
        ]

    def _change(self, frame: dict[str, Any]) -> list[str]:
        faults = []
        for kind, known in (("node", self._nodes), ("edge", self._edges)):
            for one in frame[f"{kind}s"]:
                before = known[one["id"]]["version"] if one["id"] in known else 0
                if one["version"] != before + 1:
                    faults.append(f"{kind} {one['id']} has version {one['version']} after {before}")
                known[one["id"]] = one
            faults += [
                f"{kind} {gone} was deleted, but is not known"
                for gone in frame[f"deleted_{kind}_ids"]
                if known.pop(gone, None) is None
            ]
        touched = self._edges.values() if frame["deleted_node_ids"] else frame["edges"]
        return faults + [
            f"edge {edge['id']} is without its {end} {edge[end]} (CV3)"
            for edge in touched
            for end in ("source", "target")
            if edge[end] not in self._nodes
        ]
