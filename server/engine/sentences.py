"""Cuts streamed text into sentences (ST2): pure, lossless, the same cuts whatever the chunking.

White space belongs to the sentence before it. A cut is made only when no further text can change
it, so the cutter looks a few characters ahead; what it has not decided is :attr:`SentenceCutter.pending`.
Lines count as in Markdown: a blank line, a heading, a list item, a quote or a table row begins a sentence,
and a fenced code block is one, whatever full stops it holds.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from server.engine.abbreviations import BEFORE_NUMBER, INSIDE, MONTHS, STARTERS, TITLES

LIMIT: Final = 2000
"""Characters after which a sentence is cut at a space, a line end or, without either, anywhere."""

# Stops that end a sentence without white space after them, and those that need it.
_FULL: Final = "。｡．！？︒﹒﹗﹖؟۔।॥։።፧፨။។៕"
_WEAK: Final = ".!?…‼⁇⁈⁉"
# What may stand between a stop and the white space: brackets, quotes, Markdown's emphasis, emoji's selectors.
_CLOSING_ONLY: Final = ")]}）］｝」』】〉》〗〕〙〛”’›"
_CLOSING: Final = _CLOSING_ONLY + "\"'»«*_`~＂＇\ufe0f\u20e3"
_QUOTES: Final = "\"'”’»«」』"
_BREAKS: Final = "\n\r\x0b\x0c\x85\u2028\u2029"

# A guillemet after a stop and a space closes the quotation, as the French set it.
_TRIGGER: Final = re.compile(rf"[{re.escape(_FULL + _WEAK + _BREAKS)}]|(?<=[{re.escape(_WEAK)}]\s)»")
_STOPS_AND_CLOSING: Final = re.compile(f"[{re.escape(_FULL + _WEAK + _CLOSING)}]*")
_SPACE: Final = re.compile(r"\s*")
_BREAK: Final = re.compile(rf"\r\n|[{_BREAKS}]")
_LAST_SPACE: Final = re.compile(r".*\s(?=\S)", re.DOTALL)
_CJK: Final = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_HEADING: Final = re.compile(r"\s*#{1,6}\s")
_INITIALS: Final = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]|[^\W\d_]")
_MARKUP: Final = " \t\n\r*_#>|-+`~•(["
_WORD_CHARACTERS: Final = 16
"""How far the cutter looks behind a full stop for an abbreviation, and ahead for the next word."""

# Phases of the scan.
_BEGIN, _PROSE, _STOP, _GAP, _AHEAD, _CODE, _AFTER_CODE, _CUT = range(8)
# What one step of it says.
_GO_ON, _WAIT, _TOO_LONG = range(3)


class SentenceCutter:
    """Cuts one message's text; feed it as it comes, then flush.

    - :attr:`pending` is the text fed and not yet returned: the sentence begun, at most a few
      characters over :data:`LIMIT`.
    - :attr:`next_index` is the index that the next returned sentence has.

    The concatenation of all that was returned and of :attr:`pending` is what was fed. The time
    is linear in the text, also one character at a time.
    """

    __slots__ = ("_at", "_fence", "_fence_open", "_line", "_phase", "_stop", "next_index", "pending")

    def __init__(self) -> None:
        self.pending = ""
        self.next_index = 0
        self._phase = _BEGIN
        self._at = 0  # where the scan goes on, in pending
        self._stop = 0  # where the stops (or the line break) under consideration begin
        self._line = True  # the sentence begun begins a line
        self._fence = ""  # what opened the code block that we are in
        self._fence_open = False  # its first line has not ended: it may turn out to be inline code

    def feed(self, text: str) -> list[str]:
        """Take more text and return the sentences that are now certain, mostly none."""
        self.pending += text
        if self._phase == _PROSE and len(self.pending) <= LIMIT and _TRIGGER.search(text) is None:
            return []
        sentences: list[str] = []
        buffer, start = self.pending, 0
        while (cut := self._next_cut(buffer, start)) > 0:
            sentence = buffer[start:cut]
            sentences.append(sentence)
            self._line = _ends_line(sentence, line=self._line)
            start = self._at = cut
            self._phase = _CODE if self._fence else _BEGIN
        if start:
            self.pending = buffer[start:]
            self._at -= start
            self._stop -= start
            self.next_index += len(sentences)
        return sentences

    def flush(self) -> str | None:
        """Return the tail, or ``None`` if there is none; the cutter may then be fed the next text."""
        tail, self.pending = self.pending, ""
        self._phase, self._at, self._stop = _BEGIN, 0, 0
        self._line, self._fence, self._fence_open = True, "", False
        if not tail:
            return None
        self.next_index += 1
        return tail

    def _next_cut(self, buffer: str, start: int) -> int:
        """Find where the sentence at ``start`` ends; 0 if more text is needed to say so."""
        limit = start + LIMIT
        step = _GO_ON
        while step == _GO_ON:
            phase = self._phase
            if phase == _PROSE:
                step = self._seek(buffer, limit)
            elif phase == _STOP:
                step = self._run(buffer, limit, _STOPS_AND_CLOSING, _GAP)
            elif phase == _GAP:
                step = self._run(buffer, limit, _SPACE, _AHEAD)
            elif phase == _AHEAD:
                step = self._decide(buffer, start)
            elif phase == _BEGIN:
                step = self._begin(buffer, limit)
            elif phase == _CODE:
                step = self._code(buffer, limit)
            elif phase == _AFTER_CODE:
                step = self._run(buffer, limit, _SPACE, _CUT)
            else:
                return self._at
        if step == _WAIT:
            return 0
        self._fence_open = False
        return _forced_cut(buffer, start, limit, code=bool(self._fence))

    def _begin(self, buffer: str, limit: int) -> int:
        """Skip leading white space (the text's own, or left by a forced cut) and see whether code begins."""
        at = self._at = _end_of(_SPACE, buffer, self._at, limit)
        if at >= limit:
            return _WAIT if len(buffer) == limit else _TOO_LONG
        if at == len(buffer):
            return _WAIT
        mark = buffer[at]
        if self._line and mark in "`~":
            head = buffer[at : at + 3]
            if head == mark * len(head):
                if len(head) < 3:
                    return _WAIT
                self._fence, self._fence_open, self._stop, self._phase = head, True, at, _CODE
                return _GO_ON
        self._phase = _PROSE
        return _GO_ON

    def _seek(self, buffer: str, limit: int) -> int:
        """Go to the next stop or line break."""
        found = _TRIGGER.search(buffer, self._at, limit)
        if found is None:
            self._at = min(len(buffer), limit)
            return _WAIT if len(buffer) <= limit else _TOO_LONG
        self._stop = self._at = found.start()
        self._phase = _GAP if buffer[self._at] in _BREAKS else _STOP
        return _GO_ON

    def _run(self, buffer: str, limit: int, run: re.Pattern[str], then: int) -> int:
        """Go to the end of a run of stops or of white space."""
        at = self._at = _end_of(run, buffer, self._at, limit)
        if at == len(buffer):
            return _WAIT
        if at == limit and run.match(buffer, at, at + 1).end() > at:  # type: ignore[union-attr]
            return _TOO_LONG
        self._phase = then
        return _GO_ON

    def _decide(self, buffer: str, start: int) -> int:
        """Decide whether the sentence ends before :attr:`_at`, where the white space has ended."""
        verdict = _ends_sentence(buffer, start, self._stop, self._at, line=self._line)
        if verdict is None:
            return _WAIT
        self._phase = _CUT if verdict else _PROSE
        return _GO_ON

    def _code(self, buffer: str, limit: int) -> int:
        """Go through a code block line by line, to the end of the one that closes it."""
        while (end := buffer.find("\n", self._at, limit)) >= 0:
            line = buffer[self._at : end].strip()
            self._at = end + 1
            if self._fence_open:
                self._fence_open = False
                if self._fence[0] == "`" and "`" in line.lstrip("`"):
                    self._fence, self._phase, self._at = "", _PROSE, self._stop + 3
                    return _GO_ON
                self._fence = line[: len(line) - len(line.lstrip(line[0]))]
            elif line.startswith(self._fence) and not line.strip(self._fence[0]):
                self._fence, self._phase, self._at = "", _AFTER_CODE, end
                return _GO_ON
        return _WAIT if len(buffer) <= limit else _TOO_LONG


def _end_of(run: re.Pattern[str], buffer: str, at: int, limit: int) -> int:
    found = run.match(buffer, at, limit)
    return at if found is None else found.end()


def _ends_line(sentence: str, *, line: bool) -> bool:
    """Whether what follows the sentence begins a line; ``line`` says whether the sentence itself did."""
    words = len(sentence.rstrip())
    return _BREAK.search(sentence, words) is not None or (line and words == 0)


def _ends_sentence(buffer: str, start: int, stop: int, at: int, *, line: bool) -> bool | None:
    """Decide whether the sentence from ``start`` ends before ``at``.

    Args:
        stop: Where its stops, or a line break without one, begin.
        at: The first character after them that is not white space.
        line: The sentence begins a line.

    Returns:
        ``None`` if more text is needed, at most :data:`_WORD_CHARACTERS` and a few.
    """
    gap_start = _end_of(_STOPS_AND_CLOSING, buffer, stop, at)
    marks, gap, following = buffer[stop:gap_start], buffer[gap_start:at], buffer[at]
    if _extends(following):
        return False
    breaks = _BREAK.findall(gap)
    if breaks:
        if len(breaks) > 1 or breaks[0] == "\u2029":
            return True
        block = _begins_block(buffer, at)
        if block is not False:
            return block
        if line and _HEADING.match(buffer, start):
            return True
    if not marks or (
        stop - start < LIMIT // 16 and not buffer[start:stop].strip(_MARKUP + _WEAK + _FULL + _CLOSING)
    ):
        return False
    if marks.strip(_WEAK + _CLOSING):
        return following not in _CLOSING_ONLY and not (buffer[stop - 1].isdigit() and following.isdigit())
    if not gap:
        return marks[0] in "!?" and bool(_CJK.match(following) and _CJK.match(buffer, stop - 1))
    if following in _CLOSING_ONLY or following in _FULL + _WEAK or _closes_quotation(buffer, start, stop, at):
        return False
    if marks[0] == "»":
        marks = buffer[stop - 2] + marks
    lower = following.islower() and not breaks
    if marks.strip(".…" + _CLOSING):
        return not (lower and marks.strip(_WEAK + "*_`~\ufe0f\u20e3"))
    if lower:
        return False
    return True if marks.startswith(("…", "..")) else _full_stop_ends(buffer, start, stop, at)


def _full_stop_ends(buffer: str, start: int, stop: int, at: int) -> bool | None:
    """Decide about a single full stop, which may be an abbreviation's, an initial's or a number's."""
    begin = stop
    lowest = max(start, stop - _WORD_CHARACTERS)
    while begin > lowest and (buffer[begin - 1].isalnum() or buffer[begin - 1] == "."):
        begin -= 1
    word = buffer[begin:stop]
    lowered = word.lower()
    if lowered in TITLES:
        return False
    if lowered in BEFORE_NUMBER:
        return not buffer[at].isdigit()
    if word.replace(".", "").isdigit():
        if begin - start < _WORD_CHARACTERS and not buffer[start:begin].strip(_MARKUP):
            return False  # "3. Open the box."
        ahead = _next_word(buffer, at) if len(word) <= 2 and buffer[at].isalpha() else ""
        return None if ahead is None else ahead not in MONTHS
    if lowered in INSIDE or (_INITIALS.fullmatch(word) and word != "I" and (len(word) > 1 or word.isupper())):
        ahead = _next_word(buffer, at)
        return None if ahead is None else ahead in STARTERS
    return True


def _next_word(buffer: str, at: int) -> str | None:
    """The word at ``at`` in lower case; ``None`` if its end is not known yet."""
    begin = at
    while begin < len(buffer) and begin - at < 4 and buffer[begin] in "\"'“‘«(*_[":
        begin += 1
    end = begin
    while end < len(buffer) and end - begin < _WORD_CHARACTERS and buffer[end].isalpha():
        end += 1
    if end == len(buffer) and end - begin < _WORD_CHARACTERS:
        return None
    return buffer[begin:end].lower()


def _closes_quotation(buffer: str, start: int, stop: int, at: int) -> bool:
    """Whether the guillemet at ``at`` closes one that the sentence opened (it may do so after a space)."""
    return buffer[at] == "»" and buffer.rfind("«", start, stop) > buffer.rfind("»", start, stop)


def _begins_block(buffer: str, at: int) -> bool | None:
    """Whether a line whose text begins at ``at`` is a heading, list item, quote, table row or code fence.

    Returns:
        ``None`` if more text is needed, at most seven characters.
    """
    mark = buffer[at]
    if mark in ">|":
        return True
    end, most = at, {"#": 6, "`": 3, "~": 3}.get(mark, 1)
    if mark.isdecimal():
        while end < len(buffer) and end - at < 3 and buffer[end].isdecimal():
            end += 1
        if end < len(buffer) and buffer[end] not in ".)":
            return False
        end += 1
    elif mark in "#`~-*+•‣◦–":
        while end < len(buffer) and end - at < most and buffer[end] == mark:
            end += 1
        if mark in "`~" and end - at == most:
            return True
    else:
        return False
    if end >= len(buffer):
        return None
    return mark not in "`~" and buffer[end].isspace()


def _forced_cut(buffer: str, start: int, limit: int, *, code: bool) -> int:
    """Cut a sentence that reaches beyond ``limit``: at a line end (of code), at white space, or anywhere."""
    middle = start + LIMIT // 2
    if code and (line_end := buffer.rfind("\n", middle, limit)) >= 0:
        cut = _end_of(_SPACE, buffer, line_end, limit + 1)
        if cut <= limit and not _extends(buffer[cut]):
            return cut
    space = _LAST_SPACE.match(buffer, middle, limit + 1)
    if space is not None and not _extends(buffer[space.end()]):
        return space.end()
    for cut in range(limit, start, -1):
        if _may_break(buffer, start, cut):
            return cut
    return limit


def _extends(character: str) -> bool:
    """Whether a character belongs to the one before it: combining marks, joiners, emoji modifiers, tags."""
    if character < "\u0300":
        return False
    return (
        unicodedata.category(character) in {"Mn", "Mc", "Me"}
        or character in "\u200c\u200d"
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or "\U000e0020" <= character <= "\U000e007f"
    )


def _may_break(buffer: str, start: int, cut: int) -> bool:
    """Whether a hard cut leaves what a reader sees as one character whole."""
    before, after = buffer[cut - 1], buffer[cut]
    if _extends(after) or before == "\u200d" or (before == "\r" and after == "\n"):
        return False
    if "\u1160" <= after <= "\u11ff" and "\u1100" <= before <= "\u11ff":
        return False
    if "\U0001f1e6" <= after <= "\U0001f1ff":
        flags = cut
        while flags > start and "\U0001f1e6" <= buffer[flags - 1] <= "\U0001f1ff":
            flags -= 1
        return (cut - flags) % 2 == 0
    return True
