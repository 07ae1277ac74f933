"""Tickets for browsers, which cannot send a header with a WebSocket."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from server.access import TICKET_S
from server.rest.context import Call
from server.rest.declare import Ownership, Routes
from server.rest.schemas import NoBody, NoQuery

__all__ = ["ROUTES"]

ROUTES: Final = Routes()


class Ticket(Struct, rename="camel"):
    """Good for one WebSocket connection (``?ticket=…``) within its time."""

    ticket: str
    expires_in_ms: int


@ROUTES.declare("POST", "/api/ws-ticket", ownership=Ownership.CALLER, response=Ticket)
async def issue_ticket(call: Call[NoQuery, NoBody]) -> Ticket:
    """Get a single-use ticket with which the caller's page opens a WebSocket."""
    return Ticket(call.context.access.issue_ticket(call.principal), TICKET_S * 1000)
