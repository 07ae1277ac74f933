"""What holds for every route: envelope, authentication, origins, pages, operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from structlog.testing import CapturingLogger

from protocol.codes import ERRORS, ErrorCode
from protocol.errors import Fault
from server.access import Access
from server.metrics import Metrics
from server.rest.app import OPERATIONS, RestContext, create_app
from server.rest.context import Call
from server.rest.declare import Ownership, Routes
from server.rest.schemas import Health, NoBody, NoQuery
from server.rest.serving import serve_path
from server.settings import Settings

from .conftest import bearer, serving


async def test_paths_and_methods_that_are_not_there_answer_the_envelope(database_url: str) -> None:
    async with serving(database_url) as rest:
        status, failure = await rest.call("GET", "/api/nothing")
        assert (status, failure["success"], failure["error"]["code"]) == (404, False, "not_found")
        assert failure["error"]["details"] == {}
        assert (await rest.call("GET", "/api/sessions/"))[0] == 404
        answer = await rest.client.put("/api/sessions")
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
        assert {"GET", "POST"} <= {method.strip() for method in answer.headers["allow"].split(",")}


async def test_nobody_without_a_token_is_let_in(database_url: str, tokens_file: Path) -> None:
    async with serving(database_url, tokens_file=tokens_file) as rest:
        for headers in ({}, bearer("wrong"), {"Authorization": "Basic dG9rZW4tYTo="}):
            answer = await rest.client.get("/api/sessions", headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert await rest.data("GET", "/api/sessions", headers=bearer("token-a"))
        assert (await rest.client.get("/healthz")).status_code == 200


async def test_foreign_pages_change_nothing(database_url: str) -> None:
    async with serving(database_url) as rest:
        own = f"http://{rest.client.base_url.netloc.decode()}"
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1", f"{own}.example", "x"):
            answer = await rest.client.post("/api/sessions", headers={"Origin": origin})
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden_origin")
        assert (await rest.data("GET", "/api/sessions"))["items"] == []
        assert (await rest.client.post("/api/sessions", headers={"Origin": own})).status_code == 200


async def test_a_name_that_is_not_ours_is_refused_even_for_reading(database_url: str) -> None:
    async with serving(database_url) as rest:
        answer = await rest.client.get("/api/sessions", headers={"Host": "rebound.example"})
        assert answer.status_code == 403
        assert (await rest.client.get("/healthz", headers={"Host": "localhost:1"})).status_code == 200


async def test_pages_of_an_allowed_origin_may_call(database_url: str) -> None:
    page = "https://app.example"
    async with serving(database_url, allowed_origins=(page,)) as rest:
        preflight = await rest.client.options(
            "/api/sessions",
            headers={
                "Origin": page,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type",
            },
        )
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == page
        answer = await rest.client.post("/api/sessions", headers={"Origin": page})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, page)


async def test_readiness_follows_the_store_and_the_shutdown(database_url: str) -> None:
    async with serving(database_url) as rest:
        assert (await rest.data("GET", "/readyz")) == {"status": "ready"}
        rest.registry.drain(0)
        status, failure = await rest.call("GET", "/readyz")
        assert (status, failure["error"]["code"]) == (503, "draining")
        assert (await rest.client.get("/healthz")).status_code == 200


async def test_metrics_count_by_declared_route(database_url: str) -> None:
    async with serving(database_url) as rest:
        session_id = await rest.new_session()
        await rest.data("GET", f"/api/sessions/{session_id}")
        text = (await rest.client.get("/metrics")).text
        assert 'turnwire_http_requests_total{route="/api/sessions/{sessionId}",status="200"} 1.0' in text
        assert 'turnwire_connections{kind="http"} 1.0' in text
        assert session_id not in text


async def test_head_is_get_without_a_body(database_url: str) -> None:
    async with serving(database_url) as rest:
        answer = await rest.client.head("/healthz")
        assert (answer.status_code, answer.content) == (200, b"")


def _alone(handler_error: Exception) -> TestClient:
    """A single route that fails, without a store."""
    routes = Routes()

    @routes.declare("GET", "/fail", ownership=Ownership.PUBLIC, response=Health)
    async def fail(_call: Call[NoQuery, NoBody]) -> Health:
        """Fail."""
        raise handler_error

    settings = Settings()
    unused: Any = None
    context = RestContext(settings, Access.from_settings(settings), unused, unused, None, Metrics())
    app = create_app(context)
    app.router.routes.append(serve_path(context, "/fail", list(routes)))
    return TestClient(app, base_url="http://localhost")


def test_a_bug_is_500_with_a_correlation_id_and_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    records = CapturingLogger()
    monkeypatch.setattr("server.rest.envelope._log", records)
    bug = RuntimeError("what the user wrote")
    answer = _alone(bug).get("/fail?text=private")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (500, "internal")
    assert list(error["details"]) == ["correlationId"]
    assert "what the user wrote" not in answer.text
    (record,) = records.calls
    assert record.kwargs == {  # of exc_info the log shows the type and the places, never the text
        "route": "GET /fail",
        "correlation_id": error["details"]["correlationId"],
        "exc_info": bug,
    }


def test_a_fault_says_when_to_come_back() -> None:
    answer = _alone(Fault(ErrorCode.OVERLOADED, retry_after_ms=1200)).get("/fail")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.json()["error"]["details"] == {"retryAfterMs": 1200}


@pytest.mark.parametrize("code", [code for code in ErrorCode if ERRORS[code].http_status is not None])
def test_every_code_answers_with_the_status_of_the_table(code: ErrorCode) -> None:
    answer = _alone(Fault(code, "words", details={"snake_case": {"left_alone": 1}})).get("/fail")
    assert answer.status_code == ERRORS[code].http_status
    assert answer.json() == {
        "success": False,
        "error": {"code": code.value, "message": "words", "details": {"snakeCase": {"left_alone": 1}}},
    }


async def test_pages_are_served_with_their_types_and_a_strict_policy(database_url: str) -> None:
    async with serving(database_url) as rest:
        page = await rest.client.get("/")
        script = await rest.client.get("/ui/turnwire.js")
        assert (page.status_code, script.status_code) == (200, 200)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        for answer in (page, script):
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
        again = await rest.client.get("/ui/turnwire.js", headers={"If-None-Match": script.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


async def test_no_path_leads_out_of_the_pages(database_url: str) -> None:
    async with serving(database_url) as rest:
        for path in ("../gate.py", "%2e%2e/gate.py", "..%2fgate.py", "/etc/passwd", "", "x.js", "%00"):
            url = httpx.URL(rest.client.base_url).copy_with(raw_path=b"/ui/" + path.encode())
            answer = await rest.client.get(url)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found"), path


def test_every_route_says_whose_things_it_shows() -> None:
    public = {operation.path for operation in OPERATIONS if operation.ownership is Ownership.PUBLIC}
    assert not any(path.startswith("/api/") for path in public)
    for operation in OPERATIONS:
        if "{sessionId}" in operation.path:
            assert operation.ownership is Ownership.SESSION


def test_a_route_without_ownership_cannot_be_declared() -> None:
    routes: Any = Routes()

    async def handler(_call: Call[NoQuery, NoBody]) -> Health:
        """Something."""
        return Health("")

    with pytest.raises(TypeError, match="ownership"):
        routes.declare("GET", "/x", response=Health)
    with pytest.raises(TypeError, match="ownership"):
        routes.declare("GET", "/x", ownership=None, response=Health)(handler)
    with pytest.raises(ValueError, match="names none"):
        routes.declare("GET", "/x", ownership=Ownership.SESSION, response=Health)(handler)
    with pytest.raises(ValueError, match="changes nothing"):
        routes.declare("POST", "/x", ownership=Ownership.PUBLIC, response=Health)(handler)
