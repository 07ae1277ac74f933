"""Who is calling, and from which page.

Three questions, asked by the sockets and by REST alike: who is it (:meth:`Access.authenticate`), may a page
of this origin ask (:meth:`Access.origin_allowed`), and is the name it used for us one of ours
(:meth:`Access.host_allowed`, against DNS rebinding). It does not know what is asked for.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import secrets
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from protocol.codes import ErrorCode
from protocol.errors import Fault
from server.logs import get_logger
from server.settings import SettingsError, require_authentication

if TYPE_CHECKING:
    from server.settings import Settings

__all__ = ["LOCAL", "TICKET_S", "Access", "Principal"]

TICKET_S: Final = 30
"""How long a ticket is good for."""
_MAX_TICKETS: Final = 10_000
_RELOAD_S: Final = 1.0
"""How often the token file is looked at, at most."""
_MAX_TOKEN_FILE_BYTES: Final = 16 * 1024 * 1024
_COMMENT: Final = re.compile(r"(^|\s)#.*")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}

_log = get_logger("access")


class Principal(Struct, frozen=True):
    """Who calls; everything belongs to the principal that made it."""

    name: str
    expires_at: datetime | None = None
    """When the credential ends, aware; ``None`` is never."""


LOCAL: Final = Principal("local")
"""The one principal when no authentication is configured."""


class Access:
    """Decides who may call; one for the process, made from the settings."""

    def __init__(
        self, *, tokens: TokenFile | None, origins: frozenset[_Place] = frozenset(), host: str = "127.0.0.1"
    ) -> None:
        self._tokens: Final = tokens
        self._origins: Final = origins
        self._tickets: Final = Tickets()
        self._host: Final = host.lower()
        """What the server was told to listen on: itself one of its names."""

    @classmethod
    def from_settings(cls, settings: Settings) -> Access:
        """Read what is configured.

        Raises:
            SettingsError: Anybody would be let in from elsewhere, the token file cannot be read or has a
                malformed line, or an allowed origin is none.
        """
        require_authentication(settings)
        path = settings.tokens_file
        return cls(
            tokens=None if path is None else TokenFile(path),
            origins=frozenset(_allowed_origin(text) for text in settings.allowed_origins),
            host=settings.host,
        )

    @property
    def authenticating(self) -> bool:
        """Whether callers must show who they are; if not, everybody is :data:`LOCAL`."""
        return self._tokens is not None

    def authenticate(self, headers: Mapping[str, str], query: Mapping[str, str]) -> Principal:
        """Who sends this request.

        Args:
            headers: Of the request; looked up as ``Authorization``, in a mapping that ignores case.
            query: Of its address; what only browsers need to send there.

        Raises:
            Fault: ``unauthenticated``.
        """
        if self._tokens is None:
            return LOCAL
        if "ticket" in query:
            return self._tickets.redeem(query["ticket"])
        scheme, _, token = headers.get("Authorization", "").strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Fault(ErrorCode.UNAUTHENTICATED, "A bearer token is needed.")
        principal = self._tokens.principal_of(token.strip())
        if principal is None:
            raise Fault(ErrorCode.UNAUTHENTICATED, "The token is not known.")
        return principal

    def issue_ticket(self, principal: Principal) -> str:
        """A ticket with which this caller's page may open one WebSocket, within :data:`TICKET_S` seconds."""
        return self._tickets.issue(principal)

    def origin_allowed(self, origin: str | None, host: str | None) -> bool:
        """Whether a page of this origin may ask: none, the server's own, or one of the settings.

        Args:
            origin: The request's ``Origin``.
            host: Its ``Host``, which is checked too (:meth:`host_allowed`).
        """
        if not self.host_allowed(host):
            return False
        if origin is None:
            return True
        page = _place(origin)
        if page is None:
            return False
        own = _place(f"{page.scheme}://{host}") if host else None
        return page == own or page in self._origins

    def host_allowed(self, host: str | None) -> bool:
        """Whether the request was meant for us.

        Without authentication the server trusts its own machine. A page from elsewhere could make its name
        point at a loopback address; then ``Host`` is that name, and it is refused.
        """
        if self.authenticating:
            return True
        place = _place(f"http://{host}") if host else None
        return place is not None and (_is_loopback(place.host) or place.host == self._host)


