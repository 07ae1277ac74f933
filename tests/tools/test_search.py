"""Searching: what is found, what is not, and whose it is."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from protocol.ids import new_message_id, new_run_id, new_ulid, utc_now
from protocol.session import MessageRole, SessionMessage
from server.tools.registry import execute
from server.tools.search import search
from storage.records import AppendWrite, SessionSeed
from storage.search import SearchHit, SearchKind
from storage.store import Store, open_store
from tests.tools.support import context


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def say(store: Store, owner: str, *contents: str, title: str | None = None) -> str:
    """A new conversation of these messages."""
    session_id = new_ulid()
    seed = SessionSeed(session_id, owner, metadata={} if title is None else {"title": title})
    for sequence, content in enumerate(contents):
        message = SessionMessage(
            message_id=new_message_id(), sequence=sequence, role=MessageRole.USER, content=content
        )
        await store.sessions.append(
            AppendWrite(session_id=session_id, fence=1, message=message, seed=seed if sequence == 0 else None)
        )
    return session_id


async def draw(dsn: str, owner: str, *labels: str) -> str:
    """A project whose canvas has these nodes."""
    project_id = new_ulid()
    async with connected(dsn) as connection:
        await connection.execute(
            "insert into project (project_id, owner, created_at, updated_at) values ($1, $2, now(), now())",
            project_id,
            owner,
        )
        for label in labels:
            data = json.dumps({"label": label, "more": {"tags": ["drawn"]}}, ensure_ascii=False)
            await connection.execute(
                "insert into canvas_node (project_id, node_id, type, x, y, data, version)"
                " values ($1, $2, 'note', 0, 0, $3, 4)",
                project_id,
                uuid.uuid4(),
                data,
            )
    return project_id


def texts(hits: list[SearchHit]) -> list[str]:
    return [hit.snippet for hit in hits]


TALK = (
    "Kafka consumer lag rises when the disk of broker 3 is full",
    "数据库连接失败,重启之后恢复正常",
    "東京のサーバーで障害が発生しました",
    "100%_sure this \\ is literal",
    "Größenänderung der Partition",
)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("kafka lag", TALK[0]),
        ("LAG kafka", TALK[0]),
        ('"consumer lag"', TALK[0]),
        ("onsumer", TALK[0]),
        ("数据库", TALK[1]),
        ("重启", TALK[1]),
        ("障害", TALK[2]),
        ("サーバー", TALK[2]),
        ("100%_sure", TALK[3]),
        ("this \\ is", TALK[3]),
        ("größen", TALK[4]),
        ("consummer lagg", TALK[0]),
        ("kafka zookeeper election", TALK[0]),
    ],
)
@pytest.mark.parametrize("trigrams", [True, False])
async def test_what_fits_is_found(database_url: str, query: str, found: str, *, trigrams: bool) -> None:
    if not trigrams:
        async with connected(database_url) as connection:
            await connection.execute("drop extension pg_trgm cascade")
    async with open_store(database_url) as store:
        await say(store, "ann", *TALK, "something else")
        hits = texts(await store.search.find("ann", query, kinds=[SearchKind.MESSAGE]))
        if trigrams or query != "consummer lagg":
            assert hits[0] == found
        else:
            assert hits == []


@pytest.mark.parametrize(
    "query", ["nowhere to be seen xyz", "%", "_", "", "  ", "\0", "'; drop table project; --", '"', "-"]
)
async def test_what_does_not_fit_is_not_found_and_breaks_nothing(database_url: str, query: str) -> None:
    async with open_store(database_url) as store:
        await say(store, "ann", "plain words", "other words")
        assert await store.search.find("ann", query) == []


async def test_a_word_that_must_not_occur_and_a_limit(database_url: str) -> None:
    async with open_store(database_url) as store:
        await say(store, "ann", *(f"alpha number {number}" for number in range(7)), "alpha beta")
        assert len(await store.search.find("ann", "alpha", limit=3)) == 3
        assert "alpha beta" not in texts(await store.search.find("ann", "alpha -beta", limit=20))


async def test_nobody_finds_what_is_anothers_or_deleted(database_url: str) -> None:
    async with open_store(database_url) as store:
        session_id = await say(store, "ann", "a secret of ann")
        project_id = await draw(database_url, "ann", "secret node")
        run_id = new_run_id()
        async with connected(database_url) as connection:
            await connection.execute(
                "create table case_library (id bigserial primary key, diagnosis_id text, title text,"
                " query text, answer text, created_at timestamptz)"
            )
            await connection.execute(
                "insert into diagnosis_run (run_id, session_id, status, created_at, updated_at)"
                " values ($1, $2, 'succeeded', now(), now())",
                run_id,
                session_id,
            )
            await connection.execute(
                "insert into case_library (diagnosis_id, title, query, answer, created_at)"
                " values ($1, 'Secret case', 'why', 'because', $2), ('old-1', 'secret old', '', '', $2)",
                run_id,
                utc_now(),
            )
        hits = await store.search.find("ann", "secret")
        assert {hit.kind for hit in hits} == set(SearchKind)
        case = next(hit for hit in hits if hit.kind is SearchKind.CASE)
        assert (case.id, case.title) == (run_id, "Secret case")
        node = next(hit for hit in hits if hit.kind is SearchKind.NODE)
        assert (node.project_id, node.title, node.version) == (project_id, "secret node", 4)
        assert await store.search.find("bob", "secret") == []
        await store.sessions.delete(session_id, "ann")
        assert {hit.kind for hit in await store.search.find("ann", "secret")} == {SearchKind.NODE}


async def test_a_case_library_that_says_whose_a_case_is_is_believed(database_url: str) -> None:
    async with connected(database_url) as connection:
        await connection.execute(
            "create table case_library (id bigserial primary key, owner text, diagnosis_id text, title text,"
            " query text, answer text, created_at timestamptz)"
        )
        await connection.execute(
            "insert into case_library (owner, diagnosis_id, title) values ('ann', 'd', 'flapping link')"
        )
    async with open_store(database_url) as store:
        assert [hit.id for hit in await store.search.find("ann", "flapping")] == ["d"]
        assert await store.search.find("bob", "flapping") == []


async def test_a_snippet_is_short_and_shows_the_place(database_url: str) -> None:
    async with open_store(database_url) as store:
        await say(store, "ann", f"{'before ' * 2000}the needle here{' after' * 200_000}")
        (hit,) = await store.search.find("ann", "needle")
        assert "the needle here" in hit.snippet
        assert hit.snippet.startswith("…")
        assert hit.snippet.endswith("…")
        assert len(hit.snippet) <= 302


async def test_a_message_with_very_many_different_words_can_be_stored(database_url: str) -> None:
    async with open_store(database_url) as store:
        await say(store, "ann", " ".join(f"w{number:x}" for number in range(400_000)))
        assert len(await store.search.find("ann", "w1f")) == 1


async def test_the_present_conversation_comes_after_others_and_the_present_project_first(
    database_url: str,
) -> None:
    async with open_store(database_url) as store:
        elsewhere = await say(store, "ann", "the same words", title="Elsewhere")
        here = await say(store, "ann", "the same words")
        hits = await store.search.find("ann", "same words", session_id=here)
        assert [(hit.session_id, hit.title) for hit in hits] == [(elsewhere, "Elsewhere"), (here, None)]
        mine, other = [await draw(database_url, "ann", "a box of words") for _ in range(2)]
        for project_id in (mine, other):
            hits = await store.search.find("ann", "box", project_id=project_id)
            assert hits[0].project_id == project_id


async def test_many_messages_are_searched_within_the_time_limit(database_url: str) -> None:
    async with open_store(database_url) as store:
        session_id = await say(store, "ann", "first")
        async with connected(database_url) as connection:
            await connection.execute(
                "insert into session_message (session_id, sequence, message_id, role, content, origin,"
                " created_at) select $1, n, 'm' || n, 'user', 'common word ' || md5(n::text), 'socket', now()"
                " from generate_series(1, 30000) n",
                session_id,
            )
        assert len(await store.search.find("ann", "common word")) == 10
        rare = hashlib.md5(b"7000").hexdigest()
        assert [hit.id for hit in await store.search.find("ann", f"common {rare}")] == ["m7000"]


async def test_the_tool_answers_with_json_for_the_model(database_url: str) -> None:
    async with open_store(database_url) as store:
        session_id = await say(store, "ann", "the blue whale", "what was it?")
        result = await execute(search, '{"query": "blue whale", "limit": 3}', context(store, principal="ann"))
        (hit,) = json.loads(result.content)["results"]
        assert (hit["kind"], hit["snippet"], hit["session_id"]) == ("message", "the blue whale", session_id)
