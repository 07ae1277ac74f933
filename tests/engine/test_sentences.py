"""The sentence cutter: lossless, the same cuts whatever the chunking (ST2)."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.engine.sentences import LIMIT, SentenceCutter


def cut(text: str, size: int | None = None) -> list[str]:
    """All sentences and the tail of a text fed in pieces of ``size`` characters."""
    cutter = SentenceCutter()
    size = size or max(len(text), 1)
    sentences: list[str] = []
    for at in range(0, len(text), size):
        before = cutter.next_index
        found = cutter.feed(text[at : at + size])
        assert cutter.next_index == before + len(found)
        sentences += found
        assert "".join(sentences) + cutter.pending == text[: at + size]
    tail = cutter.flush()
    assert cutter.pending == ""
    return sentences if tail is None else [*sentences, tail]


def lines(table: str) -> list[str]:
    return [line for line in table.strip().splitlines() if line]


# One text a line; "|" marks where it is cut, "⏎" is a line break.
TABLE = lines("""
Hello there. |How are you? |Fine!
One.  |Two.
Dr. Smith and Mrs. Jones paid $3.14. |They left.
Use e.g. Python, i.e. a language, etc. |It works.
He lives in the U.S. |He likes the U.S. Army.
See Fig. 3 and No. 5. |No. |That was all.
J. R. R. Tolkien wrote it. |So do I. |Good.
Version 2.0.1 is out. |See example.com/a.b?c=d for more.
It costs 1.5 or 2. |Then 3. |Done.
Wait... what? |Well... |I see. |And… so on.
He said "Yes." |Then he left. |(Really.) |Ok.
“Really?” he asked. |“Yes.” |She went.
Stop!! |What?! |No way?!?! |Ok.
yes! |and no? |or maybe. but no
**Bold.** |_Soft._ |`code.` |Next.
« Oui. » |Puis rien. |« Non ! » |Bon.
Am 3. Oktober war es z.B. kalt. |Ja.
你好。|「世界。」|他说！|真的吗？|是
彼は「はい。」|と言った。|終わり
全角．|３．１４ です。|次
你好!|我很好?|是的. |好
यह है। |वह है॥ |हाँ
مرحبا؟ |نعم. |لا
Բարև։ |Այո։ |Ոչ
Wow‼️ |Great! |🎉 Party! |👩‍👩‍👧 ok
no punctuation at all
... And
- one⏎|- two. |Three⏎|* four
1. First thing.⏎|2. Second thing. |More.⏎|10) Tenth
# Title⏎|Text that is⏎wrapped here.⏎|New line.
A paragraph⏎⏎|another one⏎ ⏎|third
Intro:⏎|> quote⏎|> more⏎⏎|Text
| a | b |⏎
Windows.⏎|lines⏎⏎|here
""")


def expected(line: str) -> tuple[str, list[str]]:
    parts = line.replace("⏎", "\n").split("|")
    return "".join(parts), [part for part in parts if part]


@pytest.mark.parametrize("line", [line for line in TABLE if not line.startswith("| a")])
def test_ST2_cuts_where_a_reader_would(line: str) -> None:
    text, sentences = expected(line)
    assert cut(text) == sentences
    assert cut(text, 1) == sentences
    assert cut(text, 3) == sentences


def test_ST2_every_row_of_a_table_is_a_sentence() -> None:
    text = "Here:\n| a | b |\n|---|---|\n| 1. | 2. x |\n\nDone. Ok"
    assert cut(text, 1) == ["Here:\n", "| a | b |\n", "|---|---|\n", "| 1. | 2. x |\n\n", "Done. ", "Ok"]


@pytest.mark.parametrize("fence", ["```", "~~~", "````"])
def test_ST2_a_code_block_is_one_sentence(fence: str) -> None:
    code = f"{fence}python\na = 1.  # No. Yes! Why?\n\n- b\n{fence} x\n{fence}\n"
    text = f"Look. This:\n{code}\nAfter. Then"
    assert cut(text, 1) == cut(text) == ["Look. ", "This:\n", code + "\n", "After. ", "Then"]


def test_ST2_an_indented_code_block_in_a_list_is_one_sentence() -> None:
    text = "- Do:\n  ```sh\n  ls. A\n  ```\n- Then. More"
    assert cut(text, 1) == ["- Do:\n  ", "```sh\n  ls. A\n  ```\n", "- Then. ", "More"]


def test_ST2_three_backticks_within_a_line_are_no_block() -> None:
    assert cut("```a``` is code. Yes.\nNo. X", 1) == ["```a``` is code. ", "Yes.\n", "No. ", "X"]


def test_ST2_long_code_is_cut_at_line_ends() -> None:
    body = "".join(f"line_{number} = {number}.5\n" for number in range(400))
    sentences = cut(f"```\n{body}```\nEnd. X", 7)
    assert "".join(sentences) == f"```\n{body}```\nEnd. X"
    assert all(sentence.endswith("\n") for sentence in sentences[:-2])
    assert sentences[-2:] == ["End. ", "X"]
    assert max(map(len, sentences)) <= LIMIT


def test_ST2_an_endless_sentence_is_cut_at_a_space() -> None:
    sentences = cut("some words " * 1000, 5)
    assert len(sentences) > 4
    assert max(map(len, sentences)) <= LIMIT
    assert all(sentence[-1] == " " and sentence[0] != " " for sentence in sentences)


@pytest.mark.parametrize("whole", ["👩‍👩‍👧", "🇩🇪", "e\u0301\u0323", "👍🏽", "각"])
def test_ST2_a_hard_cut_leaves_characters_whole(whole: str) -> None:
    for lead in range(len(whole) + 1):
        text = "x" * lead + whole * 2000
        for sentence in cut(text)[1:]:
            assert sentence[: len(whole)] == whole


def test_ST2_a_tail_is_flushed_and_the_cutter_begins_anew() -> None:
    cutter = SentenceCutter()
    assert cutter.flush() is None
    assert cutter.feed("A b. C") == ["A b. "]
    assert (cutter.pending, cutter.next_index) == ("C", 1)
    assert cutter.flush() == "C"
    assert cutter.flush() is None
    assert cutter.feed("- one\n- two") == ["- one\n"]
    assert cutter.next_index == 3


ALPHABET = "aA1I .!?…。！？」”\"'»«)(*_`~\n\r\t#->|•,‼\ufe0f\u0301\u200d🇩👩中あ।\u2029\x85\xa0３．"
PIECES = (
    """
