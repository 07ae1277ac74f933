"""Which failures are told in one line, and which are bugs."""

import errno

import pytest

from protocol.codes import ErrorCode
from protocol.errors import Fault
from server.cli.failures import Refused, one_line
from server.settings import SettingsError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Refused("no,\nnever"), "no, never"),
        (SettingsError("port: wrong"), "port: wrong"),
        (Fault(ErrorCode.NOT_FOUND, "gone"), "not_found: gone"),
        (FileNotFoundError(errno.ENOENT, "No such file", "x.toml"), "x.toml: No such file"),
        (OSError(errno.EADDRINUSE, "address in use"), "address in use; choose another with --port"),
        (ExceptionGroup("", [ExceptionGroup("", [Refused("deep")])]), "deep"),
        (ExceptionGroup("", [Refused("one"), ValueError("a bug")]), None),
        (ValueError("a bug"), None),
    ],
)
def test_expected_failures_have_one_line_and_bugs_none(error: Exception, line: str | None) -> None:
    assert one_line(error) == line
