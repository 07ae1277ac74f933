"""A canvas as simple as can be: plain dicts, copied whole for each batch, to compare the real one with."""

from __future__ import annotations

import copy
import itertools
from typing import Any

Entity = dict[str, Any]
Op = tuple[str, str, int, Entity | str]
"""What to do (``create``, ``update``, ``delete``), to what (``node``, ``edge``), the index, the item."""


class Naive:
    """Nodes and edges by id, as builtins."""

    def __init__(self) -> None:
        self.nodes: dict[str, Entity] = {}
        self.edges: dict[str, Entity] = {}
        self.version = 0

    def batch(self, ops: list[Op], ids: list[str]) -> set[tuple[str, str, int]]:
        """Carry out a batch, or nothing of it; which items were bad.

        ``ids`` are those that the real canvas gave the created entities, in order.
        """
        before = copy.deepcopy((self.nodes, self.edges))
        bad = self._carry_out(ops, ids)
        if bad:
            self.nodes, self.edges = before
        elif ops:
            self.version += 1
        return bad

    def _carry_out(self, ops: list[Op], ids: list[str]) -> set[tuple[str, str, int]]:
        bad: set[tuple[str, str, int]] = set()
        given = itertools.chain(ids, (f"id-{n}" for n in itertools.count()))
        named: dict[str, str] = {}
        old_nodes, old_edges = dict(self.nodes), dict(self.edges)
        gone: set[str] = set()
        for op, kind, index, item in ops:
            if op == "delete":
                assert isinstance(item, str)
                if item not in (old_nodes if kind == "node" else old_edges) or item in gone:
                    bad.add((op, kind, index))
                gone.add(item)
        gone &= set(old_nodes) | set(old_edges)
        drafts: list[tuple[str, int, Entity, str]] = []
        used: set[str] = set()
        for op, kind, index, item in ops:
            if op == "create":
                assert isinstance(item, dict)
                new_id = next(given)
                drafts.append((kind, index, item, new_id))
                temp_id = item.get("temp_id")
                if temp_id is not None:
                    if temp_id in used or temp_id in old_nodes or temp_id in old_edges:
                        bad.add((op, kind, index))
                    elif kind == "node":
                        named[temp_id] = new_id
                    used.add(temp_id)
        reachable = (set(old_nodes) - gone) | {new_id for kind, _, _, new_id in drafts if kind == "node"}
        for kind, index, item, new_id in drafts:
            made = {"id": new_id, "type": "default", "data": {}, "version": 1, **item}
            made.pop("temp_id", None)
            if kind == "edge":
                for end in ("source", "target"):
                    made[end] = named.get(item[end], item[end])
                    if made[end] not in reachable:
                        bad.add(("create", kind, index))
                self.edges[new_id] = made
            else:
                made = {"position": {"x": 0.0, "y": 0.0}, "size": None, **made}
                self.nodes[new_id] = made
        changed: set[str] = set()
        for op, kind, index, item in ops:
            if op != "update":
                continue
            assert isinstance(item, dict)
            old = (old_nodes if kind == "node" else old_edges).get(item["id"])
            if (
                old is None
                or item["id"] in gone
                or item["version"] != old["version"]
                or item["id"] in changed
            ):
                bad.add((op, kind, index))
                continue
            changed.add(item["id"])
            new = {**old, **item, "version": old["version"] + 1}
            if "data" in item:
                new["data"] = merge(old["data"], item["data"])
            if kind == "edge":
                for end in ("source", "target"):
                    new[end] = named.get(new[end], new[end])
                    if new[end] not in reachable:
                        bad.add((op, kind, index))
                self.edges[item["id"]] = new
            else:
                self.nodes[item["id"]] = new
        for entity_id in gone:
            self.nodes.pop(entity_id, None)
            self.edges.pop(entity_id, None)
        self.edges = {
            edge_id: edge
            for edge_id, edge in self.edges.items()
            if edge["source"] in self.nodes and edge["target"] in self.nodes
        }
        return bad


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2, word for word."""
    if isinstance(patch, dict):
        target = copy.deepcopy(target) if isinstance(target, dict) else {}
        for name, value in patch.items():
            if value is None:
                if name in target:
                    del target[name]
            else:
                target[name] = merge(target.get(name), value)
        return target
    return patch
