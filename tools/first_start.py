"""Try the README's first command as a newcomer has it: a fresh virtual environment, the lock for serving
alone.

    python3 tools/first_start.py

Makes the environment in a temporary folder, runs ``bootstrap.py serve`` there on a free port with a fresh
state
folder, asks for the page and whether it is ready, and ends what it started.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
LIMIT_S = 600


def main() -> int:
    """Entry of the command line."""
    with tempfile.TemporaryDirectory(prefix="tw-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o755)
        venv.create(place / "venv", with_pip=True)
        env = {
            key: value for key, value in os.environ.items() if not key.startswith(("TURNWIRE_", "OPENAI_"))
        }
        env |= {
            "VIRTUAL_ENV": str(place / "venv"),
            "TURNWIRE_PORT": "0",
            "TURNWIRE_STATE_DIR": str(place / "state"),
        }
        python = place / "venv" / "bin" / "python"
        command = [str(python), "bootstrap.py", "serve"]
        with subprocess.Popen(command, cwd=HERE, env=env, stdout=subprocess.PIPE, text=True) as server:
            try:
                return look(server)
            finally:
                server.send_signal(signal.SIGTERM)
                server.wait(30)


def look(server: "subprocess.Popen[str]") -> int:
    """Wait for the address, then ask for the page and whether it can serve."""
    assert server.stdout is not None
    began = time.monotonic()
    for line in server.stdout:
        print(line, end="")
        if "ready" in line:
            url = line.split()[-1]
            for path in ("/", "/readyz", "/ui/turnwire.js"):
                with urllib.request.urlopen(url + path, timeout=10) as answer:
                    print(f"{path}: {answer.status}")
            return 0
        if time.monotonic() - began > LIMIT_S:
            break
    print("the server did not start", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
