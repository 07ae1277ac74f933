"""Programs that pip does not install: found through the environment, or on the path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def node() -> str:
    """The Node to test with."""
    return (
        os.environ.get("TURNWIRE_TEST_NODE") or shutil.which("node") or _missing("Node", "TURNWIRE_TEST_NODE")
    )


def node_modules() -> str:
    """A ``node_modules`` folder that has ``ws``."""
    place = os.environ.get("TURNWIRE_TEST_NODE_MODULES", "")
    if not (Path(place) / "ws" / "package.json").is_file():
        _missing("the npm package ws", "TURNWIRE_TEST_NODE_MODULES")
    return place


def chromium() -> str:
    """The Chromium or Chrome to test with."""
    named = (shutil.which(name) for name in CHROMIUM_NAMES)
    found = os.environ.get("TURNWIRE_TEST_CHROMIUM") or next(filter(None, named), None)
    return found or _missing("Chromium", "TURNWIRE_TEST_CHROMIUM")


def _missing(what: str, variable: str) -> NoReturn:
    """In CI a missing part is a failure; elsewhere the test is left out, and says why."""
    text = f"{what} is missing: set {variable}"
    if os.environ.get("CI"):
        pytest.fail(text, pytrace=False)
    pytest.skip(text)
