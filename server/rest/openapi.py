"""The OpenAPI document, made from the declared routes and their structs.

``python -m server.rest.openapi`` writes it beside this module; ``--check`` only says whether what is there is
current (exit code 1 if not).
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from protocol.codes import ERRORS, ErrorCode
from server.rest.app import OPERATIONS
from server.rest.declare import PARAMETER, Operation, Ownership
from server.rest.schemas import NoQuery

__all__ = ["document", "document_bytes", "main"]

FILE: Final = Path(__file__).with_name("openapi.json")
_SCHEMAS: Final = "#/components/schemas/{name}"


def document() -> dict[str, Any]:
    """The whole document; equal declarations give equal documents."""
    types = [kind for operation in OPERATIONS for kind in _types_of(operation)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_SCHEMAS)
    schema_of = dict(zip(map(repr, types), schemas, strict=True))
    paths: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for operation in OPERATIONS:
        path = PARAMETER.sub(r"{\1}", operation.path)
        paths[path][operation.method.lower()] = _operation(operation, schema_of, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Turnwire",
            "version": "1",
            "description": (
                "Sessions, their history and their runs over HTTP. Success is `{success: true, data}`, "
                "failure `{success: false, error: {code, message, details}}`. Conversations themselves are "
                "spoken over WebSocket, which `/asyncapi.json` describes."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": dict(paths),
        "components": {
            "schemas": {**_without_parameters(components), "Failure": _failure_schema()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


@cache
def document_bytes() -> bytes:
    """The document as it is served and committed."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SORT_KEYS
    return orjson.dumps(document(), option=options)


def main(arguments: Sequence[str]) -> int:
    """Write the document, or check that it is current."""
    if list(arguments) not in ([], ["--check"]):
        sys.stderr.write("usage: python -m server.rest.openapi [--check]\n")
        return 2
    if not arguments:
        FILE.write_bytes(document_bytes())
        return 0
    if FILE.exists() and FILE.read_bytes() == document_bytes():
        return 0
    sys.stderr.write(f"{FILE.name} is not current: run python -m server.rest.openapi\n")
    return 1


def _types_of(operation: Operation) -> list[Any]:
    found: list[Any] = [operation.response] if operation.response is not None else []
    if operation.has_body:
        found.append(operation.body)
    if operation.query is not NoQuery:
        found.append(operation.query)
    return found


def _operation(operation: Operation, schema_of: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "x-ownership": operation.ownership.value,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation, components)],
        "responses": {"200": _success(operation, schema_of), **_failures(operation)},
        "security": [] if operation.ownership is Ownership.PUBLIC else [{"bearer": []}, {}],
    }
    if operation.has_body:
        schema = schema_of[repr(operation.body)]
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return described


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in operation.parameters
    ]


def _query_parameters(operation: Operation, components: dict[str, Any]) -> list[dict[str, Any]]:
    if operation.query is NoQuery:
        return []
    schema = components[operation.query.__name__]
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": kind}
        for name, kind in schema["properties"].items()
    ]


def _success(operation: Operation, schema_of: dict[str, Any]) -> dict[str, Any]:
    if operation.response is None:
        schema: dict[str, Any] = {} if operation.media == "application/json" else {"type": "string"}
        return {"description": "As the type says.", "content": {operation.media: {"schema": schema}}}
    schema = {
        "type": "object",
        "properties": {"success": {"const": True}, "data": schema_of[repr(operation.response)]},
        "required": ["success", "data"],
    }
    return {"description": "It worked.", "content": {operation.media: {"schema": schema}}}


def _failures(operation: Operation) -> dict[str, Any]:
    """One response a status, which names the codes that have it."""
    by_status: defaultdict[int, list[ErrorCode]] = defaultdict(list)
    for code in operation.all_errors:
        by_status[ERRORS[code].http_status or 500].append(code)
    return {
        str(status): {
            "description": " ".join(f"`{code}`: {ERRORS[code].meaning}" for code in codes),
            "content": {
                "application/json": {
                    "schema": {
                        "allOf": [
                            {"$ref": _SCHEMAS.format(name="Failure")},
                            {
                                "properties": {
                                    "error": {"properties": {"code": {"enum": [str(code) for code in codes]}}}
                                }
                            },
                        ]
                    }
                }
            },
        }
        for status, codes in sorted(by_status.items())
    }


def _failure_schema() -> dict[str, Any]:
    return {
        "title": "Failure",
        "description": "What every call that failed answers.",
        "type": "object",
        "properties": {
            "success": {"const": False},
            "error": {
                "type": "object",
                "properties": {
                    "code": {"enum": [str(code) for code in ErrorCode]},
                    "message": {"type": "string"},
                    "details": {"type": "object"},
                },
                "required": ["code", "message", "details"],
            },
        },
        "required": ["success", "error"],
    }


def _without_parameters(components: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not referred to, because it is spelled out as parameters."""
    queries = {operation.query.__name__ for operation in OPERATIONS}
    return {name: schema for name, schema in components.items() if name not in queries}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
