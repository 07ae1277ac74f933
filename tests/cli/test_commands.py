"""The command line as a person meets it: exit codes, one line for a failure, no traceback."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from server.cli.settings import markdown_table
from server.settings import Settings

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = (sys.executable, "-c", "from server.cli import main; main()")


def turnwire(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**clean, "NO_COLOR": "1", **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["-h"],
        ["--version"],
        ["settings"],
        ["serve", "--help"],
        ["migrate", "--help"],
        ["scenario", "run", "--help"],
        ["stub-llm", "--help"],
    ],
)
def test_what_only_tells_something_exits_with_0(arguments: Sequence[str]) -> None:
    done = turnwire(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["serve", "--port", "abc"],
        ["serve", "--port", "65536"],
        ["serve", "extra"],
        ["migrate", "--nonsense"],
        ["scenario", "run"],
        ["scenario", "run", "no-such-file.toml"],
        ["stub-llm"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: Sequence[str]) -> None:
    done = turnwire(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "env", "said"),
    [
        (["serve", "--config", "no-such.toml"], {}, "no-such.toml"),
        (["serve"], {"TURNWIRE_PORT": "tcp://10.0.0.1:80"}, "TURNWIRE_PORT"),
        (["serve", "--host", "0.0.0.0"], {}, "tokens_file"),
        (["migrate"], {"DATABASE_URL": "postgresql://127.0.0.1:1/none"}, "does not answer"),
        (["migrate", "--check"], {"DATABASE_URL": "mysql://127.0.0.1/none"}, "postgresql://"),
    ],
)
def test_a_refusal_is_one_line_and_exits_with_1(
    arguments: Sequence[str], env: dict[str, str], said: str
) -> None:
    done = turnwire(*arguments, env=env)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("turnwire: ")
    assert said in line


def test_the_list_of_settings_is_whole_also_in_a_pipe() -> None:
    lines = turnwire("settings").stdout.splitlines()
    listed = [line.split()[0] for line in lines if not line.startswith(" ") and line.strip()]
    assert listed == ["setting", *Settings.__struct_fields__]


def test_the_readme_has_the_present_settings() -> None:
    assert markdown_table() in (ROOT / "README.md").read_text(encoding="utf-8")
    assert turnwire("settings", "--markdown").stdout.strip() == markdown_table()


def test_help_does_not_import_what_only_commands_need() -> None:
    heavy = (
        "{'openai', 'asyncpg', 'sqlalchemy', 'alembic', 'starlette', 'websockets', 'structlog', 'msgspec'}"
    )
    code = f"import sys, server.cli; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
