"""Bytes to frames and back: what is taken, what is refused, and in which words (ER1, ER2, ST4)."""

from __future__ import annotations

import json
import time
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
    FrameLimits,
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


def refused(data: bytes) -> BadFrame:
    with pytest.raises(BadFrame) as caught:
        decode_client_frame(data)
    assert caught.value.code is ErrorCode.BAD_FRAME
    encode(error_frame(caught.value))
    return caught.value


def ping(t: str) -> bytes:
    return b'{"type":"ping","t":' + t.encode() + b"}"


def nested(levels: int) -> bytes:
    """A frame of so many levels, itself the first."""
    return ping("[" * (levels - 1) + "0" + "]" * (levels - 1))


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


# --- what is refused -----------------------------------------------------------------------------

BAD_FRAMES: list[tuple[str, bytes, str, str | None]] = [
    ("empty", b"", "malformed", None),
    ("blank", b"  \n", "malformed", None),
    ("cut off", b'{"type":"ping"', "malformed", None),
    ("trailing text", b'{"type":"ping"} x', "malformed", None),
    ("two frames", b'{"type":"ping"}{"type":"ping"}', "malformed", None),
    ("no object", b"[]", "Expected `object`", None),
    ("a string", b'"ping"', "Expected `object`", None),
    ("null", b"null", "Expected `object`", None),
    ("single quotes", b"{'type':'ping'}", "malformed", None),
    ("a comment", b'{"type":"ping"/**/}', "malformed", None),
    ("a trailing comma", b'{"type":"ping",}', "malformed", None),
    ("a raw control character", b'{"type":"ping","t":"a\tb"}', "malformed", None),
    ("a raw NUL", b'{"type":"ping","t":"a\0b"}', "malformed", None),
    ("no type", b'{"request_id":"r"}', "required field `type`", "type"),
    ("type null", b'{"type":null}', "Expected `str`", "type"),
    ("type a number", b'{"type":7}', "Expected `str`", "type"),
    ("type unknown", b'{"type":"order_pizza"}', "Invalid value 'order_pizza'", "type"),
    ("type in capitals", b'{"type":"PING"}', "Invalid value", "type"),
    ("a server's type", b'{"type":"pong"}', "Invalid value", "type"),
    ("a canvas frame here", b'{"type":"canvas_get","request_id":"r"}', "Invalid value", "type"),
    ("a list frame here", b'{"type":"conversation_list","request_id":"r"}', "Invalid value", "type"),
    ("a field missing", b'{"type":"append_message","request_id":"r","role":"user"}', "required", "content"),
    ("a field too many", raw(colour="red"), "unknown field `colour`", "colour"),
    ("domain here", raw(domain="conversation"), "unknown field `domain`", "domain"),
    ("conversation_id here", raw(conversation_id=ULID), "unknown field", "conversation_id"),
    ("request_id on ping", b'{"type":"ping","request_id":"r"}', "unknown field", "request_id"),
    ("content a number", raw(content=5), "Expected `str`, got `int` - at `$.content`", "content"),
    ("content null", raw(content=None), "Expected `str`, got `null`", "content"),
    ("role unknown", raw(role="boss"), "Invalid enum value 'boss'", "role"),
    ("role assistant", raw(role="assistant"), "Invalid value 'assistant'", "role"),
    ("tool without its call", raw(role="tool"), "required field `tool_call_id`", "tool_call_id"),
    ("user with a call", raw(tool_call_id="c"), "unknown field `tool_call_id`", "tool_call_id"),
    ("tool_call_id empty", raw(role="tool", tool_call_id=""), "length >= 1", "tool_call_id"),
    ("metadata a list", raw(metadata=[]), "Expected `object`", "metadata"),
    ("metadata null", raw(metadata=None), "Expected `object`", "metadata"),
    ("request_id missing", b'{"type":"stop_completion"}', "required field", "request_id"),
    ("request_id a number", raw(request_id=1), "Expected `str`", "request_id"),
    ("seq negative", b'{"type":"ack","seq":-1}', ">= 0", "seq"),
    ("seq a float", b'{"type":"ack","seq":1.5}', "Expected `int`", "seq"),
    ("seq a string", b'{"type":"ack","seq":"1"}', "Expected `int`", "seq"),
    ("seq beyond bigint", b'{"type":"ack","seq":9223372036854775808}', "Expected `int`", "seq"),
    (
        "on_busy unknown",
        b'{"type":"request_completion","request_id":"r","on_busy":"x"}',
        "Invalid",
        "on_busy",
    ),
    (
        "reasoning a number",
        b'{"type":"request_completion","request_id":"r","reasoning":1}',
        "bool",
        "reasoning",
    ),
    (
        "arguments with reject",
        b'{"type":"confirm_tool","request_id":"r","tool_call_id":"c","decision":"reject","arguments":"{}"}',
        "unknown field `arguments`",
        "arguments",
    ),
    (
        "reason with accept",
        b'{"type":"confirm_tool","request_id":"r","tool_call_id":"c","decision":"accept","reason":"no"}',
        "unknown field `reason`",
        "reason",
    ),
    ("lone high surrogate", raw(content="\ud83d"), "Lone surrogate - at `$.content`", "content"),
    ("lone low surrogate", raw(content="\ude00"), "Lone surrogate", "content"),
    ("surrogates the wrong way", raw(content="\ude00\ud83d"), "Lone surrogate", "content"),
    ("surrogate in a key", raw(metadata={"\ud83d": 1}), "Lone surrogate in a key", "metadata"),
    ("surrogate deep down", raw(metadata={"a": [0, {"b": "\udfff"}]}), "Lone", "metadata.a[1].b"),
    ("surrogate as bytes", b'{"type":"ping","t":"\xed\xa0\xbd"}', "Not UTF-8", None),
    ("surrogate pair as bytes", b'{"type":"ping","t":"\xed\xa0\xbd\xed\xb8\x80"}', "Not UTF-8", None),
    ("Latin-1", b'{"type":"ping","t":"\xe9"}', "Not UTF-8", None),
    ("overlong UTF-8", b'{"type":"ping","t":"\xc0\xaf"}', "Not UTF-8", None),
    ("BOM", b'\xef\xbb\xbf{"type":"ping"}', "byte order mark", None),
    ("UTF-16", '{"type":"ping"}'.encode("utf-16"), "Not UTF-8", None),
    ("UTF-16 without BOM", '{"type":"ping"}'.encode("utf-16-le"), "malformed", None),
    ("UTF-32", '{"type":"ping"}'.encode("utf-32-be"), "malformed", None),
    ("NUL", raw(content="a\0b"), "NUL character - at `$.content`", "content"),
    ("NUL in a key", raw(metadata={"a": {"\0": 1}}), "NUL character in a key", "metadata.a"),
    ("NUL in request_id", raw(request_id="\0"), "NUL character", "request_id"),
    ("NUL in a field unknown", raw(colour="\0"), "NUL character", "colour"),
    ("NaN", ping("NaN"), "malformed", None),
    ("Infinity", ping("[-Infinity]"), "malformed", None),
    ("NaN beside a long number", ping("[12345678901234567890, NaN]"), "NaN is no number", None),
    ("a leading zero", ping("01"), "malformed", None),
    ("a lone minus", ping("-"), "malformed", None),
    ("a huge float", ping("1e309"), "Number out of range - at `$.t`", "t"),
    ("a huge negative float", ping('{"a":-1E400}'), "Number out of range", "t.a"),
    ("a long huge float", ping("1" * 400 + ".5"), "Number out of range", "t"),
    ("a long integer", ping("9" * 100_000), "Number out of range", "t"),
    ("a position out of range", ping("[1,2,36893488147419103232]"), "Number out of range", "t[2]"),
]


