"""Sessions over REST: the rules of the envelope, of pages, of ownership and of messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from protocol.ids import is_ulid, new_ulid

from .conftest import bearer, serving


async def test_a_session_is_made_read_changed_and_deleted(database_url: str) -> None:
    plan = new_ulid()
    async with serving(database_url) as rest:
        session_id = await rest.new_session(metadata={"title": "A", "nested_key": {"x_y": 1}})
        assert is_ulid(session_id)
        path = f"/api/sessions/{session_id}"
        before = await rest.data("GET", path)
        assert before == {
            "sessionId": session_id,
            "namespace": "local",
            "actorName": None,
            "projectId": None,
            "status": before["status"],
            "metadata": {"title": "A", "nested_key": {"x_y": 1}},
            "linkedPlanIds": [],
            "messageCount": 0,
            "tokenUsage": {"inputTokens": 0, "outputTokens": 0, "estimatedCost": 0.0},
            "createdAt": before["createdAt"],
            "updatedAt": before["updatedAt"],
            "lastActiveAt": before["lastActiveAt"],
        }
        changes: dict[str, Any] = {"metadata": {"title": "B"}, "linkedPlanIds": [plan, plan]}
        after = await rest.data("PATCH", path, json={**changes, "actorName": "local/orchestrator"})
        assert after["metadata"] == {"title": "B"}
        assert (after["linkedPlanIds"], after["actorName"]) == ([plan], "local/orchestrator")
        assert await rest.data("GET", path) == after
        assert await rest.data("DELETE", path) == {"sessionId": session_id}
        for method, body in (("GET", None), ("PATCH", {"metadata": {}}), ("DELETE", None)):
            status, failure = await rest.call(method, path, json=body)
            assert (status, failure["error"]["code"]) == (404, "not_found")


async def test_a_deleted_id_is_never_born_again(database_url: str) -> None:
    async with serving(database_url) as rest:
        session_id = await rest.new_session()
        for _ in range(2):
            status, failure = await rest.call("POST", "/api/sessions", json={"sessionId": session_id})
            assert (status, failure["error"]["code"]) == (409, "session_exists")
            await rest.client.delete(f"/api/sessions/{session_id}")


async def test_sessions_are_listed_page_by_page_newest_first(database_url: str) -> None:
    async with serving(database_url) as rest:
        made = [await rest.new_session() for _ in range(5)]
        seen: list[str] = []
        cursor: str | None = None
        while True:
            query = {"limit": "2"} if cursor is None else {"limit": "2", "cursor": cursor}
            page = await rest.data("GET", "/api/sessions", params=query)
            assert set(page) == {"items", "nextCursor"}
            assert len(page["items"]) <= 2
            seen += [item["sessionId"] for item in page["items"]]
            if (cursor := page["nextCursor"]) is None:
                break
        assert seen == made[::-1]


async def test_messages_are_appended_in_order_and_paged(database_url: str) -> None:
    async with serving(database_url) as rest:
        path = f"/api/sessions/{await rest.new_session()}/messages"
        for number in range(5):
            body = {"role": "user", "content": f"m{number}", "metadata": {"n": number}}
            appended = await rest.data("POST", path, json=body)
            assert appended["repeated"] is False
            assert appended["message"]["sequence"] == number
        page = await rest.data("GET", path, params={"limit": 2, "offset": 1})
        assert [item["content"] for item in page["items"]] == ["m1", "m2"]
        assert page["items"][0]["metadata"] == {"n": 1}
        page = await rest.data("GET", path, params={"limit": 2, "cursor": page["nextCursor"]})
        assert [item["content"] for item in page["items"]] == ["m3", "m4"]
        assert page["nextCursor"] is None
        assert (await rest.data("GET", path.removesuffix("/messages")))["messageCount"] == 5


async def test_ST4_a_repeated_append_is_done_once(database_url: str) -> None:
    async with serving(database_url) as rest:
        path = f"/api/sessions/{await rest.new_session()}/messages"
        body = {"role": "user", "content": "once", "requestId": "r1"}
        first = await rest.data("POST", path, json=body)
        again = await rest.data("POST", path, json=body)
        assert again == {"message": first["message"], "repeated": True}
        status, failure = await rest.call("POST", path, json={**body, "content": "another"})
        assert (status, failure["error"]["code"]) == (409, "request_id_conflict")
        assert len((await rest.data("GET", path))["items"]) == 1


async def test_anothers_session_is_answered_byte_for_byte_like_an_unknown_one(
    database_url: str, tokens_file: Path
) -> None:
    async with serving(database_url, tokens_file=tokens_file) as rest:
        rest.client.headers.update(bearer("token-a"))
        foreign = await rest.new_session(metadata={"secret": 1})
        message = {"role": "user", "content": "x"}
        calls: list[tuple[str, str, Any]] = [
            ("GET", "/api/sessions/{}", None),
            ("PATCH", "/api/sessions/{}", {"metadata": {}}),
            ("DELETE", "/api/sessions/{}", None),
            ("GET", "/api/sessions/{}/messages", None),
            ("POST", "/api/sessions/{}/messages", message),
            ("GET", "/api/chat/session/{}/runs", None),
        ]
        await rest.data("POST", f"/api/sessions/{foreign}/messages", json=message)  # its actor is loaded now
        rest.client.headers.update(bearer("token-b"))
        for method, path, body in calls:
            answers = {
                (answer.status_code, answer.content, tuple(sorted(answer.headers.items())))
                for answer in [
                    await rest.client.request(method, path.format(session_id), json=body)
                    for session_id in (foreign, new_ulid(), "no-ulid")
                ]
            }
            assert len(answers) == 1, (method, path, answers)
            assert next(iter(answers))[0] == 404
        assert (await rest.data("GET", "/api/sessions"))["items"] == []
        rest.client.headers.update(bearer("token-a"))
        assert (await rest.data("GET", f"/api/sessions/{foreign}"))["messageCount"] == 1


async def test_runs_of_a_session_without_any_are_an_empty_list(database_url: str) -> None:
    async with serving(database_url) as rest:
        session_id = await rest.new_session()
        page = await rest.data("GET", f"/api/chat/session/{session_id}/runs")
        assert page == {"items": [], "nextCursor": None}


_SESSION = "/api/sessions"
_MESSAGES = "/api/sessions/{}/messages"


_WRONG: list[tuple[str, str, Any, str]] = [
    ("POST", _SESSION, {"sessionId": "x"}, "sessionId"),
    ("POST", _SESSION, {"actorName": "no-slash"}, "actorName"),
    ("POST", _SESSION, {"metadata": []}, "metadata"),
    ("POST", _SESSION, {"metadata": {"a": "\0"}}, "metadata.a"),
    ("POST", _SESSION, {"titel": "x"}, "titel"),
    ("POST", _SESSION, {"linkedPlanIds": ["x"]}, "linkedPlanIds[0]"),
    ("PATCH", "/api/sessions/{}", {"namespace": "x"}, "namespace"),
    ("POST", _MESSAGES, {"role": "user"}, "content"),
    ("POST", _MESSAGES, {"role": "assistant", "content": "x"}, "role"),
    ("POST", _MESSAGES, {"role": "user", "content": 7}, "content"),
    ("POST", _MESSAGES, {"role": "tool", "content": "x"}, "toolCallId"),
    ("POST", _MESSAGES, {"role": "user", "content": "x", "toolCallId": "c"}, "toolCallId"),
    ("POST", _MESSAGES, {"role": "user", "content": "x", "requestId": ""}, "requestId"),
    ("GET", _SESSION + "?limit=0", None, "limit"),
    ("GET", _SESSION + "?limit=201", None, "limit"),
    ("GET", _SESSION + "?limit=many", None, "limit"),
    ("GET", _MESSAGES + "?offset=-1", None, "offset"),
    ("GET", _MESSAGES + "?cursor=x", None, "cursor"),
    ("GET", _MESSAGES + "?cursor=%00", None, "cursor"),
]


async def test_validation_names_the_field(database_url: str) -> None:
    async with serving(database_url) as rest:
        session_id = await rest.new_session()
        for method, path, body, field in _WRONG:
            status, failure = await rest.call(method, path.format(session_id), json=body)
            assert (status, failure["error"]["code"]) == (400, "invalid_request"), (path, body, failure)
            assert failure["error"]["details"] == {"field": field}
            assert field.partition("[")[0].rpartition(".")[2] in failure["error"]["message"]
        page = await rest.data("GET", "/api/sessions")
        assert [item["sessionId"] for item in page["items"]] == [session_id]


async def test_ER3_an_empty_message_is_invalid(database_url: str) -> None:
    async with serving(database_url) as rest:
        path = f"/api/sessions/{await rest.new_session()}/messages"
        for content in ("", " \n\t\u3000"):
            status, failure = await rest.call("POST", path, json={"role": "user", "content": content})
            assert (status, failure["error"]["code"]) == (400, "invalid_message")
            assert failure["error"]["details"] == {"field": "content"}
        assert (await rest.data("GET", path))["items"] == []


async def test_ER2_bodies_that_are_no_json_are_refused(database_url: str) -> None:
    deep = b'{"metadata":{"a":' + b"[" * 100 + b"]" * 100 + b"}}"
    async with serving(database_url) as rest:
        for body in (
            b"{",
            b"[]",
            b"\xff",
            b'{"metadata":{"a":"\\ud800"}}',
            b'{"metadata":{"a":1e999}}',
            deep,
        ):
            status, failure = await rest.call("POST", "/api/sessions", content=body)
            assert (status, failure["error"]["code"]) == (400, "invalid_request"), body[:40]
        assert (await rest.data("GET", "/api/sessions"))["items"] == []


async def test_a_body_over_the_limit_is_413(database_url: str) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b" " * 1024

    async with serving(database_url, max_frame_bytes=4096) as rest:
        for content in (b" " * 5000, chunks()):
            status, failure = await rest.call("POST", "/api/sessions", content=content)
            assert (status, failure["error"]["code"]) == (413, "too_large")
            assert failure["error"]["details"] == {"limitBytes": 4096}
        await rest.new_session()
