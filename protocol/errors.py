"""What may go wrong in a way that a client may see. Anything that is not a :class:`Fault` is a bug."""

from __future__ import annotations

from typing import Any

from protocol.codes import ERRORS, CloseCode, ErrorCode


class Fault(Exception):
    """A failure with a code of the one table.

    - ``message``: for humans; the table's meaning when none is given.
    - ``details``: JSON, for programs; goes to the client as it is.
    - ``retry_after_ms``: when to try again, if that is known.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str = "",
        *,
        details: dict[str, Any] | None = None,
        retry_after_ms: int | None = None,
        close: CloseCode | None = None,
    ) -> None:
        self.code = code
        self.message = message or ERRORS[code].meaning
        self.details: dict[str, Any] = {} if details is None else details
        self.retry_after_ms = retry_after_ms
        self._close = close
        super().__init__(self.message)

    @property
    def http_status(self) -> int:
        """The status of a REST answer; 500 for a code that has none of its own."""
        return ERRORS[self.code].http_status or 500

    @property
    def retryable(self) -> bool:
        """Whether the same request may work later."""
        return ERRORS[self.code].retryable

    @property
    def close_code(self) -> CloseCode | None:
        """What to close with if this refuses or ends a connection (a refused frame never does)."""
        return self._close if self._close is not None else ERRORS[self.code].close


class BadFrame(Fault):
    """A client frame that cannot be understood (ER1, ER2); ``field`` is its path, like ``content``."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(ErrorCode.BAD_FRAME, message, details={} if field is None else {"field": field})
        self.field = field