@pytest.mark.parametrize(
    ("data", "words", "field"), [case[1:] for case in BAD_FRAMES], ids=[case[0] for case in BAD_FRAMES]
)
def test_ER1_ER2_a_bad_frame_is_refused_naming_the_field(data: bytes, words: str, field: str | None) -> None:
    problem = refused(data)
    assert words in problem.message
    assert problem.field == field
    assert problem.details == ({} if field is None else {"field": field})


def test_ER1_the_error_text_is_bounded_and_never_unprintable() -> None:
    problem = refused(json.dumps({"type": "x" * 900_000}).encode())
    assert len(problem.message) < 400
    assert problem.field == "type"


@pytest.mark.parametrize("length", [1, 127, 128])
def test_ER1_request_id_may_have_1_to_128_characters(length: int) -> None:
    assert decode_client_frame(raw(request_id="é" * length)).request_id == "é" * length  # type: ignore[union-attr]


@pytest.mark.parametrize("length", [0, 129])
def test_ER1_request_id_of_other_lengths_is_refused(length: int) -> None:
    assert refused(raw(request_id="é" * length)).field == "request_id"


@pytest.mark.parametrize("limit", [1, 2, 3, 64, 65])
def test_ER2_nesting_up_to_the_limit_is_taken_and_one_more_is_refused(limit: int) -> None:
    limits = FrameLimits(max_depth=limit)
    for levels in range(max(1, limit - 1), limit + 1):
        assert isinstance(decode_client_frame(nested(levels), limits=limits), Ping)
    with pytest.raises(BadFrame, match=f"deeper than {limit} levels"):
        decode_client_frame(nested(limit + 1), limits=limits)