Dr.|U.S.|e.g.|No.|Inc.|3.|I.|The|word|it|```|~~~|…|...|?!|。|」|«| »| |- |1. |## |> || |```py⏎|⏎|⏎⏎|\r⏎
""".strip()
    .replace("⏎", "\n")
    .split("|")
)
PIECES += ["|", "x" * 700, " " * 700]
TEXTS = st.one_of(
    st.text(max_size=300),
    st.text(st.sampled_from(ALPHABET), max_size=300),
    st.lists(
        st.sampled_from(PIECES),
        max_size=40,
    ).map("".join),
)


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.data())
def test_ST2_nothing_is_lost_and_the_chunking_does_not_matter(text: str, data: st.DataObject) -> None:
    whole = cut(text)
    assert "".join(whole) == text
    assert all(whole)
    cutter, rest, sentences = SentenceCutter(), text, []
    while rest:
        size = data.draw(st.integers(1, 1 + min(len(rest), 40)))
        sentences += cutter.feed(rest[:size])
        rest = rest[size:]
    tail = cutter.flush()
    assert [*sentences, *([tail] if tail else [])] == whole
    assert cut(text, 1) == whole
    assert max(map(len, whole), default=0) <= LIMIT + 32


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_ST2_white_space_belongs_to_the_sentence_before(text: str) -> None:
    if len(text) > LIMIT // 2:
        return
    sentences = cut(text)
    for sentence in sentences[1:]:
        assert not sentence[0].isspace()
        assert unicodedata.category(sentence[0]) not in {"Mn", "Mc", "Me"}
        assert sentence[0] != "\u200d"


@pytest.mark.parametrize(
    "unit", ["x", ".", " ", ". ", "a.", "\n", "a\n", "U.S. ", "« a. » ", "\u0301", "🇩", "```x\n", "。", "1."]
)
def test_ST2_the_time_is_linear_one_character_at_a_time(unit: str) -> None:
    def seconds(count: int) -> float:
        text = unit * (count // len(unit))
        began = time.process_time()
        cut_quickly(text)
        return time.process_time() - began

    # Quadratic would be 64 times as long; generous, for a busy machine.
    assert seconds(160_000) < 20 * (seconds(20_000) + 0.01)


def cut_quickly(text: str) -> None:
    cutter = SentenceCutter()
    for character in text:
        cutter.feed(character)
    cutter.flush()
