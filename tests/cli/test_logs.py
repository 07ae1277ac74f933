"""What gets into a log and what does not."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from server.logs import configure_logs, get_logger


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


def records(captured: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in captured.readouterr().err.splitlines()]


def test_without_a_terminal_records_are_json_with_ids(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()
    get_logger("server.gate").info("attached", session_id="01A", run_id="run-1")
    (record,) = records(capsys)
    assert record.pop("timestamp").endswith("Z")
    assert record == {
        "event": "attached",
        "level": "info",
        "source": "server.gate",
        "session_id": "01A",
        "run_id": "run-1",
    }


def test_content_is_masked(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()
    get_logger("a").info("sent", content="private", text="private", arguments="private", token="private")
    assert "private" not in capsys.readouterr().err


def test_an_exception_is_logged_by_type_and_place_without_its_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs()
    try:
        raise ValueError("private")
    except ValueError:
        get_logger("a").exception("bug", run_id="run-1")
    (record,) = records(capsys)
    assert "private" not in json.dumps(record)
    assert record["error_type"] == "builtins.ValueError"
    assert "test_logs.py" in record["places"][-1]


def test_the_level_holds_and_libraries_speak_from_warnings_up(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("debug")
    get_logger("a").debug("ours")
    logging.getLogger("websockets").info("theirs")
    logging.getLogger("websockets").warning("theirs, a warning")
    assert [record["event"] for record in records(capsys)] == ["ours", "theirs, a warning"]
    configure_logs("error")
    get_logger("a").info("ours")
    logging.getLogger("websockets").warning("theirs")
    assert records(capsys) == []