def test_ER2_nesting_is_counted_by_depth_not_by_brackets() -> None:
    wide = ping("[" + ",".join(["[]", "{}"] * 500) + "]")
    assert isinstance(decode_client_frame(wide), Ping)
    talk = "[{" * 500 + '\\"' + "]" * 3
    assert decode_client_frame(raw(content=talk)).content == talk  # type: ignore[union-attr]
    hidden = ping('["\\\\",' + "[" * 70 + "]" * 70 + "]")
    with pytest.raises(BadFrame, match="deeper"):
        decode_client_frame(hidden)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 1_000_000,
        b'{"t":' * 200_000,
        b"[" * 65 + b'"' + b'\\"' * 500_000,
        b'{"type":"ping","t":[' + b"[]," * 300_000 + b"1]}",
        b'{"type":"ping","t":"' + b"\\u0000" * 150_000 + b'"}',
        b'{"type":"ping","t":' + b"1" * 1_000_000 + b".5}",
        b'{"type":"ping","t":' + b"9" * 1_000_000 + b"}",
        b'{"type":"ping","t":[1e1' + b",1" * 500_000 + b"]}",
    ],
    ids=[
        "brackets",
        "objects",
        "escaped quotes",
        "wide",
        "NULs",
        "long float",
        "long integer",
        "many numbers",
    ],
)
def test_ER2_no_frame_of_a_megabyte_takes_long(data: bytes) -> None:
    begun = time.process_time()
    try:
        decode_client_frame(data)
    except BadFrame:
        pass
    assert time.process_time() - begun < 2


@pytest.mark.parametrize("number", [-(2**63), -(2**63) + 1, 2**63, 2**64 - 2, 2**64 - 1])
def test_ER2_integers_of_64_bits_are_kept_exactly(number: int) -> None:
    assert decode_client_frame(ping(str(number))) == Ping(t=number)


@pytest.mark.parametrize("number", [-(2**63) - 1, 2**64, 10**20, -(10**30)])
def test_ER2_integers_beyond_64_bits_are_refused(number: int) -> None:
    assert refused(ping(f'{{"a":[{number}]}}')).field == "t.a[0]"


def test_ER2_what_only_looks_suspicious_is_taken() -> None:
    assert decode_client_frame(ping("1e308")) == Ping(t=1e308)
    assert decode_client_frame(ping("0.12345678901234567890")) == Ping(t=0.12345678901234567890)
    assert decode_client_frame(ping('"\\ud83d\\ude00"')) == Ping(t="😀")
    assert decode_client_frame(ping('"\\\\u0000 \\\\ud800"')) == Ping(t="\\u0000 \\ud800")
    assert decode_client_frame(ping('"1234567890123456789012345678901234567890 1e999"'))


@pytest.mark.parametrize(
    ("data", "frame"),
    [
        (b'{"type":"ack","seq":1,"seq":2}', Ack(seq=2)),
        (b'{"type":"ack","seq":"x","seq":2}', Ack(seq=2)),
        (b'{"type":"ping","type":"ack","seq":2}', Ack(seq=2)),
        (b'{"type":"ping","t":"\\u0000","t":1}', Ping(t=1)),
        (b'{"type":"ping","t":1e999,"t":{"a":1,"a":2}}', Ping(t={"a": 2})),
        (b'{"seq":4,"type":"ack"}', Ack(seq=4)),
    ],
)
def test_ER2_of_a_repeated_key_the_last_counts(data: bytes, frame: Any) -> None:
    assert decode_client_frame(data) == frame


@given(st.binary(max_size=200))
def test_ER1_any_bytes_are_a_frame_or_a_bad_frame(data: bytes) -> None:
    try:
        decode_client_frame(data)
    except BadFrame as problem:
        encode(error_frame(problem))


@given(fs.JSON)
def test_ER1_any_json_is_a_frame_or_a_bad_frame(value: Any) -> None:
    try:
        decode_client_frame(msgspec.json.encode(value))
    except BadFrame as problem:
        encode(error_frame(problem))


@given(fs.JSON)
def test_ER2_what_ping_carries_comes_back_the_same(value: Any) -> None:
    assert decode_client_frame(msgspec.json.encode({"type": "ping", "t": value})) == Ping(t=value)


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
