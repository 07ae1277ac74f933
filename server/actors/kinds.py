"""The kinds of resources: what a socket serves, each by an actor of its own."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """A kind of resource, as it is called in metrics and logs."""

    CONVERSATION = "conversation"
    PROJECT = "project"
