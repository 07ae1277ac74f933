"""What goes wrong with sessions (SE8)."""

from __future__ import annotations

from typing import Any

from protocol.codes import ErrorCode
from protocol.errors import Fault


class SessionServiceError(Fault):
    """The base of what goes wrong with sessions."""

    default_code = ErrorCode.INTERNAL

    def __init__(
        self, message: str = "", *, code: ErrorCode | None = None, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(code or self.default_code, message, details=details)


class SessionNotFoundError(SessionServiceError):
    """No such session, or not the caller's."""

    default_code = ErrorCode.NOT_FOUND


class SessionExportError(SessionServiceError):
    """A session that cannot be written as JSON."""

    default_code = ErrorCode.INVALID_REQUEST


class SessionImportError(SessionServiceError):
    """Bytes that are no export, of another schema version, or not as they were exported."""

    default_code = ErrorCode.INVALID_EXPORT


class SessionValidationError(SessionServiceError, ValueError):
    """A session or a message that breaks a rule of SE4, which the text names."""

    default_code = ErrorCode.INVALID_REQUEST
