"""``current_time``: models do not know what day it is."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Meta, Struct

from server.tools.base import Policy, ToolFault, tool

if TYPE_CHECKING:
    from server.tools.base import ToolContext


class Zone(Struct, frozen=True):
    """Where."""

    zone: Annotated[
        str, Meta(min_length=1, max_length=64, description="IANA time zone, such as Europe/Berlin.")
    ] = "UTC"


class Moment(Struct, frozen=True):
    """What the clock says."""

    time: str
    zone: str
    weekday: str
    utc_offset: str
    unix_s: int


@tool(policy=Policy.IMMEDIATE, timeout_s=5)
async def current_time(arguments: Zone, context: ToolContext) -> Moment:
    """Tell the current date and time in a time zone."""
    del context
    try:
        zone = ZoneInfo(arguments.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ToolFault(f"there is no time zone named {arguments.zone!r}") from None
    now = datetime.now(zone)
    return Moment(
        time=now.isoformat(timespec="seconds"),
        zone=arguments.zone,
        weekday=_WEEKDAYS[now.weekday()],
        utc_offset=now.isoformat(timespec="seconds")[19:],
        unix_s=int(now.timestamp()),
    )


_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
