"""Sessions in depth: one set of checks, stable exports, imports that doubt (SE)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import is_ulid, new_ulid
from protocol.session import (
    MessageRole,
    Session,
    SessionExportError,
    SessionImportError,
    SessionMessage,
    SessionNotFoundError,
    SessionServiceError,
    SessionValidationError,
    TokenUsage,
    checksum,
    convert_session,
    decode_session,
    import_session,
)
from protocol.tool_call import ConfirmationState, ExecutionState, ToolCall, ToolError
from tests.protocol import frame_strategies as fs

ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
SETTLED = [state for state in ExecutionState if state.settled]
VISIBLE = fs.TEXT.filter(lambda text: bool(text) and not text.isspace())

settled_calls = st.builds(
    ToolCall,
    tool_call_id=VISIBLE,
    name=VISIBLE,
    arguments=fs.TEXT,
    execution_state=st.sampled_from(SETTLED),
    result=st.none() | fs.TEXT,
    error=st.none() | st.builds(ToolError, code=fs.TEXT, message=fs.TEXT),
)
messages = st.one_of(
    st.builds(
        dict,
        role=st.sampled_from([MessageRole.USER, MessageRole.SYSTEM]),
        content=VISIBLE,
        metadata=fs.OBJECTS,
        created_at=fs.TIMES,
    ),
    st.builds(
        dict,
        role=st.just(MessageRole.ASSISTANT),
        content=fs.TEXT,
        tool_calls=st.lists(settled_calls, max_size=2).map(tuple),
        created_at=fs.TIMES,
    ),
    st.builds(dict, role=st.just(MessageRole.TOOL), content=fs.TEXT, tool_call_id=VISIBLE),
)


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    drawn = draw(st.lists(messages, max_size=4))
    names = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
    return Session(
        session_id=draw(fs.ULIDS),
        namespace=draw(names),
        actor_name=draw(st.none() | st.builds("{}/{}".format, names, names)),
        messages=[SessionMessage(sequence=number, **fields) for number, fields in enumerate(drawn)],
        linked_plan_ids=draw(st.lists(fs.ULIDS, max_size=2)),
        token_usage=draw(fs.USAGES),
        metadata=draw(fs.OBJECTS),
        created_at=draw(fs.TIMES),
        updated_at=draw(fs.TIMES),
    )


def session_with(**fields: Any) -> Session:
    session = Session(session_id=ULID, metadata={"title": "é"}, **fields)
    session.append_message("user", "Hello")
    session.append_message("assistant", "Hi")
    return session


def altered(change: Callable[[dict[str, Any]], object], *, sign: bool = True) -> bytes:
    """An export with a change, and a checksum that fits it."""
    document = copy.deepcopy(session_with().export_dict())
    change(document)
    if sign:
        document["checksum"] = checksum(document)
    return orjson.dumps(document)


# --- SE4: the same however it is made ------------------------------------------------------------

GOOD_MESSAGE = {
    "message_id": ULID,
    "sequence": 0,
    "role": "user",
    "content": "x",
    "created_at": "2026-01-02T03:04:05Z",
}
BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("session_id lower case", {"session_id": ULID.lower()}, "session_id must be a ULID"),
    ("session_id short", {"session_id": ULID[:-1]}, "session_id must be a ULID"),
    ("session_id with a newline", {"session_id": ULID + "\n"}, "session_id must be a ULID"),
    ("session_id too large", {"session_id": "8" + ULID[1:]}, "session_id must be a ULID"),
    ("session_id with I, L, O, U", {"session_id": "01ARZ3NDEKTSV4RRFFQ69G5FAU"}, "session_id must be a ULID"),
    ("actor_name without slash", {"actor_name": "orchestrator"}, "exactly one `/`"),
    ("actor_name with two", {"actor_name": "a/b/c"}, "exactly one `/`"),
    ("actor_name empty", {"actor_name": ""}, "actor_name"),
    ("actor_name half", {"actor_name": "local/"}, "actor_name"),
    ("namespace blank", {"namespace": " "}, "namespace"),
    ("project_id", {"project_id": "p"}, "project_id must be a ULID"),
    ("plan", {"linked_plan_ids": [ULID, "plan"]}, "linked_plan_ids must be a ULID"),
    ("negative input", {"token_usage": {"input_tokens": -1}}, "input_tokens must not be negative"),
    ("negative output", {"token_usage": {"output_tokens": -1}}, "output_tokens must not be negative"),
    ("negative cost", {"token_usage": {"estimated_cost": -0.01}}, "estimated_cost must not be negative"),
    ("message_id", {"messages": [{**GOOD_MESSAGE, "message_id": "m"}]}, "message_id must be a ULID"),
    ("tool without call", {"messages": [{**GOOD_MESSAGE, "role": "tool"}]}, "tool_call_id"),
    ("empty", {"messages": [{**GOOD_MESSAGE, "content": ""}]}, "whitespace"),
    ("blank", {"messages": [{**GOOD_MESSAGE, "content": "\u2003\n"}]}, "whitespace"),
    ("blank system", {"messages": [{**GOOD_MESSAGE, "role": "system", "content": " "}]}, "whitespace"),
    ("starts at 1", {"messages": [{**GOOD_MESSAGE, "sequence": 1}]}, "ordered by sequence"),
    ("negative sequence", {"messages": [{**GOOD_MESSAGE, "sequence": -1}]}, "sequence"),
    (
        "a gap",
        {"messages": [GOOD_MESSAGE, {**GOOD_MESSAGE, "message_id": new_ulid(), "sequence": 2}]},
        "ordered by sequence",
    ),
    (
        "twice the same sequence",
        {"messages": [GOOD_MESSAGE, {**GOOD_MESSAGE, "message_id": new_ulid()}]},
        "ordered by sequence",
    ),
    ("twice the same id", {"messages": [GOOD_MESSAGE, {**GOOD_MESSAGE, "sequence": 1}]}, "occurs twice"),
    ("naive time", {"created_at": "2026-01-02T03:04:05"}, "created_at must be a time with a zone"),
]


@pytest.mark.parametrize(("fields", "words"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_SE4_what_is_wrong_is_told_alike_when_made_decoded_converted_and_imported(
    fields: dict[str, Any], words: str
) -> None:
    whole = {"session_id": ULID, **fields}
    texts = []
    for read in (_construct, lambda value: decode_session(orjson.dumps(value)), convert_session, _import):
        if read is _import and "project_id" in fields:
            continue
        with pytest.raises(SessionValidationError, match=words) as caught:
            read(whole)
        texts.append(caught.value.message)
    assert len(set(texts)) == 1


def _construct(value: dict[str, Any]) -> Session:
    made = dict(value)
    if "messages" in made:
        made["messages"] = [_construct_message(message) for message in made["messages"]]
    if "token_usage" in made:
        made["token_usage"] = TokenUsage(**made["token_usage"])
    if "created_at" in made:
        made["created_at"] = datetime.fromisoformat(made["created_at"])
    return Session(**made)


def _construct_message(value: dict[str, Any]) -> SessionMessage:
    created = datetime.fromisoformat(value["created_at"])
    return SessionMessage(**{**value, "role": MessageRole(value["role"]), "created_at": created})


def _import(value: dict[str, Any]) -> Session:
    def change(document: dict[str, Any]) -> None:
        document.update({key: item for key, item in value.items() if key not in {"messages", "token_usage"}})
        document["token_usage"].update(value.get("token_usage", {}))
        blank = {"tool_call_id": None, "tool_calls": [], "metadata": {}}
        document["messages"] = [{**blank, **message} for message in value.get("messages", [])]

    return import_session(altered(change))


def test_SE4_the_error_is_a_value_error_and_a_fault_of_the_sessions() -> None:
    with pytest.raises(ValueError, match="session_id") as caught:
        Session(session_id="x")
    assert isinstance(caught.value, SessionServiceError)
    with pytest.raises(SessionValidationError, match="Expected `str`, got `int`"):
        decode_session(b'{"session_id":5}')
    with pytest.raises(SessionValidationError, match="truncated"):
        decode_session(b"{")


@pytest.mark.parametrize(
    "make",
    [
        lambda: TokenUsage(input_tokens=1.5),  # type: ignore[arg-type]
        lambda: TokenUsage(output_tokens=True),
        lambda: TokenUsage(estimated_cost=float("nan")),
        lambda: TokenUsage(estimated_cost=float("inf")),
        lambda: TokenUsage(estimated_cost="1"),  # type: ignore[arg-type]
        lambda: SessionMessage(role="boss", content="x"),  # type: ignore[arg-type]
        lambda: SessionMessage(role=MessageRole.USER, content=5),  # type: ignore[arg-type]
        lambda: SessionMessage(role=MessageRole.USER, content="x", sequence="0"),  # type: ignore[arg-type]
        lambda: SessionMessage(role=MessageRole.USER, content="x", metadata={1: 2}),  # type: ignore[dict-item]
        lambda: SessionMessage(role=MessageRole.USER, content="x", created_at="now"),  # type: ignore[arg-type]
        lambda: Session(session_id=ULID, metadata=[]),  # type: ignore[arg-type]
        lambda: Session(session_id=5),  # type: ignore[arg-type]
        lambda: Session(session_id=ULID).link_plan("plan"),
        lambda: Session(session_id=ULID).get_messages(limit=-1),
        lambda: Session(session_id=ULID).get_messages(offset=-1),
        lambda: Session(session_id=ULID).append_message("boss", "x"),
        lambda: Session(session_id=ULID).append_message("tool", "x"),
        lambda: Session(session_id=ULID).append_message("tool", " ", tool_call_id="c"),
    ],
)
def test_SE4_what_python_would_let_pass_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(SessionValidationError):
        make()


def test_SE4_what_the_engine_makes_may_be_empty() -> None:
    session = Session(session_id=ULID)
    session.append_message("user", "x")
    session.append_message("assistant", "", tool_calls=(ToolCall(tool_call_id="c", name="search"),))
    session.append_message("tool", "", tool_call_id="c", from_engine=True)
    session.append_message("assistant", " \n")
    assert session.message_count == 4
    assert import_session(session.export_bytes()).get_messages(offset=2) == session.get_messages(offset=2)


def test_SE5_a_refused_message_leaves_the_session_as_it_was() -> None:
    session = session_with()
    before = session.export_bytes()
    with pytest.raises(SessionValidationError):
        session.append_message("user", "  ")
    with pytest.raises(SessionValidationError):
        session.link_plan("x")
    assert session.export_bytes() == before


def test_SE5_changes_touch_updated_at() -> None:
    session = Session(session_id=ULID, updated_at=datetime(2020, 1, 1, tzinfo=UTC))
    session.append_message("user", "x")
    appended = session.updated_at
    assert appended.year > 2020
    session.link_plan(ULID)
    linked = session.updated_at
    assert linked >= appended
    session.link_plan(ULID)
    assert session.updated_at == linked


def test_SE2_SE5_a_role_may_be_given_by_name() -> None:
    assert SessionMessage(role="user", content="x").role is MessageRole.USER  # type: ignore[arg-type]
    assert Session(session_id=ULID).append_message("system", "x").role is MessageRole.SYSTEM


def test_SE3_usages_add_up() -> None:
    one = TokenUsage(input_tokens=1, output_tokens=2, estimated_cost=0.5)
    assert one + one == TokenUsage(input_tokens=2, output_tokens=4, estimated_cost=1.0)


# --- SE6: exports --------------------------------------------------------------------------------


@given(sessions())
def test_SE6_reading_an_export_gives_the_session_again(session: Session) -> None:
    data = session.export_bytes()
    again = import_session(data)
    assert again == session
    assert again.export_bytes() == data


@given(sessions())
def test_SE1_SE2_a_whole_session_survives_json(session: Session) -> None:
    assert decode_session(msgspec.json.encode(session)) == session
    assert convert_session(msgspec.to_builtins(session)) == session


def test_SE6_equal_sessions_are_equal_bytes() -> None:
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    elsewhere = noon.astimezone(timezone(timedelta(hours=5, minutes=30)))
    one = Session(
        session_id=ULID,
        metadata={"a": 1, "b": {"c": [1, {"d": 1, "e": 2}]}},
        token_usage=TokenUsage(estimated_cost=0),
        created_at=noon,
        updated_at=noon,
    )
    two = Session(
        session_id=ULID,
        metadata={"b": {"c": [1, {"e": 2, "d": 1}]}, "a": 1},
        token_usage=TokenUsage(estimated_cost=-0.0),
        created_at=elsewhere,
        updated_at=elsewhere,
    )
    assert one == two
    assert one.export_bytes() == two.export_bytes()


def test_SE6_times_are_rfc3339_in_utc_with_six_decimals() -> None:
    elsewhere = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=-3)))
    exported = Session(session_id=ULID, created_at=elsewhere).export_dict()
    assert exported["created_at"] == "2026-01-02T06:04:05.000000Z"


def test_SE6_the_checksum_is_over_the_rest_in_canonical_json() -> None:
    exported = session_with().export_dict()
    stated = exported.pop("checksum")
    assert stated.startswith("sha256:")
    assert stated == checksum(orjson.loads(orjson.dumps(exported, option=orjson.OPT_SORT_KEYS)))
    assert stated != checksum({**exported, "namespace": "other"})


@pytest.mark.parametrize("state", list(ExecutionState))
def test_SE6_decisions_and_project_are_not_exported_and_open_calls_come_in_cancelled(
    state: ExecutionState,
) -> None:
    session = Session(session_id=ULID, project_id=new_ulid())
    call = ToolCall(
        tool_call_id="c",
        name="search",
        arguments='{"q": 1}',
        confirmation_state=ConfirmationState.ACCEPTED,
        execution_state=state,
    )
    session.append_message("assistant", "", tool_calls=(call,))
    data = session.export_bytes()
    assert b"confirmation_state" not in data
    assert b"project_id" not in data
    again = import_session(data)
    assert again.project_id is None
    (restored,) = again.messages[0].tool_calls
    assert restored.confirmation_state is ConfirmationState.NOT_REQUIRED
    assert restored.execution_state is (state if state.settled else ExecutionState.CANCELLED)
    assert restored.arguments_sha256 == call.arguments_sha256


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"a": float("nan")}, "out of range - at `\\$.metadata.a`"),
        ({"a": 2**64}, "out of range"),
        ({"a": {1, 2}}, "Not a JSON value, a `set`"),
        ({"a": {1: 2}}, "`str` keys"),
        ({"a": {1: 2, "b": 3}}, "`str` keys"),
        ({"a": "\ud800"}, "Lone surrogate"),
        ({"a": ["\0"]}, "NUL character"),
    ],
)
def test_SE6_SE8_what_is_no_json_is_an_export_error(metadata: dict[str, Any], words: str) -> None:
    with pytest.raises(SessionExportError, match=words):
        Session(session_id=ULID, metadata=metadata).export_dict()


def test_SE6_what_is_nested_too_deeply_to_be_read_again_is_an_export_error() -> None:
    deep: dict[str, Any] = {}
    for _ in range(126):
        deep = {"a": deep}
    assert import_session(Session(session_id=ULID, metadata=deep).export_bytes()).metadata == deep
    with pytest.raises(SessionExportError, match="Nested too deeply"):
        Session(session_id=ULID, metadata={"a": deep}).export_dict()


# --- SE6: imports --------------------------------------------------------------------------------


def _set(key: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda document: document.update({key: value})


def _drop(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda document: document.pop(key)


def _message(key: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["messages"][0].update({key: value})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "malformed"),
        (b"[]", "expected an object"),
        (b"null", "expected an object"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"{}", "schema_version must be 1, not None"),
        (altered(_set("schema_version", 2)), "schema_version must be 1, not 2"),
        (altered(_set("schema_version", "1")), "schema_version"),
        (altered(_set("schema_version", True)), "schema_version"),
        (altered(_drop("schema_version")), "schema_version"),
        (altered(_drop("checksum"), sign=False), "checksum is missing"),
        (altered(_drop("messages")), "required field `messages`"),
        (altered(_drop("session_id")), "required field `session_id`"),
        (altered(_set("project_id", ULID)), "unknown field `project_id`"),
        (altered(_set("session_id", 5)), "Expected `str`, got `int` - at `$.session_id`"),
        (altered(_set("messages", {})), "$.messages"),
        (altered(_message("role", "boss")), "$.messages[0].role"),
        (altered(_message("sequence", "0")), "$.messages[0].sequence"),
        (altered(_message("message_id", None)), "$.messages[0].message_id"),
        (altered(_message("confirmation_state", "accepted")), "unknown field `confirmation_state`"),
        (altered(_message("tool_calls", [{"tool_call_id": "c"}])), "required field `name`"),
        (altered(_set("created_at", "yesterday")), "$.created_at"),
        (altered(_set("metadata", 1)).replace(b'"metadata":1', b'"metadata":1e999'), "out of range"),
        (
            altered(_message("content", "X")).replace(b'"X"', b'"\\ud800"'),
            "Lone surrogate - at `$.messages",
        ),
        (altered(_message("content", "X")).replace(b'"X"', b'"\\u0000"'), "NUL character"),
    ],
)
def test_SE6_an_import_refuses_what_is_no_export_and_says_why(data: bytes, words: str) -> None:
    with pytest.raises(SessionImportError) as caught:
        import_session(data)
    assert words in caught.value.message
    assert caught.value.code is ErrorCode.INVALID_EXPORT
    assert caught.value.http_status == 422


def test_SE6_an_import_refuses_what_was_changed() -> None:
    data = session_with().export_bytes()
    assert import_session(data)
    with pytest.raises(SessionImportError, match="checksum mismatch") as caught:
        import_session(data.replace(b"Hello", b"Hallo"))
    assert caught.value.code is ErrorCode.CHECKSUM_MISMATCH
    with pytest.raises(SessionImportError, match="checksum mismatch"):
        import_session(altered(_set("checksum", "sha256:0"), sign=False))
    with pytest.raises(SessionImportError, match="checksum mismatch"):
        import_session(altered(_set("checksum", 7), sign=False))


def test_SE6_the_order_of_keys_and_white_space_do_not_matter() -> None:
    session = session_with()
    document = dict(reversed(list(session.export_dict().items())))
    assert import_session(orjson.dumps(document, option=orjson.OPT_INDENT_2)) == session


def test_SE6_an_import_may_be_as_large_as_the_limit_and_no_larger() -> None:
    data = session_with().export_bytes()
    for limit in (len(data), len(data) + 1):
        assert import_session(data, max_bytes=limit)
    with pytest.raises(SessionImportError, match=f"{len(data)} bytes, more than {len(data) - 1}") as caught:
        import_session(data, max_bytes=len(data) - 1)
    assert caught.value.code is ErrorCode.TOO_LARGE


def test_SE6_a_broken_rule_in_an_import_is_an_invalid_export() -> None:
    with pytest.raises(SessionValidationError, match="ordered by sequence") as caught:
        import_session(altered(lambda document: document["messages"].reverse()))
    assert caught.value.code is ErrorCode.INVALID_EXPORT
    with pytest.raises(SessionValidationError, match="negative") as caught:
        import_session(altered(lambda document: document["token_usage"].update(input_tokens=-1)))
    assert caught.value.code is ErrorCode.INVALID_EXPORT


@given(st.binary(max_size=100) | fs.JSON.map(orjson.dumps))
def test_SE6_any_bytes_are_an_export_or_an_import_error(data: bytes) -> None:
    with pytest.raises(SessionImportError):
        import_session(data)


def test_SE6_a_copy_has_new_ids_throughout() -> None:
    session = session_with(linked_plan_ids=[ULID])
    copied = session.with_new_ids()
    assert copied.session_id != session.session_id
    ids = {message.message_id for message in copied.messages}
    assert all(is_ulid(text) for text in ids)
    assert ids.isdisjoint(message.message_id for message in session.messages)
    assert [message.content for message in copied.messages] == ["Hello", "Hi"]
    copied.link_plan(new_ulid())
    copied.append_message("user", "more")
    assert session.linked_plan_ids == [ULID]
    assert session.message_count == 2


def test_SE7_cli_dict_has_its_keys_in_order() -> None:
    keys = [
        "session_id",
        "namespace",
        "message_count",
        "created_at",
        "updated_at",
        "token_usage",
        "linked_plan_ids",
        "recent_messages",
    ]
    assert list(session_with().cli_dict()) == keys
    assert list(session_with(actor_name="a/b").cli_dict()) == [*keys[:2], "actor_name", *keys[2:]]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SessionNotFoundError("gone"), ErrorCode.NOT_FOUND),
        (SessionExportError("x"), ErrorCode.INVALID_REQUEST),
        (SessionImportError("x"), ErrorCode.INVALID_EXPORT),
        (SessionImportError("x", code=ErrorCode.CHECKSUM_MISMATCH), ErrorCode.CHECKSUM_MISMATCH),
        (SessionValidationError("x"), ErrorCode.INVALID_REQUEST),
        (SessionServiceError(), ErrorCode.INTERNAL),
    ],
)
def test_SE8_every_session_error_is_a_fault_with_a_code(error: SessionServiceError, code: ErrorCode) -> None:
    assert isinstance(error, Fault)
    assert error.code is code
    assert str(error) == error.message
