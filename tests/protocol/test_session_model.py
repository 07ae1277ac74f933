"""The session model's own feature file, scenario by scenario; each test's docstring is its title."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

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
)

PLAN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
OTHER_PLAN = "01BX5ZZKBKACTAV9WEVGEMMVRY"


def empty_session(**fields: Any) -> Session:
    return Session(session_id=new_ulid(), **fields)


def talk(count: int = 2) -> Session:
    session = empty_session()
    for number in range(count):
        role = MessageRole.ASSISTANT if number % 2 else MessageRole.USER
        session.append_message(role, f"message {number}")
    return session


def message(**fields: Any) -> SessionMessage:
    return SessionMessage(message_id=new_ulid(), **{"sequence": 0, "role": MessageRole.USER, **fields})


# --- session creation ----------------------------------------------------------------------------


def test_SE1_create_a_session_with_valid_ulid() -> None:
    """Scenario: Create a session with valid ULID"""
    assert is_ulid(empty_session().session_id)


def test_SE1_create_a_session_with_actor_name() -> None:
    """Scenario: Create a session with actor name"""
    assert empty_session(actor_name="local/orchestrator").actor_name == "local/orchestrator"


def test_SE1_create_a_session_without_actor_name() -> None:
    """Scenario: Create a session without actor name"""
    assert not empty_session().actor_name


def test_SE1_session_has_default_namespace_local() -> None:
    """Scenario: Session has default namespace local"""
    assert empty_session().namespace == "local"


def test_SE4_session_rejects_invalid_ulid_format() -> None:
    """Scenario: Session rejects invalid ULID format"""
    with pytest.raises(SessionValidationError, match="session_id must be a ULID"):
        Session(session_id="not-a-ulid")


def test_SE4_session_rejects_invalid_actor_name_format() -> None:
    """Scenario: Session rejects invalid actor name format"""
    with pytest.raises(SessionValidationError, match="actor_name"):
        empty_session(actor_name="badformat")


def test_SE4_session_accepts_none_actor_name() -> None:
    """Scenario: Session accepts None actor name"""
    assert empty_session(actor_name=None).actor_name is None


# --- messages ------------------------------------------------------------------------------------


def test_SE5_append_a_user_message_to_session() -> None:
    """Scenario: Append a user message to session"""
    session = empty_session()
    session.append_message(MessageRole.USER, "Hello")
    assert session.message_count == 1
    assert session.last_message is not None
    assert session.last_message.content == "Hello"
    assert session.last_message.role == "user"
    assert session.last_message.sequence == 0


def test_SE5_append_multiple_messages_with_auto_sequencing() -> None:
    """Scenario: Append multiple messages with auto-sequencing"""
    session = empty_session()
    session.append_message(MessageRole.USER, "Hello")
    session.append_message(MessageRole.ASSISTANT, "Hi there")
    assert session.message_count == 2
    assert session.last_message is not None
    assert session.last_message.sequence == 1


def test_SE4_tool_message_requires_tool_call_id() -> None:
    """Scenario: Tool message requires tool_call_id"""
    with pytest.raises(SessionValidationError, match="tool_call_id"):
        message(role=MessageRole.TOOL, content="42")


def test_SE4_tool_message_with_tool_call_id_is_valid() -> None:
    """Scenario: Tool message with tool_call_id is valid"""
    made = message(role=MessageRole.TOOL, content="42", tool_call_id="call_123")
    assert made.tool_call_id == "call_123"


def test_SE4_user_message_does_not_require_tool_call_id() -> None:
    """Scenario: User message does not require tool_call_id"""
    assert message(content="Hello").tool_call_id is None


def test_SE4_message_rejects_whitespace_only_content() -> None:
    """Scenario: Message rejects whitespace-only content"""
    with pytest.raises(SessionValidationError, match="whitespace"):
        message(content=" \n\t ")


def test_SE4_message_rejects_empty_content() -> None:
    """Scenario: Message rejects empty content"""
    with pytest.raises(SessionValidationError):
        message(content="")


def test_SE4_messages_must_be_ordered_by_sequence() -> None:
    """Scenario: Messages must be ordered by sequence"""
    with pytest.raises(SessionValidationError, match="ordered by sequence"):
        empty_session(messages=[message(sequence=1, content="b"), message(sequence=0, content="a")])


# --- plans ---------------------------------------------------------------------------------------


def test_SE5_link_a_plan_to_session() -> None:
    """Scenario: Link a plan to session"""
    session = empty_session()
    session.link_plan(PLAN)
    assert session.linked_plan_ids == [PLAN]


def test_SE5_plan_linking_deduplicates() -> None:
    """Scenario: Plan linking deduplicates"""
    session = empty_session()
    session.link_plan(PLAN)
    session.link_plan(PLAN)
    assert len(session.linked_plan_ids) == 1


def test_SE5_link_multiple_plans() -> None:
    """Scenario: Link multiple plans"""
    session = empty_session()
    session.link_plan(PLAN)
    session.link_plan(OTHER_PLAN)
    assert session.linked_plan_ids == [PLAN, OTHER_PLAN]


# --- usage ---------------------------------------------------------------------------------------


def test_SE3_default_token_usage_is_zero() -> None:
    """Scenario: Default token usage is zero"""
    usage = empty_session().token_usage
    assert (usage.input_tokens, usage.output_tokens, usage.estimated_cost) == (0, 0, 0.0)


def test_SE3_token_usage_with_values() -> None:
    """Scenario: Token usage with values"""
    session = empty_session(token_usage=TokenUsage(input_tokens=100, output_tokens=50, estimated_cost=0.05))
    assert session.token_usage.input_tokens == 100
    assert session.token_usage.output_tokens == 50
    assert session.token_usage.estimated_cost == 0.05


def test_SE3_SE4_token_usage_rejects_negative_values() -> None:
    """Scenario: Token usage rejects negative values"""
    with pytest.raises(SessionValidationError, match="negative"):
        TokenUsage(input_tokens=-1)


# --- export and command line ---------------------------------------------------------------------


def test_SE6_export_dict_contains_checksum() -> None:
    """Scenario: Export dict contains checksum"""
    exported = talk().export_dict()
    assert {"checksum", "schema_version", "messages", "session_id"} <= exported.keys()


def test_SE6_export_dict_round_trip_preserves_data() -> None:
    """Scenario: Export dict round-trip preserves data"""
    session = talk()
    assert len(session.export_dict()["messages"]) == session.message_count


def test_SE7_cli_dict_has_required_fields() -> None:
    """Scenario: CLI dict has required fields"""
    shown = talk().cli_dict()
    assert {
        "session_id",
        "message_count",
        "created_at",
        "updated_at",
        "token_usage",
        "namespace",
    } <= shown.keys()


def test_SE7_cli_dict_includes_recent_messages() -> None:
    """Scenario: CLI dict includes recent messages"""
    shown = talk(7).cli_dict()
    assert [recent["sequence"] for recent in shown["recent_messages"]] == [2, 3, 4, 5, 6]


def test_SE7_cli_dict_includes_actor_when_set() -> None:
    """Scenario: CLI dict includes actor when set"""
    assert empty_session(actor_name="local/orchestrator").cli_dict()["actor_name"] == "local/orchestrator"
    assert "actor_name" not in empty_session().cli_dict()


def test_SE5_empty_session_has_zero_message_count() -> None:
    """Scenario: Empty session has zero message count"""
    session = empty_session()
    assert session.message_count == 0
    assert session.is_empty is True
    assert session.last_message is None


# --- get_messages --------------------------------------------------------------------------------


def test_SE5_get_messages_with_no_limit_returns_all() -> None:
    """Scenario: get_messages with no limit returns all"""
    assert len(talk(5).get_messages()) == 5


def test_SE5_get_messages_with_limit() -> None:
    """Scenario: get_messages with limit"""
    assert [each.sequence for each in talk(5).get_messages(limit=3)] == [0, 1, 2]


def test_SE5_get_messages_with_offset() -> None:
    """Scenario: get_messages with offset"""
    assert [each.sequence for each in talk(5).get_messages(offset=2)] == [2, 3, 4]


def test_SE5_get_messages_with_limit_and_offset() -> None:
    """Scenario: get_messages with limit and offset"""
    assert [each.sequence for each in talk(5).get_messages(limit=2, offset=1)] == [1, 2]


# --- errors and roles ----------------------------------------------------------------------------


def test_SE8_session_service_error_is_base_error() -> None:
    """Scenario: SessionServiceError is base error"""
    assert issubclass(SessionServiceError, Exception)


def test_SE8_session_not_found_error_inherits_from_session_service_error() -> None:
    """Scenario: SessionNotFoundError inherits from SessionServiceError"""
    assert issubclass(SessionNotFoundError, SessionServiceError)


def test_SE8_session_export_error_inherits_from_session_service_error() -> None:
    """Scenario: SessionExportError inherits from SessionServiceError"""
    assert issubclass(SessionExportError, SessionServiceError)


def test_SE8_session_import_error_inherits_from_session_service_error() -> None:
    """Scenario: SessionImportError inherits from SessionServiceError"""
    assert issubclass(SessionImportError, SessionServiceError)


def test_SE2_message_role_has_expected_values() -> None:
    """Scenario: MessageRole has expected values"""
    assert ",".join(MessageRole) == "user,assistant,system,tool"


def test_SE1_session_supports_metadata() -> None:
    """Scenario: Session supports metadata"""
    assert "env" in empty_session(metadata={"env": "test"}).metadata


# --- serialisation order -------------------------------------------------------------------------


def test_SE6_export_dict_includes_linked_plan_ids() -> None:
    """Scenario: Export dict includes linked plan IDs"""
    session = empty_session()
    session.link_plan(PLAN)
    assert session.export_dict()["linked_plan_ids"] == [PLAN]


def test_SE6_export_dict_keys_are_in_expected_serialization_order() -> None:
    """Scenario: Export dict keys are in expected serialization order"""
    expected = [
        "schema_version",
        "session_id",
        "namespace",
        "actor_name",
        "created_at",
        "updated_at",
        "metadata",
        "linked_plan_ids",
        "token_usage",
        "messages",
        "checksum",
    ]
    session = talk()
    assert list(session.export_dict()) == expected
    assert list(orjson.loads(session.export_bytes())) == expected


def test_SE6_export_dict_messages_are_ordered_by_sequence() -> None:
    """Scenario: Export dict messages are ordered by sequence"""
    assert [each["sequence"] for each in talk(5).export_dict()["messages"]] == [0, 1, 2, 3, 4]
