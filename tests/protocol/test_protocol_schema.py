"""The generated documents are fresh, and say of every frame what the codec does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from hypothesis import given

from protocol import schema
from protocol.asyncapi import ANSWERS
from protocol.client_frames import CanvasFrame, ClientFrame, ConversationFrame, ProjectFrame
from protocol.codec import PROJECT_FORMS, decode_client_frame, encode, encode_client_frame, tag_of
from protocol.codes import CLOSES, ERRORS
from protocol.errors import BadFrame
from protocol.server_frames import AnyServerFrame
from protocol.session import Session
from tests.protocol import frame_strategies as fs
from tests.protocol.test_bad_frames import BAD_FRAMES
from tests.protocol.test_session_export import sessions

DOCUMENT = schema.schema_document()


def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**DOCUMENT, "$ref": f"#/$defs/{name}"})


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        here = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return here.union(*(references(item) for item in node.values()))
    if isinstance(node, list):
        return set().union(*(references(item) for item in node))
    return set()


def resolves(document: Any, reference: str) -> bool:
    for part in reference.removeprefix("#/").split("/"):
        if part not in document:
            return False
        document = document[part]
    return True


def test_what_is_generated_is_fresh() -> None:
    assert schema.stale() == []
    assert schema.main(["--check"]) == 0


def test_a_stale_file_is_named_and_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = (schema.FOLDER / "SPEC.md").read_text(encoding="utf-8")
    (tmp_path / "SPEC.md").write_text(
        spec.replace("| 4009 | ", "| 4009 | changed by hand "), encoding="utf-8"
    )
    monkeypatch.setattr(schema, "FOLDER", tmp_path)
    assert schema.main(["--check"]) == 1
    told = capsys.readouterr().err
    assert all(name in told for name in ("SPEC.md", "schema.json", "asyncapi.json"))
    assert schema.main([]) == 0
    assert schema.main(["--check"]) == 0
    assert (tmp_path / "SPEC.md").read_text(encoding="utf-8") == spec


def test_a_missing_block_is_an_error() -> None:
    with pytest.raises(LookupError, match="error codes"):
        schema.with_blocks("# nothing here", {"error codes": "x"})


def test_the_tables_of_the_spec_have_every_code() -> None:
    assert all(f"| `{code}` |" in schema.error_table() for code in ERRORS)
    assert all(f"| {code.value} |" in schema.close_table() for code in CLOSES)


def test_the_schema_is_valid_and_all_its_references_resolve() -> None:
    jsonschema.Draft202012Validator.check_schema(DOCUMENT)
    assert all(resolves(DOCUMENT, reference) for reference in references(DOCUMENT))


def test_the_asyncapi_document_has_every_frame_and_resolves() -> None:
    document = json.loads((schema.FOLDER / "asyncapi.json").read_text(encoding="utf-8"))
    assert document["asyncapi"] == "3.0.0"
    assert all(resolves(document, reference) for reference in references(document))
    names = {message["name"] for message in document["components"]["messages"].values()}
    assert names == {tag_of(frame) for frame in (*get_args(ProjectFrame), *get_args(AnyServerFrame))}
    assert len(document["x-error-codes"]) == len(ERRORS)
    assert len(document["x-close-codes"]) == len(CLOSES)


def test_every_client_frame_has_its_answers() -> None:
    assert set(ANSWERS) == {tag_of(frame) for frame in get_args(ProjectFrame)}
    assert len(PROJECT_FORMS) == len(get_args(ProjectFrame))
    known = {tag_of(frame) for frame in get_args(AnyServerFrame)}
    assert {answer for answers in ANSWERS.values() for answer in answers} <= known


def test_every_frame_is_in_its_union() -> None:
    assert set(ClientFrame.__subclasses__()) == set(get_args(ProjectFrame))
    assert set(get_args(ConversationFrame)) | set(get_args(CanvasFrame)) < set(get_args(ProjectFrame))


@pytest.mark.parametrize("frame", get_args(AnyServerFrame), ids=lambda frame: frame.__name__)
def test_every_server_frame_fits_its_schema(frame: type[Any]) -> None:
    check = validator("ServerFrame")

    @given(fs.of_struct(frame))
    def fits(value: Any) -> None:
        check.validate(json.loads(encode(value)))

    fits()


@pytest.mark.parametrize("frame", get_args(ConversationFrame), ids=lambda frame: frame.__name__)
def test_every_conversation_frame_fits_its_schema(frame: type[Any]) -> None:
    check = validator("ConversationClientFrame")

    @given(fs.of_struct(frame))
    def fits(value: Any) -> None:
        check.validate(json.loads(encode_client_frame(value)))

    fits()


@given(sessions())
def test_every_export_fits_its_schema(session: Session) -> None:
    validator("SessionExport").validate(json.loads(session.export_bytes()))


@pytest.mark.parametrize("name", ["domain here", "role assistant", "tool without its call", "seq negative"])
def test_ER1_the_schema_refuses_what_the_codec_refuses(name: str) -> None:
    data = next(case[1] for case in BAD_FRAMES if case[0] == name)
    with pytest.raises(BadFrame):
        decode_client_frame(data)
    assert not validator("ConversationClientFrame").is_valid(json.loads(data))
