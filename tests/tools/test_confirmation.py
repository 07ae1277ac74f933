"""The states of a tool call: a table of every event in every state, and what must hold for any sequence."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.codes import ErrorCode
from protocol.tool_call import ConfirmationState, Decision, ExecutionState, ToolError
from server.tools.confirmation import (
    Accept,
    Accepted,
    Answer,
    Asked,
    AwaitingInput,
    Cancel,
    Decided,
    Event,
    Expire,
    Fail,
    Finish,
    Ignored,
    Lose,
    Moved,
    Outcome,
    Pending,
    Ready,
    Refused,
    Reject,
    Rejected,
    Repeated,
    Running,
    Settled,
    Start,
    State,
    arguments_of,
    arguments_sha256,
    confirmation_of,
    decided_of,
    execution_of,
    settle,
    text_for_model,
    to_call,
    waits_for_person,
)

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)
SHOWN = '{"a": 1}'
EDITED = '{"a": 2}'
ASKED = Asked("call_1", "canvas_edit", SHOWN)
YES = Decided(Decision.ACCEPT, "ann", NOW, SHOWN)
EDIT = Decided(Decision.ACCEPT, "ann", NOW, EDITED)
NO = Decided(Decision.REJECT, "ann", NOW, SHOWN, "not now")

ready = Ready(ASKED)
pending = Pending(ASKED)
limited = Pending(ASKED, expires_at=LATER)
awaiting = AwaitingInput(ASKED)
accepted = Accepted(ASKED, YES)
edited = Accepted(ASKED, EDIT)
rejected = Rejected(ASKED, NO)
at_once = Running(ASKED, SHOWN, None, NOW)
running = Running(ASKED, EDITED, EDIT, NOW)
done = Settled(ASKED, EDITED, ConfirmationState.ACCEPTED, ExecutionState.SUCCEEDED, EDIT, "ok")
stopped = Settled(ASKED, SHOWN, ConfirmationState.PENDING, ExecutionState.CANCELLED, None, "stopped")
STATES = [ready, pending, limited, awaiting, accepted, edited, rejected, at_once, running, done, stopped]

accept = Accept("bob", LATER)
accept_edited = Accept("bob", LATER, EDITED)
reject = Reject("bob", LATER, "not now")
answer = Answer("bob", LATER, "blue")
cancel = Cancel("stopped")
expire = Expire(LATER)
start = Start(LATER)
finish = Finish("done")
fail = Fail(ErrorCode.TOOL_FAILED, "broken")
lose = Lose()
EVENTS = [accept, accept_edited, reject, answer, cancel, expire, start, finish, fail, lose]

R, D, M, U = "repeated", "conflict", "invalid", "unknown"
TABLE = {
    # state: accept, accept edited, reject, answer, cancel, expire, start, finish, fail, lose; "" is ignored
    "ready": (ready, [U, U, U, U, Settled, "", Running, "", Settled, ""]),
    "pending": (pending, [Accepted, Accepted, Rejected, M, Settled, "", "", "", "", ""]),
    "limited": (limited, [Accepted, Accepted, Rejected, M, Settled, Settled, "", "", "", ""]),
    "awaiting": (awaiting, [U, U, U, Settled, Settled, "", "", "", "", ""]),
    "accepted": (accepted, [R, D, D, U, Settled, "", Running, "", Settled, ""]),
    "edited": (edited, [D, R, D, U, Settled, "", Running, "", Settled, ""]),
    "rejected": (rejected, [D, D, R, U, "", "", "", "", "", ""]),
    "at_once": (at_once, [U, U, U, U, Settled, "", "", Settled, Settled, Settled]),
    "running": (running, [D, R, D, U, Settled, "", "", Settled, Settled, Settled]),
    "done": (done, [D, R, D, U, "", "", "", "", "", ""]),
    "stopped": (stopped, [U, U, U, U, "", "", "", "", "", ""]),
}
CODES = {
    D: ErrorCode.DECISION_CONFLICT,
    M: ErrorCode.INVALID_MESSAGE,
    U: ErrorCode.UNKNOWN_TOOL_CALL,
}


def kind_of(outcome: Outcome) -> object:
    match outcome:
        case Moved(state=state):
            return type(state)
        case Repeated():
            return R
        case Refused(code=code):
            return code
        case Ignored():
            return ""


@pytest.mark.parametrize("name", TABLE)
def test_TL2_every_event_in_every_state_has_the_outcome_of_the_table(name: str) -> None:
    state, row = TABLE[name]
    for event, expected in zip(EVENTS, row, strict=True):
        outcome = settle(state, event)
        assert kind_of(outcome) == CODES.get(str(expected), expected), (name, event)
        if not isinstance(outcome, Moved):
            assert outcome.state is state


def test_the_table_knows_every_state_and_every_event() -> None:
    assert {type(state) for state in STATES} == set(get_args(State))
    assert {type(event) for event in EVENTS} == set(get_args(Event))


def moved(state: State, *events: Event) -> State:
    for event in events:
        outcome = settle(state, event)
        assert isinstance(outcome, Moved), (state, event, outcome)
        state = outcome.state
    return state


def test_TL5_the_first_decision_wins_and_another_is_told_who_what_and_when() -> None:
    state = moved(pending, Reject("ann", NOW, "not now"))
    outcome = settle(state, Accept("bob", LATER))
    assert isinstance(outcome, Refused)
    fault = outcome.fault()
    assert fault.code is ErrorCode.DECISION_CONFLICT
    assert fault.details == {
        "tool_call_id": "call_1",
        "decision": "reject",
        "decided_by": "ann",
        "decided_at": "2026-05-04T03:02:01Z",
        "arguments_sha256": arguments_sha256(SHOWN),
        "reason": "not now",
    }


def test_TL5_a_decision_is_kept_with_who_when_and_the_hash_of_what_may_run() -> None:
    state = moved(pending, accept_edited)
    decided = decided_of(state)
    assert decided is not None
    assert (decided.by, decided.at, decided.arguments_sha256) == ("bob", LATER, arguments_sha256(EDITED))


def test_TL5_a_repeat_is_recognised_while_it_runs_and_after_it_ran() -> None:
    for state in (moved(pending, accept, start), moved(pending, accept, start, finish)):
        again = settle(state, Accept("bob", LATER + timedelta(hours=1)))
        assert isinstance(again, Repeated)
        assert again.decided.at == LATER
        # The shown arguments sent along are the same decision.
        assert isinstance(settle(state, Accept("bob", LATER, SHOWN)), Repeated)


def test_TL5_a_rejected_call_is_cancelled_and_tells_the_model_the_reason() -> None:
    state = moved(pending, reject)
    assert isinstance(state, Rejected)
    assert (confirmation_of(state), execution_of(state)) == (
        ConfirmationState.REJECTED,
        ExecutionState.CANCELLED,
    )
    assert json.loads(text_for_model(state))["reason"] == "not now"
    assert to_call(state).settled


@pytest.mark.parametrize(
    "arguments", ["", "[]", "5", "null", '"text"', "{", "{'a': 1}", '{"a": NaN}', "\ufeff{}"]
)
def test_TL5_edited_arguments_that_are_no_json_object_are_refused(arguments: str) -> None:
    outcome = settle(pending, Accept("ann", NOW, arguments))
    assert isinstance(outcome, Refused)
    assert outcome.code is ErrorCode.INVALID_MESSAGE
    assert outcome.details == {"field": "arguments"}
    assert isinstance(settle(pending, Accept("ann", NOW, EDITED)), Moved)


def test_TL6_what_runs_is_what_was_shown_or_what_the_confirmer_sent() -> None:
    assert arguments_of(moved(ready, start)) == SHOWN
    assert arguments_of(moved(pending, accept, start)) == SHOWN
    assert arguments_of(moved(pending, accept_edited, start)) == EDITED
    assert to_call(moved(pending, accept_edited, start)).arguments_sha256 == arguments_sha256(EDITED)


def test_TL6_the_hash_is_over_the_utf8_bytes() -> None:
    assert arguments_sha256('{"a":"é"}') == "b3a092a6af48807fa9482b2ee140105575daa26d5b24b3c0e60a7e2dee6683b1"


def test_TL7_an_answer_settles_a_question_and_a_plain_message_cancels_it() -> None:
    answered = moved(awaiting, answer)
    assert isinstance(answered, Settled)
    assert (answered.execution_state, text_for_model(answered)) == (ExecutionState.SUCCEEDED, "blue")
    cancelled = moved(awaiting, Cancel("the user wrote something else"))
    assert isinstance(cancelled, Settled)
    assert cancelled.execution_state is ExecutionState.CANCELLED
    assert json.loads(text_for_model(cancelled)) == {"error": "the user wrote something else"}


def test_TL4_nothing_expires_unless_its_tool_says_so() -> None:
    for_ever = Expire(datetime.max.replace(tzinfo=UTC))
    for state in (pending, awaiting):
        assert isinstance(settle(state, for_ever), Ignored)
    assert isinstance(settle(limited, Expire(NOW)), Ignored)
    expired = moved(limited, Expire(LATER))
    assert isinstance(expired, Settled)
    assert expired.error is not None
    assert (expired.execution_state, expired.error.code) == (ExecutionState.FAILED, "tool_timeout")
    accepted_in_time = moved(limited, accept)
    assert isinstance(settle(accepted_in_time, for_ever), Ignored)


def test_ST7_a_lost_execution_fails_with_unknown_outcome_and_never_runs_again() -> None:
    lost = moved(running, lose)
    assert isinstance(lost, Settled)
    assert lost.error is not None
    assert lost.error.code == "outcome_unknown"
    assert all(not isinstance(settle(lost, event), Moved) for event in EVENTS)


def test_ST3_a_late_finish_does_not_overwrite_a_stop() -> None:
    state = moved(running, cancel)
    assert settle(state, finish) == Ignored(state)


def test_a_failure_is_told_to_the_model_and_to_the_client() -> None:
    state = moved(ready, start, fail)
    assert isinstance(state, Settled)
    assert json.loads(text_for_model(state)) == {"error": "tool_failed: broken"}
    assert to_call(state).error == ToolError("tool_failed", "broken")
    assert to_call(state).result is None


event_strategy = st.one_of(
    st.builds(
        Accept, st.sampled_from(["ann", "bob"]), st.just(NOW), st.sampled_from([None, SHOWN, EDITED, "[]"])
    ),
    st.builds(Reject, st.sampled_from(["ann", "bob"]), st.just(NOW), st.sampled_from([None, "no"])),
    st.sampled_from([answer, cancel, expire, Expire(NOW), start, finish, fail, lose]),
)


@given(st.sampled_from([ready, pending, limited, awaiting]), st.lists(event_strategy, max_size=12))
def test_TL8_only_a_persons_acceptance_makes_a_waiting_call_run_and_nothing_runs_twice(
    first: State, events: list[Event]
) -> None:
    state, starts, accepts = first, 0, 0
    for event in events:
        outcome = settle(state, event)
        if isinstance(outcome, Moved):
            assert not isinstance(state, Settled | Rejected)
            starts += isinstance(event, Start)
            accepts += isinstance(event, Accept)
            if isinstance(outcome.state, Running):
                assert isinstance(first, Ready) or accepts == 1
                allowed = {SHOWN} if decided_of(state) is None else {decided_of(state).arguments}  # type: ignore[union-attr]
                assert outcome.state.arguments in allowed
        state = outcome.state
        assert to_call(state).settled is isinstance(state, Settled | Rejected)
        assert waits_for_person(state) is isinstance(state, Pending | AwaitingInput)
    assert starts <= 1
    if isinstance(first, Pending | AwaitingInput) and accepts == 0:
        assert starts == 0
