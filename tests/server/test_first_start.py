"""`turnwire serve` with no settings: an embedded database, the real local model, a page."""

from __future__ import annotations

import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from protocol.ids import new_ulid
from tests.harness.client import Client, text_of
from tests.harness.processes import Process

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def plain_server() -> Iterator[Process]:
    with tempfile.TemporaryDirectory(prefix="tw-", ignore_cleanup_errors=True) as place:
        Path(place).chmod(0o755)
        process = Process(["serve"], {"TURNWIRE_STATE_DIR": place, "TURNWIRE_PORT": "0"}, "ready").start()
        yield process
        process.close()


def test_CN2_the_page_is_served_with_a_strict_policy(plain_server: Process) -> None:
    with urllib.request.urlopen(plain_server.url, timeout=10) as answer:
        assert answer.status == 200
        assert "text/html" in answer.headers["Content-Type"]
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert b"turnwire" in answer.read().lower()


async def test_ST1_a_real_model_streams_its_answer_and_survives_a_drop(plain_server: Process) -> None:
    ws_url = plain_server.url.replace("http", "ws", 1)
    conversation_id = new_ulid()
    client = await Client.open(ws_url, conversation_id)
    await client.say("Name three colours.")
    run = await client.send("request_completion")
    frames = await client.until("llm_text_chunk", timeout_s=60)
    assert next(f for f in frames if f["type"] == "completion_init")["model"] == "smollm2-135m"
    position = client.position
    client.drop()
    again = await Client.open(ws_url, conversation_id, **position)
    assert again.connected["resume"] == "replayed"
    frames += await again.until("completion_done", request_id=run, timeout_s=120)
    assert frames[-1]["finish_reason"] in {"stop", "length"}
    assert frames[-1]["usage"]["output_tokens"] > 0
    complete = next(f for f in frames if f["type"] == "assistant_message_complete")
    assert complete["content"] == text_of(frames) == text_of(frames, "llm_text_sentence")
    assert len([f for f in frames if f["type"] == "llm_text_chunk"]) > 3
    await client.close()


async def test_ST3_a_real_model_is_stopped_in_mid_answer(plain_server: Process) -> None:
    client = await Client.open(plain_server.url.replace("http", "ws", 1))
    await client.say("Tell me a very long story about the sea.")
    run = await client.send("request_completion")
    await client.until("llm_text_chunk", timeout_s=60)
    await client.send("stop_completion")
    frames = await client.until("completion_done", request_id=run)
    assert frames[-1]["finish_reason"] == "stopped"
    assert frames[-2]["partial_text"] == text_of(client.frames)
