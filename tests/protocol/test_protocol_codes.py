"""The one table is whole and says what the protocol fixes; ids and runs are as named."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from protocol.codes import CLOSES, ERRORS, CloseCode, ErrorCode
from protocol.errors import BadFrame, Fault
from protocol.ids import is_ulid, new_message_id, new_run_id, new_ulid, utc_now
from protocol.run import FinishReason, RunStatus, status_of
from protocol.server_frames import error_frame
from protocol.tool_call import ExecutionState, ToolCall

# Fixed by the protocol: HTTP status (None for codes of tool calls only) and whether a retry helps.
FIXED = {
    "bad_frame": (400, False),
    "invalid_message": (400, False),
    "invalid_request": (400, False),
    "too_large": (413, False),
    "unauthenticated": (401, False),
    "not_found": (404, False),
    "use_project_socket": (409, False),
    "session_exists": (409, False),
    "resource_busy": (409, True),
    "request_id_conflict": (409, False),
    "completion_busy": (409, True),
    "queue_full": (429, True),
    "nothing_to_stop": (409, False),
    "tools_pending": (409, False),
    "decision_conflict": (409, False),
    "unknown_tool_call": (404, False),
    "version_conflict": (409, False),
    "invalid_canvas": (400, False),
    "rate_limited": (429, True),
    "too_many_connections": (429, True),
    "storage_unavailable": (503, True),
    "draining": (503, True),
    "overloaded": (503, True),
    "llm_timeout": (504, True),
    "llm_unavailable": (502, True),
    "llm_rate_limited": (429, True),
    "llm_context_length": (422, False),
    "llm_content_filter": (422, False),
    "llm_bad_response": (502, False),
    "unknown_model": (400, False),
    "tool_failed": (None, False),
    "tool_timeout": (None, False),
    "outcome_unknown": (None, False),
    "invalid_export": (422, False),
    "checksum_mismatch": (422, False),
    "internal": (500, True),
}
CLOSE_VALUES = {1000, 1001, 1003, 1009, 1011, 1012, 1013, 4400, 4401, 4404, 4008, 4009, 4010, 4012, 4029}


def test_every_error_code_has_its_row() -> None:
    assert set(ERRORS) == set(ErrorCode)
    assert all(code is row.code and row.meaning for code, row in ERRORS.items())
    assert all(ErrorCode[code.upper()] is code for code in ErrorCode)


def test_every_close_code_has_its_row() -> None:
    assert set(CLOSES) == set(CloseCode)
    assert {code.value for code in CloseCode} == CLOSE_VALUES
    assert all(code is row.code and row.meaning and row.client_should for code, row in CLOSES.items())


@pytest.mark.parametrize(("code", "expected"), FIXED.items(), ids=FIXED)
def test_the_fixed_codes_have_their_status_and_retry(code: str, expected: tuple[int | None, bool]) -> None:
    row = ERRORS[ErrorCode(code)]
    assert (row.http_status, row.retryable) == expected


@pytest.mark.parametrize(
    ("code", "close"),
    [
        (ErrorCode.RESOURCE_BUSY, 4009),
        (ErrorCode.UNAUTHENTICATED, 4401),
        (ErrorCode.NOT_FOUND, 4404),
        (ErrorCode.USE_PROJECT_SOCKET, 4404),
        (ErrorCode.TOO_MANY_CONNECTIONS, 4029),
        (ErrorCode.TOO_LARGE, 1009),
        (ErrorCode.INVALID_REQUEST, 4400),
        (ErrorCode.DRAINING, 1012),
        (ErrorCode.OVERLOADED, 1013),
        (ErrorCode.INTERNAL, 1011),
        (ErrorCode.RATE_LIMITED, None),
        (ErrorCode.LLM_TIMEOUT, None),
    ],
)
def test_a_refused_connection_is_closed_with_the_code_of_its_error(
    code: ErrorCode, close: int | None
) -> None:
    assert Fault(code).close_code == close


def test_a_fault_tells_what_its_code_means() -> None:
    fault = Fault(ErrorCode.RATE_LIMITED, retry_after_ms=100)
    assert fault.message == str(fault) == ERRORS[ErrorCode.RATE_LIMITED].meaning
    assert (fault.http_status, fault.retryable, fault.details) == (429, True, {})
    assert error_frame(fault).retry_after_ms == 100
    assert Fault(ErrorCode.TOOL_FAILED).http_status == 500
    assert Fault(ErrorCode.BAD_FRAME, close=CloseCode.TOO_BIG).close_code == CloseCode.TOO_BIG
    assert BadFrame("no", "content").details == {"field": "content"}


def test_ulids_grow_strictly_and_across_threads() -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: [new_ulid() for _ in range(500)], range(8)))
    assert all(batch == sorted(batch) for batch in made)
    assert len({text for batch in made for text in batch}) == 4000
    assert all(is_ulid(text) for batch in made for text in batch)


def test_ulids_grow_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = new_ulid()
    monkeypatch.setattr("protocol.ids.time.time_ns", lambda: 0)
    after = [new_ulid(), new_ulid()]
    assert [before, *after] == sorted([before, *after])


def test_ids_have_their_forms() -> None:
    assert new_run_id().startswith("run-")
    assert is_ulid(new_run_id().removeprefix("run-"))
    assert is_ulid(new_message_id())
    assert utc_now().utcoffset() is not None
    for text in (
        "",
        "01ARZ3NDEKTSV4RRFFQ69G5FA",
        "81ARZ3NDEKTSV4RRFFQ69G5FAV",
        "01arz3ndektsv4rrffq69g5fav",
        5,
    ):
        assert not is_ulid(text)


@pytest.mark.parametrize(
    ("finish", "status"),
    [
        ("stop", "succeeded"),
        ("length", "succeeded"),
        ("tool_calls", "awaiting_input"),
        ("stopped", "stopped"),
        ("error", "failed"),
        ("interrupted", "interrupted"),
    ],
)
def test_RU3_every_way_to_finish_gives_one_terminal_status(finish: str, status: str) -> None:
    assert status_of(FinishReason(finish)) == status
    assert status_of(FinishReason(finish)).terminal
    assert not RunStatus.RUNNING.terminal
    assert len(FinishReason) == 6


def test_a_tool_call_hashes_its_arguments_as_they_are() -> None:
    call = ToolCall(tool_call_id="c", name="search")
    assert call.arguments == "{}"
    assert call.arguments_sha256 == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert [state for state in ExecutionState if not state.settled] == ["waiting", "running"]
