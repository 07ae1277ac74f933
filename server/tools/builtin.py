"""The tools that are always there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.tools.ask_user import ask_user
from server.tools.canvas import canvas_edit
from server.tools.clock import current_time
from server.tools.search import search

if TYPE_CHECKING:
    from server.tools.base import Tool

BUILT_IN: Final[tuple[Tool, ...]] = (search, canvas_edit, ask_user, current_time)
