"""What a client may not send, and the words in which it is refused (ER1, ER2)."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.client_frames import (
    Ack,
    Ping,
)
from protocol.codec import (
    FrameLimits,
    decode_client_frame,
    encode,
)
from protocol.codes import ErrorCode
from protocol.errors import BadFrame
from protocol.server_frames import error_frame
from protocol.strict import is_plain
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


@pytest.mark.parametrize(
    "text", ["4e7", "12345678901234567890", "01BX5ZZKBKACTAV9WEVGEMMVRY", "1,2 5 o'clock"]
)
def test_ER2_ids_and_prose_need_no_closer_look(text: str) -> None:
    assert is_plain(raw(request_id=text, content=text), 64)


@pytest.mark.parametrize(
    "data", [b"[1e5]", b'{"a":-1.5E5}', b"-1e999", b"[0,\n12345678901234567890]", b'"\\uD83D"', b'"\\u0000"']
)
def test_ER2_what_may_be_out_of_range_gets_a_closer_look(data: bytes) -> None:
    assert not is_plain(data, 64)
