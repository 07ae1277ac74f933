"""Searching what a person has: cases, messages and canvas nodes.

Full text (of no particular language), substrings, and with ``pg_trgm`` also what is spelled a little
differently; texts without spaces between words, such as Chinese or Japanese, are found as substrings. Whose
it is, is part of every statement. Only the newest matches of a kind are ranked, so that a frequent word costs
no more than a rare one.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from storage.database import Database
from storage.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.database import Connection

QUERY_CHARACTERS: Final = 500
"""Of a longer query only the beginning is looked for."""

LIMIT: Final = 50
_TERMS: Final = 8
_RANKED: Final = 300
"""How many of the newest matches of each kind are ranked."""

SEARCHED: Final = "left({}, 50000)"
"""How much of a text is searched; the indexes are made of the same expression."""

_INDEXED: Final = 3
"""Characters from which on a word within a text is found with the trigrams' index."""
_SCANNED: Final = 2000
"""How many of the newest messages are looked through for words that no index finds."""
_SHOWN: Final = 300
"""Characters of a snippet."""


class SearchKind(StrEnum):
    """What can be found."""

    CASE = "case"
    MESSAGE = "message"
    NODE = "node"


class SearchHit(Struct, frozen=True, omit_defaults=True):
    """One find; ``id`` is the message's or node's, or the run's of which a case was made."""

    kind: SearchKind
    id: str
    snippet: str
    score: float
    created_at: datetime | None = None
    title: str | None = None
    role: str | None = None
    session_id: str | None = None
    project_id: str | None = None
    version: int | None = None


_ABILITIES: Final = """
select to_regprocedure('word_similarity(text,text)') is not null as trigrams,
       to_regclass('case_library') is not null as cases,
       exists (select from pg_attribute where attrelid = to_regclass('case_library') and attname = 'owner'
                  and not attisdropped) as owned_cases
"""

_MESSAGES: Final = """
select 'message' as kind, m.message_id as id, m.created_at, s.metadata ->> 'title' as title, m.role,
       m.session_id, s.project_id, null::bigint as version, m.content as text,
       case when m.session_id = $5 then 0.5 else 1.0 end as weight
  from {messages} m join chat_session s on s.session_id = m.session_id
 where s.owner = $1 and s.status = 'active' and m.role in ('user', 'assistant') and ({matches})
 order by m.created_at desc limit {ranked}
"""
_NEWEST: Final = """(
    select n.* from session_message n join chat_session o on o.session_id = n.session_id
     where o.owner = $1 and o.status = 'active' and n.role in ('user', 'assistant')
     order by n.created_at desc limit {scanned})
"""

_NODES: Final = """
select 'node' as kind, n.node_id::text as id, n.updated_at as created_at, n.data ->> 'label' as title,
       null as role, null as session_id, n.project_id, n.version, t.text,
       case when n.project_id = $6 then 1.0 else 0.7 end as weight
  from canvas_node n join project p on p.project_id = n.project_id
  cross join lateral (
    select string_agg(value #>> '{{}}', ' ') as text
      from jsonb_path_query(n.data::jsonb, 'strict $.** ? (@.type() == "string")') as value) as t
 where p.owner = $1 and p.status = 'active' and ({matches})
 order by n.updated_at desc limit {ranked}
"""

_CASES: Final = """
select 'case' as kind, c.diagnosis_id as id, c.created_at, c.title, null as role, null as session_id,
       null as project_id, null::bigint as version, t.text, 1.2 as weight
  from case_library c {of}
  cross join lateral (select concat_ws(E'\\n', c.title, c.query, c.answer) as text) as t
 where {owner} = $1 and ({matches})
 order by c.created_at desc nulls last limit {ranked}
"""
_CASE_OF_RUN: Final = """
  join diagnosis_run r on r.run_id = c.diagnosis_id
  join chat_session s on s.session_id = r.session_id and s.status = 'active'
"""

# The weights say which of two finds is shown first, no more.
_RANK: Final = """
select kind, id, created_at, title, role, session_id, project_id, version, snippet,
       ({score}) * weight as score
  from ({sources}) as found
  cross join lateral (select {searched} as searched) as a
  cross join lateral (
    select coalesce(min(nullif(strpos(lower(searched), term), 0)), 1) as at from unnest($4::text[]) as term
  ) as b
  cross join lateral (
    select case when at > 60 then '…' else '' end || substr(text, greatest(at - 60, 1), {shown})
           || case when greatest(at - 60, 1) + {shown} <= length(text) then '…' else '' end as snippet
  ) as c
 order by score desc, created_at desc nulls last, id limit $3
"""
_FULL_TEXT: Final = "to_tsvector('simple', {0}) @@ websearch_to_tsquery('simple', $2)"
_FULL_TEXT_RANK: Final = "ts_rank(to_tsvector('simple', searched), websearch_to_tsquery('simple', $2))"


