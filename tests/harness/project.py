"""A plain client for a project's socket, and what it knows of the canvas, assembled from frames alone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Self

from tests.harness.client import Client, Frame

ANSWERS = ("canvas_batch_result", "canvas_changed", "canvas_state", "error")


class ProjectClient(Client):
    """One connection to a project."""

    place = "projects"

    async def canvas(self, kind: str, **fields: object) -> Frame:
        """Send a canvas frame and await its answer; again when it was too early (ER4)."""
        while True:
            request_id = await self.send(f"canvas_{kind}", domain="canvas", **fields)
            answer = (await self.until(*ANSWERS, request_id=request_id))[-1]
            assert answer["domain"] == "canvas"
            if answer.get("code") != "rate_limited":
                return answer
            await asyncio.sleep(answer["retry_after_ms"] / 1000)

    async def create(self, nodes: int = 0, edges: list[tuple[str, str]] | None = None) -> Frame:
        """Make nodes named n0, n1, … and edges between them."""
        return await self.canvas(
            "batch_create",
            nodes=[{"temp_id": f"n{number}"} for number in range(nodes)],
            edges=[{"source": source, "target": target} for source, target in edges or []],
        )

    async def whole_canvas(self) -> Canvas:
        """Everything, page by page."""
        canvas, cursor = Canvas(), None
        while True:
            page = await self.canvas("get", cursor=cursor)
            canvas.put(page)
            canvas.version = page["canvas_version"]
            if (cursor := page["next_cursor"]) is None:
                return canvas

    async def tell(self, conversation_id: str, kind: str, **fields: object) -> str:
        """Send a conversation frame; returns its request id."""
        return await self.send(kind, domain="conversation", conversation_id=conversation_id, **fields)

    async def say_in(self, conversation_id: str, content: str, **fields: object) -> Frame:
        """Append a user message and await its confirmation."""
        request_id = await self.tell(
            conversation_id, "append_message", role="user", content=content, **fields
        )
        return (await self.until("message_appended", "error", request_id=request_id))[-1]

    async def complete_in(self, conversation_id: str, model: str, **fields: object) -> list[Frame]:
        """Request a completion and take all frames up to its end."""
        request_id = await self.tell(conversation_id, "request_completion", model=model, **fields)
        return await self.until("completion_done", request_id=request_id)


@dataclass
class Canvas:
    """What a client knows of a canvas."""

    nodes: dict[str, Any] = field(default_factory=dict)
    edges: dict[str, Any] = field(default_factory=dict)
    version: int = 0

    def put(self, frame: Frame) -> None:
        self.nodes |= {node["id"]: node for node in frame["nodes"]}
        self.edges |= {edge["id"]: edge for edge in frame["edges"]}

    def take(self, frame: Frame) -> Self:
        """Take one sequenced frame of a change; its version is the next."""
        if "seq" not in frame or frame["type"] not in {"canvas_batch_result", "canvas_changed"}:
            return self
        assert frame["canvas_version"] == self.version + 1, (self.version, frame)
        self.version = frame["canvas_version"]
        self.put(frame)
        for node_id in frame["deleted_node_ids"]:
            del self.nodes[node_id]
        for edge_id in frame["deleted_edge_ids"]:
            del self.edges[edge_id]
        for edge in self.edges.values():
            assert edge["source"] in self.nodes
            assert edge["target"] in self.nodes
        return self


def assembled(frames: list[Frame]) -> Canvas:
    """The canvas after these frames, from the first on."""
    canvas = Canvas()
    for frame in frames:
        canvas.take(frame)
    return canvas
