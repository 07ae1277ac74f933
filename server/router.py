"""What a WebSocket's address means: which resource, and how the client wants to begin. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qs

from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import is_ulid
from server.actors.kinds import Kind
from server.actors.resume import Wish

_KINDS: Final = {"conversations": Kind.CONVERSATION, "projects": Kind.PROJECT}
_TARGET: Final = re.compile(r"/ws/(conversations|projects)/([^/?#]*)(?:\?([^#]*))?\Z")
_CLIENT_ID_CHARACTERS: Final = 64
_POSITION: Final = re.compile(r"[0-9]{1,18}\Z")


class Route(NamedTuple):
    """Where a connection goes."""

    kind: Kind
    resource_id: str
    wish: Wish
    query: dict[str, str]


def is_socket_path(target: str) -> bool:
    """Whether a request target is a WebSocket resource at all; others are HTTP 404."""
    return _TARGET.match(target) is not None


def parse_target(target: str) -> Route:
    """Read a request target such as ``/ws/conversations/01J…?epoch=…&last_seq=7``.

    Raises:
        Fault: ``invalid_request`` (closes with 4400): the id is no ULID, or a parameter is malformed.
            ``not_found`` (4404): no such kind of resource.
    """
    match = _TARGET.match(target)
    if match is None:
        raise Fault(ErrorCode.NOT_FOUND, "no such resource")
    place, resource_id, parameters = match.groups()
    if not is_ulid(resource_id):
        raise Fault(ErrorCode.INVALID_REQUEST, "the id in the path must be a ULID: 26 upper-case characters")
    query = {name: values[-1] for name, values in parse_qs(parameters or "", keep_blank_values=True).items()}
    return Route(_KINDS[place], resource_id, _wish(query), query)


def _wish(query: dict[str, str]) -> Wish:
    client_id = query.get("client_id") or None
    if client_id is not None and len(client_id) > _CLIENT_ID_CHARACTERS:
        raise _refusal("client_id", f"at most {_CLIENT_ID_CHARACTERS} characters")
    last_seq = query.get("last_seq") or None
    if last_seq is not None and not _POSITION.match(last_seq):
        raise _refusal("last_seq", "a number from 0")
    resume = query.get("resume") or None
    if resume not in {None, "snapshot"}:
        raise _refusal("resume", "`snapshot`")
    return Wish(
        client_id=client_id,
        takeover=_flag(query, "takeover"),
        epoch=query.get("epoch") or None,
        last_seq=None if last_seq is None else int(last_seq),
        snapshot=resume == "snapshot",
    )


def _flag(query: dict[str, str], name: str) -> bool:
    value = query.get(name) or "false"
    if value not in {"true", "false"}:
        raise _refusal(name, "`true` or `false`")
    return value == "true"


def _refusal(name: str, allowed: str) -> Fault:
    return Fault(ErrorCode.INVALID_REQUEST, f"{name} must be {allowed}", details={"field": name})
