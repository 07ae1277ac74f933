"""Short ways to make what is stored."""

from __future__ import annotations

import hashlib
from typing import Any

import asyncpg

from protocol.ids import new_message_id, new_run_id, new_ulid
from protocol.run import AgentFlow, FinishReason, RunStatus
from protocol.session import MessageRole, SessionMessage, TokenUsage
from storage.records import AppendWrite, NewRun, RequestKey, RunEnd, SessionSeed, StepRecord
from storage.store import Store

OWNER = "local"


def message(sequence: int, content: str = "hello", role: MessageRole = MessageRole.USER) -> SessionMessage:
    return SessionMessage(message_id=new_message_id(), sequence=sequence, role=role, content=content)


def request(session_id: str, request_id: str, kind: str = "append_message", body: str = "") -> RequestKey:
    return RequestKey(session_id, request_id, kind, hashlib.sha256(body.encode()).hexdigest())


def append(
    session_id: str,
    sequence: int,
    *,
    fence: int = 1,
    request_id: str | None = None,
    content: str = "hello",
    seed: bool | None = None,
) -> AppendWrite:
    """An append; the first of a session brings its seed."""
    with_seed = sequence == 0 if seed is None else seed
    return AppendWrite(
        session_id=session_id,
        fence=fence,
        message=message(sequence, content),
        seed=SessionSeed(session_id, OWNER) if with_seed else None,
        request=None if request_id is None else request(session_id, request_id, body=content),
    )


def run_of(session_id: str, request_id: str = "r1") -> NewRun:
    return NewRun(new_run_id(), session_id, request_id, "hello", AgentFlow.CHAT, "script/demo")


async def begun(store: Store, *, request_id: str = "r1") -> tuple[str, NewRun]:
    """A new session with one message and a running run, fence 1."""
    session_id = new_ulid()
    await store.sessions.append(append(session_id, 0))
    run = run_of(session_id, request_id)
    await store.runs.start(session_id, 1, None, request(session_id, request_id, "request_completion"), run)
    return session_id, run


def end_of(
    run: NewRun,
    sequence: int,
    content: str = "an answer",
    *,
    status: RunStatus = RunStatus.SUCCEEDED,
    finish: FinishReason = FinishReason.STOP,
) -> RunEnd:
    return RunEnd(
        run_id=run.run_id,
        status=status,
        finish_reason=finish,
        answer=content,
        usage=TokenUsage(input_tokens=3, output_tokens=5, estimated_cost=0.25),
        message=message(sequence, content, MessageRole.ASSISTANT),
        step=StepRecord(0, "script/demo", content, finish_reason="stop", input_tokens=3, output_tokens=5),
    )


async def rows(dsn: str, query: str, *values: Any) -> list[Any]:
    """What a query finds, over a connection that is not the store's."""
    connection = await asyncpg.connect(dsn)
    try:
        return list(await connection.fetch(query, *values))
    finally:
        await connection.close()
