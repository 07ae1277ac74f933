"""The OpenAPI document: valid, complete, current, and true to what is answered."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import orjson
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from server.rest.app import OPERATIONS
from server.rest.openapi import document_bytes

from .conftest import serving


def test_the_document_is_valid_and_has_every_route() -> None:
    described = orjson.loads(document_bytes())
    validate(described)
    for operation in OPERATIONS:
        path = operation.path.replace(":path", "")
        found = described["paths"][path][operation.method.lower()]
        assert _codes(found) == {str(code) for code in operation.all_errors}


def _codes(operation: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    for status, response in operation["responses"].items():
        if status != "200":
            refinement = response["content"]["application/json"]["schema"]["allOf"][1]
            found |= set(refinement["properties"]["error"]["properties"]["code"]["enum"])
    return found


def test_the_committed_document_is_current() -> None:
    subprocess.run([sys.executable, "-m", "server.rest.openapi", "--check"], check=True)


async def test_answers_are_what_the_document_says(database_url: str) -> None:
    described = orjson.loads(document_bytes())

    def check(method: str, path: str, status: int, body: Any) -> None:
        response = described["paths"][path][method]["responses"][str(status)]
        schema = {**response["content"]["application/json"]["schema"], "components": described["components"]}
        Draft202012Validator(schema).validate(body)

    async with serving(database_url) as rest:
        assert (await rest.client.get("/openapi.json")).json() == described
        session_id = await rest.new_session(metadata={"title": "x"})
        message = {"role": "user", "content": "hello"}
        for method, path, body in (
            ("post", "/api/sessions/{sessionId}/messages", message),
            ("post", "/api/sessions/{sessionId}/messages", {"role": "user"}),
            ("get", "/api/sessions/{sessionId}/messages", None),
            ("patch", "/api/sessions/{sessionId}", {"metadata": {}}),
            ("get", "/api/sessions/{sessionId}", None),
            ("get", "/api/chat/session/{sessionId}/runs", None),
            ("get", "/api/sessions", None),
            ("get", "/healthz", None),
            ("get", "/readyz", None),
            ("delete", "/api/sessions/{sessionId}", None),
            ("get", "/api/sessions/{sessionId}", None),
        ):
            status, answer = await rest.call(method, path.replace("{sessionId}", session_id), json=body)
            check(method, path, status, answer)


async def test_the_protocols_document_is_served_too(database_url: str) -> None:
    async with serving(database_url) as rest:
        assert (await rest.client.get("/asyncapi.json")).json()["asyncapi"].startswith("3.")
