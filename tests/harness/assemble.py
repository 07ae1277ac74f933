"""What a client knows of a conversation, assembled from frames alone: the reference for "the same messages".

Small on purpose: it is the sum of what protocol.md says a client may rely on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Frame = dict[str, Any]


@dataclass
class Assembled:
    """The messages by sequence, and the answer that streams."""

    messages: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """``sequence`` to (message_id, role, content)."""
    streaming: dict[str, str] = field(default_factory=dict)
    """``message_id`` to the text told so far."""
    sentences: dict[str, list[str]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    """``request_id`` to the ``finish_reason`` of its `completion_done`."""
    running: str | None = None

    def take_snapshot(self, frame: Frame) -> None:
        """Begin anew from a snapshot; sentences from before it are its text up to the sentence begun."""
        for message in frame["messages"]:
            self.messages[message["sequence"]] = (message["message_id"], message["role"], message["content"])
        self.streaming.clear()
        self.sentences.clear()
        self.running = None
        if (running := frame["running"]) is not None:
            self.running = running["request_id"]
            self.streaming[running["message_id"]] = running["text"]
            told = running["text"].removesuffix(running["sentence"])
            self.sentences[running["message_id"]] = [told] if told else []
            count = running["next_sentence_index"]
            assert bool(count) == bool(told)

    def take(self, frame: Frame) -> None:
        """Take one sequenced frame."""
        match frame["type"]:
            case "completion_init":
                self.running = frame["request_id"]
            case "llm_text_chunk":
                self.streaming[frame["message_id"]] = (
                    self.streaming.get(frame["message_id"], "") + frame["text"]
                )
            case "llm_text_sentence":
                self.sentences.setdefault(frame["message_id"], []).append(frame["text"])
            case "message_appended":
                self.messages[frame["sequence"]] = (frame["message_id"], frame["role"], frame["content"])
            case "assistant_message_complete":
                self.settle(frame["message_id"], frame["sequence"], frame["content"])
            case "stop_completion" if frame["message_id"] is not None:
                self.settle(frame["message_id"], frame["sequence"], frame["partial_text"])
            case "error" if frame.get("details", {}).get("message_id"):
                message_id = frame["details"]["message_id"]
                self.settle(message_id, frame["details"]["sequence"], self.streaming.get(message_id, ""))
            case "completion_done":
                assert frame["request_id"] not in self.ended, "two ends of one completion"
                self.ended[frame["request_id"]] = frame["finish_reason"]
                if self.running == frame["request_id"]:
                    self.running = None

    def settle(self, message_id: str, sequence: int, content: str) -> None:
        """A streamed message is stored: chunks, sentences and content must be the same (ST2)."""
        assert self.streaming.pop(message_id, "") == content
        assert "".join(self.sentences.pop(message_id, [])) == content
        self.messages[sequence] = (message_id, "assistant", content)


def assemble(frames: list[Frame], snapshot: Frame | None = None) -> Assembled:
    """Everything a client knows after these frames."""
    state = Assembled()
    if snapshot is not None:
        state.take_snapshot(snapshot)
    for frame in frames:
        if "seq" in frame:
            state.take(frame)
    return state