class Search:
    """Statements that only read; safe for any caller, for they are asked with the owner."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def find(
        self,
        owner: str,
        query: str,
        *,
        limit: int = 10,
        kinds: Iterable[SearchKind] = tuple(SearchKind),
        session_id: str | None = None,
        project_id: str | None = None,
    ) -> list[SearchHit]:
        """What of the owner's fits a query, best first.

        All words must occur; if nothing has them all, what has some of them or something like them is found.

        Args:
            limit: 1 to :data:`LIMIT`.
            session_id: The conversation that asks; its own messages come after others as good.
            project_id: The project that asks; its nodes come first.

        Raises:
            StorageUnavailable: Away, or it took too long.
        """
        query = query.replace("\0", "").strip()[:QUERY_CHARACTERS]
        terms = _terms(query)
        if not terms:
            return []
        values = (owner, query, max(1, min(limit, LIMIT)), terms, session_id, project_id)
        async with self._db.reading() as connection:
            abilities = await connection.fetchrow(_ABILITIES)
            assert abilities is not None
            indexed = abilities["trigrams"] and all(len(term) >= _INDEXED for term in terms)
            sources = _sources(set(kinds), dict(abilities), indexed=indexed)
            found = await _fetch(connection, sources, terms, values, loose=False, trigrams=False)
        if found:
            return found
        try:
            async with self._db.reading() as connection:
                return await _fetch(
                    connection, sources, terms, values, loose=True, trigrams=abilities["trigrams"]
                )
        except StorageUnavailable:
            if not self._db.available:
                raise
            return []  # comparing everything took too long


async def _fetch(
    connection: Connection,
    sources: Sequence[tuple[str, str]],
    terms: Sequence[str],
    values: tuple[Any, ...],
    *,
    loose: bool,
    trigrams: bool,
) -> list[SearchHit]:
    first = len(values) + 1
    numbers = range(first, first + len(terms))
    parts = []
    for source, column in sources:
        searched = SEARCHED.format(column)
        words = [f"{searched} ilike ${number}" for number in numbers]
        matches = [_FULL_TEXT.format(searched), f"({(' or ' if loose else ' and ').join(words)})"]
        if trigrams:
            matches.append(f"$2 <% {searched}")
        parts.append(f"({source.format(matches=' or '.join(matches), ranked=_RANKED)})")
    if not parts:
        return []
    occurring = " + ".join(f"(searched ilike ${number})::int" for number in numbers)
    score = f"{_FULL_TEXT_RANK} + ({occurring})::float8 / {len(terms)}"
    if trigrams:
        score += " + word_similarity($2, searched)"
    statement = _RANK.format(
        score=score, sources=" union all ".join(parts), searched=SEARCHED.format("text"), shown=_SHOWN
    )
    # Every parameter is named, so that each has a type, whatever sources there are.
    statement = f"with asked as (select $1::text, $2::text, $5::text, $6::text) {statement}"
    rows = await connection.fetch(statement, *values, *(f"%{_escaped(term)}%" for term in terms))
    return msgspec.convert([dict(row) for row in rows], list[SearchHit])


def _sources(kinds: set[SearchKind], abilities: dict[str, bool], *, indexed: bool) -> list[tuple[str, str]]:
    """Statements that give matches, and what each searches; all messages only where an index finds the
    words."""
    found = []
    if SearchKind.CASE in kinds and abilities["cases"]:
        owned = abilities["owned_cases"]
        case = _CASES.replace("{of}", "" if owned else _CASE_OF_RUN)
        found.append((case.replace("{owner}", "c.owner" if owned else "s.owner"), "t.text"))
    if SearchKind.MESSAGE in kinds:
        messages = "session_message" if indexed else _NEWEST.format(scanned=_SCANNED)
        found.append((_MESSAGES.replace("{messages}", messages), "m.content"))
    if SearchKind.NODE in kinds:
        found.append((_NODES, "t.text"))
    return found


def _terms(query: str) -> list[str]:
    """The words of a query, as they are looked for within texts."""
    words = [word.strip("\"'") for word in re.split(r"[\s,;，、。；]+", query.lower())]
    return list(dict.fromkeys(word for word in words if word))[:_TERMS]


def _escaped(term: str) -> str:
    """A word that ``like`` takes as it is."""
    return re.sub(r"([\\%_])", r"\\\1", term)
