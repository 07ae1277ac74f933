"""Indexes for searching messages: full text, and trigrams where the extension can be had.

Both are of the first 50,000 characters: a ``tsvector`` has a limit beyond which an insert would fail.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_STATEMENTS = (
    """
create index session_message_words on session_message
 using gin (to_tsvector('simple', left(content, 50000)))
 where role in ('user', 'assistant')
""",
    # Not every database has the extension, and not everybody may create it: substrings are found without.
    """
do $$
begin
    create extension if not exists pg_trgm;
exception
    when insufficient_privilege or undefined_file or feature_not_supported then
        raise notice 'pg_trgm cannot be created: %', sqlerrm;
end
$$
""",
    """
do $$
begin
    if to_regprocedure('word_similarity(text,text)') is not null then
        create index session_message_trigrams on session_message
         using gin (left(content, 50000) gin_trgm_ops)
         where role in ('user', 'assistant');
    end if;
end
$$
""",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
