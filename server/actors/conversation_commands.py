"""What REST asks of one conversation, carried out; its own actor does that, or that of its project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from protocol.client_frames import AppendMessage, ConfirmTool
from protocol.codes import ErrorCode
from protocol.errors import Fault
from protocol.ids import new_ulid
from protocol.server_frames import Origin
from server.actors.commands import AppendFromRest, AppendResult, DecideFromRest, DecideResult, UpdateSession
from server.actors.conversation import processed_again
from server.actors.ledger import Draft
from server.actors.requests import check_same
from storage.errors import DuplicateRequest

if TYPE_CHECKING:
    from server.actors.conversation import Conversation


async def carry_out(conversation: Conversation, command: Any) -> Any:
    """Carry out a command that changes a conversation; results in what the command says.

    Raises:
        Fault: What the conversation refuses.
        Fenced, Refused, StorageUnavailable: See :mod:`storage.errors`.
    """
    await conversation.completions.catch_up()
    match command:
        case AppendFromRest():
            return await _append(conversation, command)
        case DecideFromRest():
            return await _decide(conversation, command)
        case UpdateSession(metadata=metadata, actor_name=actor_name, linked_plan_ids=plans):
            fields = {"metadata": metadata, "actor_name": actor_name, "linked_plan_ids": plans}
            return await conversation.update({k: v for k, v in fields.items() if v is not UNSET})
        case _:
            raise TypeError(f"no handling for {type(command).__name__}")


async def _append(conversation: Conversation, command: AppendFromRest) -> AppendResult:
    try:
        frame = AppendMessage(
            request_id=command.request_id or f"rest-{new_ulid()}",
            role=command.role,
            content=command.content,
            tool_call_id=command.tool_call_id,
            metadata=command.metadata,
        )
    except ValueError as error:
        raise Fault(ErrorCode.INVALID_MESSAGE, str(error)) from error
    key = conversation.key(frame)
    conversation.completions.known(key)
    draft = Draft(frame.role, frame.content, frame.tool_call_id, frame.metadata, key, Origin.REST.value)
    try:
        return AppendResult(await conversation.append(draft), repeated=False)
    except DuplicateRequest as duplicate:
        check_same(duplicate.record, key)
        return AppendResult(await conversation.find_appended(duplicate.record), repeated=True)


async def _decide(conversation: Conversation, command: DecideFromRest) -> DecideResult:
    frame = ConfirmTool(
        request_id=command.request_id or f"rest-{new_ulid()}",
        tool_call_id=command.tool_call_id,
        decision=command.decision,
        arguments=command.arguments,
        reason=command.reason,
    )
    key = conversation.key(frame)
    conversation.completions.known(key)
    try:
        done = await conversation.decide(
            frame.tool_call_id, frame.decision, frame.arguments, frame.reason, key
        )
        repeated = done.repeated is True
    except DuplicateRequest as duplicate:
        check_same(duplicate.record, key)
        done, repeated = processed_again(duplicate.record, key), True
    return DecideResult(done.decision, done.confirmation_state, done.arguments_sha256, repeated)
