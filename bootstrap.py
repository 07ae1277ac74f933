#!/usr/bin/env python3
"""Install what a clone of Turnwire needs and run it.

    python3 bootstrap.py serve [options of `turnwire serve`]
    python3 bootstrap.py test  [options of pytest]
    python3 bootstrap.py run PROGRAM [arguments]     a program of the development environment
    python3 bootstrap.py install [serve|dev]         only install

The active virtual environment is used, or else `.venv` in the clone, which is made when missing. Packages
come from the locks in `requirements/`, and only when these have changed since the last time. Needs nothing
but Python 3.11 and pip; this file imports the standard library alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
CACHE = HERE / ".cache"
LOCKS = {"serve": ("serve",), "dev": ("dev", "serve")}
"""Lock by name, with the locks that are satisfied once it is installed."""

NO_VENV = """\
This Python cannot make a virtual environment. Install what is missing and run the command again:
  Debian, Ubuntu:  apt install python3-venv      elsewhere:  python3 -m pip install --user virtualenv
or activate a virtual environment of your own first."""


def main(argv: list[str]) -> None:
    """Do what the command line says."""
    if sys.version_info < (3, 11):
        fail(f"Turnwire needs Python 3.11 or later; this is {sys.version.split()[0]}")
    verb, rest = (argv[0] if argv else ""), argv[1:]
    if verb == "serve":
        python = ready("serve")
        run(python, [str(python), "-m", "server", "serve", *rest])
    elif verb == "test":
        python = ready("dev")
        run(python, [str(python), "-m", "pytest", *rest], outside(python))
    elif verb == "run" and rest:
        python = ready("dev")
        run(python, [find(python, rest[0]), *rest[1:]])
    elif verb == "install" and (not rest or (len(rest) == 1 and rest[0] in LOCKS)):
        ready(rest[0] if rest else "dev")
    else:
        print((__doc__ or "").strip(), file=sys.stdout if verb in ("-h", "--help", "help") else sys.stderr)
        sys.exit(0 if verb in ("-h", "--help", "help") else 2)


def ready(lock: str) -> Path:
    """The Python of an environment in which `lock` is installed."""
    CACHE.mkdir(exist_ok=True)
    with one_at_a_time():
        python, pip = environment()
        install(python, pip, lock)
    return python


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Two of these in one clone wait for each other."""
    import fcntl

    with (CACHE / "bootstrap.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def environment() -> tuple[Path, list[str]]:
    """The interpreter to use, and the command that is pip for it."""
    if sys.prefix != sys.base_prefix:
        return with_pip(Path(sys.executable))
    active = os.environ.get("VIRTUAL_ENV")
    if active and (Path(active) / "bin" / "python").exists():
        return with_pip(Path(active) / "bin" / "python")
    python = HERE / ".venv" / "bin" / "python"
    if not works(python):
        make_environment(HERE / ".venv")
    return with_pip(python)


def works(python: Path) -> bool:
    return python.exists() and succeeds(
        [str(python), "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    )


def make_environment(folder: Path) -> None:
    say(f"Making a virtual environment in {folder.name}")
    here = [sys.executable, "-m"]
    ways = []
    if importlib.util.find_spec("ensurepip"):
        ways.append([*here, "venv", "--clear"])
    if importlib.util.find_spec("virtualenv"):
        ways.append([*here, "virtualenv", "--clear"])
    if importlib.util.find_spec("pip"):
        ways.append([*here, "venv", "--clear", "--without-pip"])
    if not any(succeeds([*way, str(folder)]) for way in ways):
        fail(NO_VENV)


def with_pip(python: Path) -> tuple[Path, list[str]]:
    """Find a pip for `python`: its own, one that it can unpack, or the one of the running Python."""
    own = [str(python), "-m", "pip"]
    if succeeds([*own, "--version"]):
        return python, own
    if succeeds([str(python), "-m", "ensurepip", "--default-pip"]) and succeeds([*own, "--version"]):
        return python, own
    borrowed = [sys.executable, "-m", "pip", "--python", str(python)]
    if not succeeds([*borrowed, "--version"]):
        fail(f"No pip for {python}.\n{NO_VENV}")
    return python, borrowed


def install(python: Path, pip: list[str], lock: str) -> None:
    prefix = Path(output([str(python), "-c", "import sys; print(sys.prefix)"]))
    stamp = prefix / "turnwire-installed.json"
    wanted = fingerprint(python, lock)
    known = read_stamp(stamp)
    if known.get(lock) == wanted:
        return
    requirements = HERE / "requirements" / (lock + ".txt")
    count = sum(1 for line in requirements.read_text().splitlines() if "==" in line)
    say(f"Installing up to {count} packages from requirements/{lock}.txt (once; a minute or two)")
    quiet = ["install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps"]
    logged([*pip, *quiet, "--requirement", str(requirements)])
    logged([*pip, *quiet, "--no-build-isolation", "--editable", str(HERE)])
    known.update({name: fingerprint(python, name) for name in LOCKS[lock]})
    stamp.write_text(json.dumps(known))


def fingerprint(python: Path, lock: str) -> str:
    """What an installation depends on: the lock, the package's description, this Python and this place."""
    parts = [(HERE / "requirements" / (lock + ".txt")).read_bytes(), (HERE / "pyproject.toml").read_bytes()]
    parts += [str(python.resolve()).encode(), str(HERE).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def read_stamp(stamp: Path) -> dict[str, str]:
    try:
        known = json.loads(stamp.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def outside(python: Path) -> dict[str, str]:
    """Paths of the parts that tests use and pip does not install, as environment variables."""
    made = subprocess.run(
        [str(python), str(HERE / "tools" / "outside.py")], stdout=subprocess.PIPE, text=True, check=False
    )
    if made.returncode:
        sys.exit(made.returncode)
    found: dict[str, str] = json.loads(made.stdout)
    return found


def find(python: Path, program: str) -> str:
    own = python.parent / program
    return str(own) if own.exists() else program


def run(python: Path, command: list[str], variables: dict[str, str] | None = None) -> NoReturn:
    """Become `command`, with the environment's programs first in the path."""
    path = str(python.parent) + os.pathsep + os.environ.get("PATH", os.defpath)
    environ = {**os.environ, **(variables or {}), "PATH": path}
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environ)
    except OSError as error:
        fail(f"{command[0]}: {error.strerror}")


def logged(command: list[str]) -> None:
    """Run an installing command without its noise; all of it is shown when the command fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        fail(done.stdout.rstrip() + "\nThe installation failed; the lines above say why.")


def succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False).returncode == 0


def output(command: list[str]) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def fail(text: str) -> NoReturn:
    say(text)
    sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
