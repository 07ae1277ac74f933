"""Bytes to frames and back: what is taken, what is refused, and in which words (ER1, ER2, ST4)."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.canvas import (
    EntityKind,
    decode_edge_drafts,
    decode_ids,
    decode_node_drafts,
    decode_node_patches,
)
from protocol.client_frames import (
    Ack,
    Address,
    AppendMessage,
    CanvasBatchCreate,
    CanvasFrame,
    ConfirmTool,
    ConversationFrame,
    ConversationList,
    Decision,
    Domain,
    Ping,
    ProjectFrame,
    RequestCompletion,
    StopCompletion,
)
from protocol.codec import (
    body_sha256,
    clean_text,
    decode_client_frame,
    decode_project_frame,
    decode_server_frame,
    encode,
    encode_client_frame,
)
from protocol.codes import ErrorCode
from protocol.errors import BadFrame, Fault
from protocol.server_frames import AnyServerFrame, LlmTextChunk, error_frame
from protocol.session import MessageRole
from tests.protocol import frame_strategies as fs

ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
REQUEST = {"type": "append_message", "request_id": "r", "role": "user", "content": "hi"}


def raw(**changes: Any) -> bytes:
    return json.dumps({**REQUEST, **changes}).encode()


def nested(levels: int) -> bytes:
    """A frame of so many levels, itself the first."""
    t = "[" * (levels - 1) + "0" + "]" * (levels - 1)
    return f'{{"type":"ping","t":{t}}}'.encode()


# --- every frame there and back ------------------------------------------------------------------


@pytest.mark.parametrize("frame", get_args(ConversationFrame), ids=lambda frame: frame.__name__)
def test_every_conversation_frame_survives_the_wire(frame: type[Any]) -> None:
    @given(fs.of_struct(frame))
    def survives(value: Any) -> None:
        assert decode_client_frame(encode_client_frame(value)) == value

    survives()


@pytest.mark.parametrize("frame", get_args(ProjectFrame), ids=lambda frame: frame.__name__)
def test_every_project_frame_survives_the_wire_with_its_address(frame: type[Any]) -> None:
    if frame in get_args(CanvasFrame):
        address = Address(Domain.CANVAS)
    elif frame is ConversationList:
        address = Address(Domain.CONVERSATION)
    else:
        address = None if frame in {Ack, Ping} else Address(Domain.CONVERSATION, ULID)

    @given(fs.of_struct(frame))
    def survives(value: Any) -> None:
        found, decoded = decode_project_frame(encode_client_frame(value, address))
        assert found == address
        assert fs.comparable(decoded) == fs.comparable(value)

    survives()


@pytest.mark.parametrize("frame", get_args(AnyServerFrame), ids=lambda frame: frame.__name__)
def test_every_server_frame_survives_the_wire(frame: type[Any]) -> None:
    @given(fs.of_struct(frame))
    def survives(value: Any) -> None:
        assert decode_server_frame(encode(value)) == value

    survives()


def test_unset_fields_are_not_sent_and_null_ones_are() -> None:
    chunk = LlmTextChunk(run_id="run-1", message_id="m", text="x")
    assert json.loads(encode(chunk)) == {
        "type": "llm_text_chunk",
        "run_id": "run-1",
        "message_id": "m",
        "text": "x",
    }
    chunk.seq = 7
    assert encode(chunk).startswith(b'{"type":"llm_text_chunk","seq":7,"run_id"')
    refusal = json.loads(encode(error_frame(Fault(ErrorCode.QUEUE_FULL), request_id="r")))
    assert refusal["retry_after_ms"] is None
    assert refusal["run_id"] is None
    assert refusal["retryable"] is True
    assert "seq" not in refusal


def test_a_client_ignores_fields_that_it_does_not_know() -> None:
    assert decode_server_frame(b'{"type":"draining","reconnect_after_ms":5,"news":[1]}')
    with pytest.raises(BadFrame):
        decode_server_frame(b'{"type":"news"}')


# --- project sockets -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b'{"type":"stop_completion","request_id":"r"}', "domain"),
        (b'{"type":"stop_completion","request_id":"r","domain":"conversation"}', "conversation_id"),
        (b'{"type":"stop_completion","request_id":"r","domain":"canvas","conversation_id":"X"}', "domain"),
        (
            b'{"type":"stop_completion","request_id":"r","domain":"conversation","conversation_id":"x"}',
            "conversation_id",
        ),
        (b'{"type":"canvas_get","request_id":"r"}', "domain"),
        (b'{"type":"canvas_get","request_id":"r","domain":"conversation"}', "domain"),
        (
            b'{"type":"canvas_get","request_id":"r","domain":"canvas","conversation_id":"x"}',
            "conversation_id",
        ),
        (b'{"type":"ping","domain":"canvas"}', "domain"),
        (b'{"type":"canvas_node_create","request_id":"r","domain":"canvas","node":{"x":1}}', "node.x"),
        (
            b'{"type":"canvas_node_create","request_id":"r","domain":"canvas","node":{"position":{"x":"1"}}}',
            "node.position.x",
        ),
    ],
)
def test_ER1_a_wrong_address_is_a_bad_frame_naming_the_field(data: bytes, field: str) -> None:
    with pytest.raises(BadFrame) as caught:
        decode_project_frame(data)
    assert caught.value.field == field


def test_ER2_holds_on_project_sockets_too() -> None:
    with pytest.raises(BadFrame, match="Lone surrogate"):
        decode_project_frame(b'{"type":"ping","t":"\\ud800"}')
    with pytest.raises(BadFrame, match="deeper than 64"):
        decode_project_frame(nested(65))


def test_a_conversation_list_needs_no_domain() -> None:
    address, frame = decode_project_frame(b'{"type":"conversation_list","request_id":"r"}')
    assert address == Address(Domain.CONVERSATION)
    assert frame == ConversationList(request_id="r")


def test_batch_items_are_decoded_one_by_one_and_named_by_index_and_field() -> None:
    _, frame = decode_project_frame(
        b'{"type":"canvas_batch_create","request_id":"r","domain":"canvas","nodes":'
        b'[{"temp_id":"a"},3,{"position":{"x":1,"y":"2"}},{"temp_id":""},{"colour":1}],'
        b'"edges":[{"source":"a","target":"b"},{"source":"a"}]}'
    )
    assert isinstance(frame, CanvasBatchCreate)
    nodes, problems = decode_node_drafts(frame.nodes)
    assert [node.temp_id for node in nodes] == ["a"]
    assert nodes[0].type == "default"
    assert (nodes[0].position.x, nodes[0].position.y) == (0, 0)
    assert [(problem.index, problem.field) for problem in problems] == [
        (1, None),
        (2, "position.y"),
        (3, "temp_id"),
        (4, "colour"),
    ]
    edges, problems = decode_edge_drafts(frame.edges)
    assert len(edges) == 1
    assert [(problem.index, problem.field, problem.kind) for problem in problems] == [
        (1, "target", EntityKind.EDGE)
    ]
    assert {problem.code for problem in problems} == {ErrorCode.INVALID_CANVAS}


def test_batch_patches_and_ids_are_decoded_one_by_one() -> None:
    good = "8a6e0804-2bd0-4672-b79d-d97027f9071a"
    raws = [msgspec.Raw(json.dumps(item).encode()) for item in (good, good.upper(), 5, good + "\n")]
    ids, problems = decode_ids(EntityKind.NODE, raws)
    assert ids == [good]
    assert [problem.index for problem in problems] == [1, 2, 3]
    items = [{"id": good, "version": 1, "data": {"a": None}}, {"id": good}, {"id": good, "version": 0}]
    patches, problems = decode_node_patches(msgspec.Raw(json.dumps(item).encode()) for item in items)
    assert patches[0].data == {"a": None}
    assert [(problem.index, problem.field) for problem in problems] == [(1, "version"), (2, "version")]


# --- hashes and text -----------------------------------------------------------------------------


def test_ST4_the_body_hash_ignores_the_request_id_and_defaults_spelt_out() -> None:
    short = decode_client_frame(b'{"type":"request_completion","request_id":"a"}')
    spelt = decode_client_frame(
        b'{"on_pending":"reject","type":"request_completion","request_id":"b","on_busy":"enqueue",'
        b'"reasoning":false,"model":null}'
    )
    assert body_sha256(short) == body_sha256(spelt)
    assert body_sha256(short) != body_sha256(RequestCompletion(request_id="a", reasoning=True))
    assert body_sha256(short) != body_sha256(StopCompletion(request_id="a"))


def test_ST4_the_body_hash_does_not_depend_on_the_order_of_keys() -> None:
    one = decode_client_frame(raw(metadata={"a": 1, "b": {"c": 2, "d": 3}}))
    two = decode_client_frame(raw(metadata={"b": {"d": 3, "c": 2}, "a": 1}))
    assert body_sha256(one) == body_sha256(two)
    assert body_sha256(one) != body_sha256(decode_client_frame(raw(metadata={"a": 2})))


@given(fs.of_struct(AppendMessage), fs.of_struct(ConfirmTool))
def test_ST4_the_body_hash_is_that_of_what_arrives(message: AppendMessage, decision: ConfirmTool) -> None:
    for frame in (message, decision):
        assert body_sha256(decode_client_frame(encode_client_frame(frame))) == body_sha256(frame)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("plain", "plain"),
        ("", ""),
        ("汉字 é 😀", "汉字 é 😀"),
        ("a\0b", "a\ufffdb"),
        ("é\0", "é\ufffd"),
        ("\ud83d", "\ufffd"),
        ("\ude00x", "\ufffdx"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d\ud83d\ude00\ude00", "\ufffd😀\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ufeffa", "\ufeffa"),
    ],
)
def test_ER2_text_from_models_and_tools_is_repaired(text: str, clean: str) -> None:
    assert clean_text(text) == clean


@given(st.text(st.characters(categories=("Cs", "L", "Cc"))))
def test_ER2_repaired_text_can_be_sent_and_stored(text: str) -> None:
    clean = clean_text(text)
    assert "\0" not in clean
    assert clean_text(clean) == clean
    assert decode_server_frame(encode(LlmTextChunk(run_id="r", message_id="m", text=clean)))


def test_every_role_and_decision_has_its_frame() -> None:
    for role in MessageRole:
        if role is not MessageRole.ASSISTANT:
            call = "c" if role is MessageRole.TOOL else None
            assert AppendMessage(request_id="r", role=role, content="x", tool_call_id=call).role is role
    for decision in Decision:
        assert ConfirmTool(request_id="r", tool_call_id="c", decision=decision)
