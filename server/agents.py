"""Agents: what a conversation's ``actor_name`` chooses (SE1).

An agent is a model, a system prompt, the tools it may call and what each needs before it runs. Three ship;
the settings file changes them or adds others, field by field.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct

from server.settings import AgentSettings
from server.tools.base import Policy

if TYPE_CHECKING:
    from server.settings import Settings
    from server.tools.base import Tool

log = structlog.get_logger(__name__)

DEFAULT_AGENT: Final = "local/assistant"
"""Who answers in a conversation that names nobody."""

SHIPPED: Final[Mapping[str, AgentSettings]] = {
    DEFAULT_AGENT: AgentSettings(tools=("*",)),
    "local/orchestrator": AgentSettings(
        tools=("*",),
        system_prompt=(
            "You coordinate work. Break what the user wants into steps, say which you will take, and take "
            "them one after the other with the tools you have. Look things up before you state them. When a "
            "decision is the user's to make, or something is missing that only the user knows, ask with "
            "ask_user instead of guessing. On a project, keep the plan on the canvas. If a tool fails or the "
            "user refuses a call, say so and go on with what is left."
        ),
    ),
    "local/aiops": AgentSettings(
        tools=("search", "current_time", "ask_user", "alerts", "alertmanager_*", "prometheus_*", "logs_*"),
        system_prompt=(
            "You look into incidents of running systems. Begin with what is firing, gather evidence with the "
            "tools before you name a cause, and search for similar cases. Cite the tool call behind each "
            "claim, quote figures as the evidence has them, and say what you could not find out or which "
            "source failed. End with the likely cause, how sure you are, and a remedy; do not change "
            "anything yourself."
        ),
    ),
}
"""The agents that are there without any settings."""


class Agent(Struct, frozen=True):
    """One agent, with nothing left open but the model (None: the server's default)."""

    name: str
    model: str | None
    system_prompt: str | None
    tools: tuple[str, ...]
    """Names and globs of the tools that it may call."""
    policies: Mapping[str, Policy]
    """By name or glob, in place of the tools' own; the first that fits."""

    def allows(self, tool_name: str) -> bool:
        """Whether it may call the tool of this name."""
        return any(fnmatchcase(tool_name, pattern) for pattern in self.tools)

    def policy(self, tool: Tool) -> Policy:
        """What has to happen before it runs this tool. What asks the user always asks the user."""
        if tool.policy is Policy.ASK_USER:
            return tool.policy
        for pattern, policy in self.policies.items():
            if fnmatchcase(tool.name, pattern):
                return policy
        return tool.policy


def resolve_agent(settings: Settings, actor_name: str | None) -> Agent:
    """The agent of a name; an unknown name gets the default one, with a warning in the log."""
    name = actor_name or DEFAULT_AGENT
    if name not in SHIPPED and name not in settings.agents:
        log.warning("unknown agent: the default one answers", actor_name=name)
        name = DEFAULT_AGENT
    shipped = SHIPPED.get(name, _BLANK)
    given = settings.agents.get(name, _BLANK)
    own_prompt = shipped.system_prompt if given.system_prompt is None else given.system_prompt
    prompts = [prompt for prompt in (settings.system_prompt, own_prompt) if prompt]
    tools = shipped.tools if given.tools is None else given.tools
    return Agent(
        name=name,
        model=given.model or shipped.model,
        system_prompt="\n\n".join(prompts) or None,
        tools=("*",) if tools is None else tools,
        policies={
            pattern: Policy(policy) for pattern, policy in (given.policies or shipped.policies).items()
        },
    )


_BLANK: Final = AgentSettings()
