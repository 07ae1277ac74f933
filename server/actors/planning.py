"""What a completion is to do, from the agent, the settings and the state of the conversation's calls.
Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.client_frames import OnPending
from server.engine.completion import Plan
from server.engine.model_call import TimeLimits

if TYPE_CHECKING:
    from server.actors.calls import Calls
    from server.actors.host import Host
    from server.agents import Agent
    from server.llm.base import ChatMessage
    from server.settings import Settings

CANVAS_TOOL: Final = "canvas_edit"
"""The tool that only makes sense where there is a canvas."""


def offers(agent: Agent, tool_name: str, *, has_canvas: bool) -> bool:
    """Whether an agent may call a tool in this place: the canvas is a project's."""
    return agent.allows(tool_name) and (has_canvas or tool_name != CANVAS_TOOL)


def plan_completion(
    host: Host,
    agent: Agent,
    calls: Calls,
    *,
    model: str | None,
    prompt: tuple[ChatMessage, ...],
    on_pending: OnPending,
) -> Plan:
    """Make the plan of a completion; undecided calls have been dealt with before, or are left to wait."""
    settings = host.services.settings
    has_canvas = host.canvas is not None
    return Plan(
        model=model or agent.model,
        messages=prompt,
        tools=host.services.toolbox.definitions(lambda name: offers(agent, name, has_canvas=has_canvas)),
        decided_calls=bool(calls.accepted),
        call_model=not (calls.waiting and on_pending is OnPending.RUN_DECIDED),
        max_turns=settings.max_turns,
        max_characters=settings.answer_characters,
        limits=_time_limits(settings),
        checkpoint_s=settings.checkpoint_ms / 5000,
    )


def _time_limits(settings: Settings) -> TimeLimits:
    return TimeLimits(
        first_token_s=settings.llm_first_token_timeout_ms / 1000,
        gap_s=settings.llm_gap_timeout_ms / 1000,
        total_s=settings.llm_total_timeout_ms / 1000,
    )
