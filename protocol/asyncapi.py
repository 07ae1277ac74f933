"""The WebSocket side of the contract as an AsyncAPI 3 document, from the structs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

from protocol.client_frames import ConversationFrame
from protocol.codec import PROJECT_FORMS, tag_of
from protocol.codes import CLOSES, ERRORS
from protocol.ids import ULID_PATTERN
from protocol.server_frames import SUBPROTOCOL, UNSEQUENCED, AnyServerFrame

VERSION: Final = "1"
SCHEMAS: Final = "#/components/schemas/"
MESSAGES: Final = "#/components/messages/"

STREAM: Final = (
    "completion_queued",
    "completion_init",
    "llm_thinking_chunk",
    "llm_text_chunk",
    "llm_text_sentence",
    "tool_call_chunk",
    "tool_call",
    "assistant_message_complete",
    "completion_done",
)
# Which frames answer a request; `error` may always be among them.
ANSWERS: Final[Mapping[str, tuple[str, ...]]] = {
    "append_message": ("message_appended",),
    "request_completion": STREAM,
    "stop_completion": ("stop_completion", "completion_done"),
    "confirm_tool": ("tool_confirmation_processed", "tool_call"),
    "ping": ("pong",),
    "ack": (),
    "conversation_list": ("conversation_listed",),
    "canvas_batch_create": ("canvas_batch_result",),
    "canvas_batch_update": ("canvas_batch_result",),
    "canvas_batch_delete": ("canvas_batch_result",),
    "canvas_node_create": ("canvas_changed",),
    "canvas_node_update": ("canvas_changed",),
    "canvas_node_delete": ("canvas_changed",),
    "canvas_edge_create": ("canvas_changed",),
    "canvas_edge_update": ("canvas_changed",),
    "canvas_edge_delete": ("canvas_changed",),
    "canvas_get": ("canvas_state",),
}
CANVAS_ANSWERS: Final = frozenset(
    {"canvas_batch_result", "canvas_changed", "canvas_state", "conversation_listed"}
)


def asyncapi_document(schemas: Mapping[str, Any]) -> dict[str, Any]:
    """The document, around schemas whose references point below ``#/components/schemas/``."""
    server_frames = get_args(AnyServerFrame)
    conversation_server = [frame for frame in server_frames if tag_of(frame) not in CANVAS_ANSWERS]
    channels = {
        "conversation": _channel(
            "/ws/conversations/{session_id}",
            "session_id",
            "One conversation.",
            [*get_args(ConversationFrame), *conversation_server],
        ),
        "project": _channel(
            "/ws/projects/{project_id}",
            "project_id",
            "One project: a canvas and any number of conversations.",
            [*PROJECT_FORMS, *server_frames],
        ),
    }
    operations = _operations("conversation", get_args(ConversationFrame), conversation_server)
    operations |= _operations("project", PROJECT_FORMS, server_frames)
    messages = {
        message_name(frame): _message(frame)
        for frame in (*get_args(ConversationFrame), *PROJECT_FORMS, *server_frames)
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Turnwire",
            "version": VERSION,
            "description": f"Real-time AI conversations: WebSocket, subprotocol `{SUBPROTOCOL}`, JSON text.",
        },
        "defaultContentType": "application/json",
        "servers": {"local": {"host": "127.0.0.1:8080", "protocol": "ws"}},
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages,
            "schemas": dict(schemas),
        },
        "x-error-codes": [_error_row(code) for code in ERRORS],
        "x-close-codes": [
            {"code": row.code.value, "meaning": row.meaning, "clientShould": row.client_should}
            for row in CLOSES.values()
        ],
    }


def message_name(frame: type[Any]) -> str:
    """The name of a frame's message: the struct's own, which no two frames share."""
    return frame.__name__


def _message(frame: type[Any]) -> dict[str, Any]:
    doc = inspect.getdoc(frame) or ""
    message: dict[str, Any] = {
        "name": tag_of(frame),
        "title": message_name(frame),
        "summary": doc.partition("\n")[0],
        "payload": {"$ref": SCHEMAS + frame.__name__},
    }
    if issubclass(frame, get_args(AnyServerFrame)):
        message["x-sequenced"] = not issubclass(frame, UNSEQUENCED)
    return message


def _channel(address: str, parameter: str, summary: str, frames: Iterable[type[Any]]) -> dict[str, Any]:
    return {
        "address": address,
        "summary": summary,
        "parameters": {parameter: {"description": "A ULID: 26 upper-case characters."}},
        "messages": {message_name(frame): {"$ref": MESSAGES + message_name(frame)} for frame in frames},
        "bindings": {"ws": {"method": "GET", "query": _query(), "bindingVersion": "0.1.0"}},
        f"x-{parameter.replace('_', '-')}-pattern": ULID_PATTERN,
    }


def _query() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "client_id": {
                "type": "string",
                "maxLength": 64,
                "description": "Stable over reconnects (CN3).",
            },
            "epoch": {"type": "string", "description": "Of `connected`; with `last_seq` the position (CN6)."},
            "last_seq": {"type": "integer", "minimum": 0, "description": "The last frame that arrived."},
            "resume": {"type": "string", "enum": ["snapshot"], "description": "State, not missed frames."},
            "takeover": {"type": "boolean", "description": "Replace whoever holds the resource."},
            "ticket": {"type": "string", "description": "Single-use, from `POST /api/ws-ticket`."},
        },
    }


def _operations(
    channel: str, client_frames: Iterable[type[Any]], server_frames: Iterable[type[Any]]
) -> dict[str, Any]:
    """What the server does on a channel: receive each client frame and answer it, send the rest."""
    by_tag = {tag_of(frame): frame for frame in server_frames}
    operations: dict[str, Any] = {}
    for frame in client_frames:
        tag = tag_of(frame)
        operation: dict[str, Any] = {
            "action": "receive",
            "channel": {"$ref": f"#/channels/{channel}"},
            "summary": (inspect.getdoc(frame) or "").partition("\n")[0],
            "messages": [_of_channel(channel, frame)],
        }
        if ANSWERS[tag]:
            answers = [by_tag[answer] for answer in (*ANSWERS[tag], "error")]
            operation["reply"] = {
                "channel": {"$ref": f"#/channels/{channel}"},
                "messages": [_of_channel(channel, answer) for answer in answers],
            }
        operations[f"{channel}_{tag}"] = operation
    operations[f"{channel}_send"] = {
        "action": "send",
        "channel": {"$ref": f"#/channels/{channel}"},
        "summary": "Everything that the server tells of the resource and of the connection.",
        "messages": [_of_channel(channel, frame) for frame in by_tag.values()],
    }
    return operations


def _of_channel(channel: str, frame: type[Any]) -> dict[str, str]:
    return {"$ref": f"#/channels/{channel}/messages/{message_name(frame)}"}


def _error_row(code: Any) -> dict[str, Any]:
    row = ERRORS[code]
    return {
        "code": row.code.value,
        "httpStatus": row.http_status,
        "closeCode": None if row.close is None else row.close.value,
        "retryable": row.retryable,
        "meaning": row.meaning,
    }