class Tickets:
    """Single-use tickets, for browsers cannot send a header with a WebSocket; kept as hashes, in memory."""

    def __init__(self) -> None:
        self._issued: Final[dict[bytes, tuple[float, Principal]]] = {}
        """By hash, oldest first: when it ends (monotonic seconds), and whose it is."""

    def issue(self, principal: Principal) -> str:
        """Make a ticket; the oldest are forgotten when there are too many."""
        now = time.monotonic()
        while self._issued:
            oldest = next(iter(self._issued))
            if self._issued[oldest][0] > now and len(self._issued) < _MAX_TICKETS:
                break
            del self._issued[oldest]
        ticket = secrets.token_urlsafe(32)
        self._issued[_digest(ticket)] = (now + TICKET_S, principal)
        return ticket

    def redeem(self, ticket: str) -> Principal:
        """Whose ticket it is; it cannot be used again.

        Raises:
            Fault: ``unauthenticated``.
        """
        ends, principal = self._issued.pop(_digest(ticket), (0.0, LOCAL))
        if ends <= time.monotonic():
            raise Fault(ErrorCode.UNAUTHENTICATED, "The ticket is not known, was used or has expired.")
        return principal


class TokenFile:
    """Static bearer tokens: lines ``token principal``, ``#`` begins a comment; read again when it changes.

    Only hashes are kept and compared, so that the time an answer takes tells nothing about a token.
    """

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._stamp = self._stat()
        self._principals = self._read()
        self._looked_at = time.monotonic()

    def principal_of(self, token: str) -> Principal | None:
        """Whose token it is, or ``None``."""
        self._refresh()
        return self._principals.get(_digest(token))

    def _refresh(self) -> None:
        """Read a changed file; one that cannot be read or is malformed leaves the old tokens in force."""
        now = time.monotonic()
        if now - self._looked_at < _RELOAD_S:
            return
        self._looked_at = now
        try:
            stamp = self._stat()
            if stamp == self._stamp:
                return
            self._principals, self._stamp = self._read(), stamp
        except SettingsError as error:
            _log.warning("token file not read again", reason=str(error))

    def _stat(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise self._wrong(f"cannot be read: {error.strerror}") from error
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> dict[bytes, Principal]:
        try:
            if self._path.stat().st_size > _MAX_TOKEN_FILE_BYTES:
                raise self._wrong("is too large")
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise self._wrong(f"cannot be read: {getattr(error, 'strerror', 'not UTF-8')}") from error
        found: dict[bytes, Principal] = {}
        for number, line in enumerate(lines, 1):
            fields = _COMMENT.sub("", line).split()
            if not fields:
                continue
            if len(fields) != 2:
                raise self._wrong(f"line {number}: expected `token principal`")
            found[_digest(fields[0])] = Principal(fields[1])
        return found

    def _wrong(self, what: str) -> SettingsError:
        return SettingsError(f"tokens_file: {str(self._path)!r} {what}")


class _Place(NamedTuple):
    """An origin, normalised."""

    scheme: str
    host: str
    port: int | None


def _place(origin: str) -> _Place | None:
    """Read an origin such as ``https://example.org:8443``; ``None`` for anything else, like ``null``."""
    try:
        parts = urlsplit(origin)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not parts.scheme or not host or parts.path or parts.query or parts.fragment or parts.username:
        return None
    return _Place(parts.scheme, host.rstrip("."), port or _DEFAULT_PORTS.get(parts.scheme))


def _allowed_origin(text: str) -> _Place:
    place = _place(text.rstrip("/"))
    if place is None:
        raise SettingsError(f"allowed_origins: {text!r} is not an origin like 'https://example.org'")
    return place


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
