"""A token bucket: how many frames a connection may send (ER4). Pure; the caller brings the clock."""

from __future__ import annotations

import math


class TokenBucket:
    """``burst`` tokens at once, ``per_s`` more each second."""

    __slots__ = ("_at", "_burst", "_per_s", "_tokens")

    def __init__(self, burst: int, per_s: float, now: float) -> None:
        self._burst = float(burst)
        self._per_s = per_s
        self._tokens = float(burst)
        self._at = now

    def take(self, now: float) -> int:
        """Take a token.

        Returns:
            0 if there was one, otherwise how long to wait for the next, milliseconds, at least 1.
        """
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_s)
        self._at = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0
        return max(1, math.ceil((1.0 - self._tokens) / self._per_s * 1000))
