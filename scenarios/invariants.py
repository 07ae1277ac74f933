"""What is checked of every frame in every scenario, without a step that says so.

Pure. The :class:`Ledger` of one run sees all frames that all its clients received, per resource and epoch:

- the same ``seq`` never comes with other bytes (CN6);
- a message's chunks and sentences concatenate to its content, sentence indexes are dense (ST2);
- ``partial_text`` is what was streamed (ST3); a completion has one end, and nothing of it comes after (ST1);
- every frame of a completion has its ``request_id`` (ST4);
- a frame on a project's socket says which domain and conversation it is of, on another it does not;
- the changes of a canvas follow each other and are whole (:mod:`scenarios.canvas`).

What a client did not see from its beginning is not judged.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from scenarios.canvas import CHANGES, Canvas, result_fault

UNSEQUENCED: Final = frozenset({"snapshot", "pong", "draining", "canvas_state", "conversation_listed"})
"""Types without a ``seq``; that of ``connected`` is the resource's latest, not its own."""
SEQUENCED: Final = frozenset(
    {
        "completion_queued",
        "completion_init",
        "llm_thinking_chunk",
        "llm_text_chunk",
        "llm_text_sentence",
        "tool_call_chunk",
        "tool_call",
        "assistant_message_complete",
        "completion_done",
        "message_appended",
        "stop_completion",
        "tool_confirmation_processed",
        "canvas_changed",
    }
)
_OF_CONNECTION: Final = frozenset({"connected", "snapshot", "pong", "draining"})
_STREAMED: Final = frozenset(
    {
        "llm_thinking_chunk",
        "llm_text_chunk",
        "llm_text_sentence",
        "tool_call_chunk",
        "assistant_message_complete",
    }
)


def sequence_fault(frame: dict[str, Any]) -> str | None:
    """Say what is wrong with the presence of ``seq`` in a frame, if anything."""
    kind = frame.get("type")
    if kind in UNSEQUENCED and "seq" in frame:
        return f"{kind} has a seq, but concerns this connection only"
    if kind in SEQUENCED and "seq" not in frame and not frame.get("repeated"):
        return f"{kind} has no seq"
    return result_fault(frame) if kind == "canvas_batch_result" else None


def address_fault(frame: dict[str, Any], *, in_project: bool) -> str | None:
    """Say what is wrong with the address of a frame, if anything (protocol, section 1)."""
    kind, domain = frame["type"], frame.get("domain")
    if kind in _OF_CONNECTION or (kind == "error" and domain is None):
        return None
    due = None if not in_project else "canvas" if kind.startswith("canvas_") else "conversation"
    if domain != due and (kind != "error" or not in_project):
        return f"{kind} has domain {domain!r}, not {due!r}"
    if kind == "error" and domain == "conversation":
        return None  # a refused conversation_list names none
    if (domain == "conversation" and kind != "conversation_listed") != ("conversation_id" in frame):
        return f"{kind} of domain {domain!r} has conversation_id {frame.get('conversation_id')!r}"
    return None


class _Message(Struct):
    """A streamed message as far as it is known."""

    text: str = ""
    sentences: str = ""
    next_index: int = 0


class _Run(Struct):
    """A completion that was seen from its ``completion_init``."""

    request_id: Any
    ended: bool = False
    message: _Message | None = None


class Stream:
    """The frames of one resource in one epoch, in the order of their ``seq``."""

    def __init__(self) -> None:
        self._bytes: dict[int, bytes] = {}
        self._latest: int | None = None
        self._runs: dict[str, _Run] = {}
        self.canvas = Canvas()

    def add(self, frame: dict[str, Any], data: bytes) -> list[str]:
        """Take a sequenced frame; return what is wrong with it."""
        seq: int = frame["seq"]
        known = self._bytes.get(seq)
        if known is not None:
            return (
                []
                if known == data
                else [f"seq {seq} came again with other bytes: {data!r}, before: {known!r}"]
            )
        self._bytes[seq] = data
        if self._latest is not None and seq < self._latest:
            return []
        if self._latest is not None and seq != self._latest + 1:
            self._runs.clear()
            self.canvas.lose()
        self._latest = seq
        return self.canvas.take(frame) if frame["type"] in CHANGES else self._follow(frame)

    def _follow(self, frame: dict[str, Any]) -> list[str]:
        kind, run_id = frame["type"], frame.get("run_id")
        if kind == "completion_init" and run_id is not None:
            faults = [f"completion_init of {run_id} came twice"] if run_id in self._runs else []
            self._runs[run_id] = _Run(request_id=frame.get("request_id"))
            return faults
        run = self._runs.get(run_id) if isinstance(run_id, str) else None
        if run is None:
            return []
        return self._judge(run, frame, kind)

    def _judge(self, run: _Run, frame: dict[str, Any], kind: str) -> list[str]:
        faults = []
        if kind in _STREAMED | {"completion_done"}:
            if run.ended:
                faults.append(f"{kind} of {frame['run_id']} after its completion_done (ST1)")
            if frame.get("request_id") != run.request_id:
                faults.append(
                    f"{kind} has request_id {frame.get('request_id')!r}, not {run.request_id!r} (ST4)"
                )
        message = run.message = run.message or _Message()
        match kind:
            case "llm_text_chunk":
                message.text += frame["text"]
            case "llm_text_sentence":
                if frame["index"] != message.next_index:
                    faults.append(f"sentence {frame['index']} came where {message.next_index} was due (ST2)")
                message.next_index = frame["index"] + 1
                message.sentences += frame["text"]
            case "assistant_message_complete":
                faults += _compare_text(message, frame["content"], "content (ST2)")
                run.message = None
            case "stop_completion":
                faults += _compare_text(message, frame["partial_text"], "partial_text (ST3)")
            case "completion_done":
                run.ended = True
        return faults


def _compare_text(message: _Message, whole: str, name: str) -> list[str]:
    return [
        f"the {what} concatenate to {text!r}, but {name} is {whole!r}"
        for what, text in (("chunks", message.text), ("sentences", message.sentences))
        if text != whole
    ]


class Ledger:
    """All streams of one run of a scenario."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str], Stream] = {}

    def add(self, resource: str, epoch: str, frame: dict[str, Any], data: bytes) -> list[str]:
        """Take a sequenced frame of a resource; return what is wrong with it."""
        return self._stream(resource, epoch).add(frame, data)

    def canvas(self, resource: str, epoch: str) -> Canvas:
        """The canvas as the frames of this epoch tell of it."""
        return self._stream(resource, epoch).canvas

    def _stream(self, resource: str, epoch: str) -> Stream:
        return self._streams.setdefault((resource, epoch), Stream())
