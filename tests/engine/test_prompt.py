"""The prompt is valid for a model whatever the history looks like (ST8)."""

from __future__ import annotations

from protocol.ids import new_message_id, utc_now
from protocol.session import MessageRole, SessionMessage
from protocol.tool_call import ConfirmationState, ExecutionState, ToolCall
from server.engine.prompt import NO_RESULT, build_prompt


def message(role: MessageRole, content: str, **fields: object) -> SessionMessage:
    return SessionMessage(
        message_id=new_message_id(),
        sequence=0,
        role=role,
        content=content,
        created_at=utc_now(),
        **fields,  # type: ignore[arg-type]
    )


def call(tool_call_id: str) -> ToolCall:
    return ToolCall(
        tool_call_id=tool_call_id,
        name="search",
        arguments="{}",
        confirmation_state=ConfirmationState.NOT_REQUIRED,
        execution_state=ExecutionState.SUCCEEDED,
    )


def test_ST8_results_directly_follow_their_calls_in_their_order() -> None:
    prompt = build_prompt(
        [
            message(MessageRole.USER, "find"),
            message(MessageRole.ASSISTANT, "", tool_calls=(call("a"), call("b"))),
            message(MessageRole.USER, "hurry"),
            message(MessageRole.TOOL, "B", tool_call_id="b"),
            message(MessageRole.TOOL, "A", tool_call_id="a"),
        ]
    )
    assert [(m.role, m.content) for m in prompt] == [
        ("user", "find"),
        ("assistant", ""),
        ("tool", "A"),
        ("tool", "B"),
        ("user", "hurry"),
    ]


def test_ST8_a_call_without_a_result_gets_one() -> None:
    prompt = build_prompt([message(MessageRole.ASSISTANT, "", tool_calls=(call("a"),))])
    assert [(m.role, m.content, m.tool_call_id) for m in prompt][1] == ("tool", NO_RESULT, "a")


def test_ST3_a_stopped_answer_stays_and_an_empty_one_is_left_out() -> None:
    prompt = build_prompt(
        [
            message(MessageRole.USER, "q"),
            message(MessageRole.ASSISTANT, "half an ans"),
            message(MessageRole.ASSISTANT, ""),
            message(MessageRole.TOOL, "orphan", tool_call_id="gone"),
        ],
        "Be brief.",
    )
    assert [(m.role, m.content) for m in prompt] == [
        ("system", "Be brief."),
        ("user", "q"),
        ("assistant", "half an ans"),
    ]
