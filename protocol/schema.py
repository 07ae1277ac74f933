"""Writes the contract for other languages: ``schema.json``, ``asyncapi.json``, the tables of ``SPEC.md``.

``python -m protocol.schema`` writes them, ``--check`` only says (exit 1) which are stale. All comes from the
structs and the table of codes, so that none of it is maintained by hand.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
from msgspec import Struct

from protocol.asyncapi import asyncapi_document
from protocol.canvas import Edge, EdgeDraft, EdgePatch, Node, NodeDraft, NodePatch
from protocol.client_frames import ConversationFrame
from protocol.codec import PROJECT_FORMS
from protocol.codes import CLOSES, ERRORS
from protocol.run import AgentStep, Run
from protocol.server_frames import AnyServerFrame
from protocol.session import Session
from protocol.session_export import SessionExport
from protocol.tool_call import ToolCall

FOLDER: Final = Path(__file__).parent
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

ENTITIES: Final = (Session, SessionExport, Run, AgentStep, ToolCall, Node, Edge)
ITEMS: Final[Mapping[str, Mapping[str, type[Struct]]]] = {
    "CanvasBatchCreate": {"nodes": NodeDraft, "edges": EdgeDraft},
    "CanvasBatchUpdate": {"nodes": NodePatch, "edges": EdgePatch},
}


def components(prefix: str) -> dict[str, Any]:
    """The schemas of all frames and entities by name, with references below ``prefix``."""
    roots = (
        *get_args(ConversationFrame),
        *PROJECT_FORMS,
        *get_args(AnyServerFrame),
        *ENTITIES,
        *(item for fields in ITEMS.values() for item in fields.values()),
    )
    _, found = msgspec.json.schema_components(roots, ref_template=prefix + "{name}")
    schemas = copy.deepcopy(found)
    for form in ("", "Project"):
        _refine_append(schemas[f"{form}AppendMessage"], f"{prefix}MessageRole")
    for name, fields in ITEMS.items():
        for field, item in fields.items():
            schemas[f"Project{name}"]["properties"][field]["items"] = {"$ref": f"{prefix}{item.__name__}"}
    for field in ("node_ids", "edge_ids"):
        items = {"type": "string", "format": "uuid"}
        schemas["ProjectCanvasBatchDelete"]["properties"][field]["items"] = items
    unions = {
        "ConversationClientFrame": get_args(ConversationFrame),
        "ProjectClientFrame": PROJECT_FORMS,
        "ServerFrame": get_args(AnyServerFrame),
    }
    for name, frames in unions.items():
        schemas[name] = {"title": name, "oneOf": [{"$ref": prefix + frame.__name__} for frame in frames]}
    return dict(sorted(schemas.items()))


def _refine_append(schema: dict[str, Any], role_ref: str) -> None:
    """What the struct checks in code: no assistant, and a tool message answers a call."""
    schema["properties"]["role"] = {"enum": ["user", "system", "tool"]}
    schema["if"] = {"properties": {"role": {"const": "tool"}}}
    schema["then"] = {
        "properties": {"tool_call_id": {"type": "string"}},
        "required": ["tool_call_id"],
    }
    schema["else"] = {"properties": {"tool_call_id": {"type": "null"}}}


def schema_document() -> dict[str, Any]:
    """The JSON Schema of everything; a document of its own validates nothing, its ``$defs`` do."""
    return {
        "$schema": DIALECT,
        "title": "Turnwire frames and entities",
        "$defs": components("#/$defs/"),
    }


def error_table() -> str:
    """The table of error codes for SPEC.md."""
    lines = ["| code | HTTP | closes with | retry | meaning |", "|---|---|---|---|---|"]
    for row in ERRORS.values():
        status = "—" if row.http_status is None else row.http_status
        close = "—" if row.close is None else row.close.value
        retry = "—" if row.http_status is None else "yes" if row.retryable else "no"
        lines.append(f"| `{row.code}` | {status} | {close} | {retry} | {row.meaning} |")
    return "\n".join(lines)


def close_table() -> str:
    """The table of close codes for SPEC.md."""
    lines = ["| close code | meaning | a client should |", "|---|---|---|"]
    lines += [f"| {row.code.value} | {row.meaning} | {row.client_should} |" for row in CLOSES.values()]
    return "\n".join(lines)


def with_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """A text with what stands between its markers replaced.

    Raises:
        LookupError: A marker is missing.
    """
    for name, block in blocks.items():
        pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        found = pattern.search(text)
        if found is None:
            raise LookupError(f"SPEC.md has no block for {name!r}")
        text = f"{text[: found.end(1)]}{block}\n{text[found.start(2) :]}"
    return text


def outputs() -> dict[Path, str]:
    """Every file that is made from the code, as it should be."""
    spec = FOLDER / "SPEC.md"
    blocks = {"error codes": error_table(), "close codes": close_table()}
    return {
        FOLDER / "schema.json": _json(schema_document()),
        FOLDER / "asyncapi.json": _json(asyncapi_document(components("#/components/schemas/"))),
        spec: with_blocks(spec.read_text(encoding="utf-8"), blocks),
    }


def stale() -> list[Path]:
    """The files that are not as they should be."""
    return [
        path
        for path, text in outputs().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def main(argv: list[str] | None = None) -> int:
    """Write the files; with ``--check`` only compare them: 0 when fresh, 1 when stale."""
    parser = argparse.ArgumentParser(prog="python -m protocol.schema", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
    check: bool = parser.parse_args(argv).check
    for path in stale():
        if check:
            sys.stderr.write(f"stale: protocol/{path.name} (run python -m protocol.schema)\n")
        else:
            path.write_text(outputs()[path], encoding="utf-8")
            sys.stdout.write(f"wrote protocol/{path.name}\n")
    return 1 if check and stale() else 0


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
