"""Agents: which one answers, with which model, prompt, tools and policies."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from server.agents import DEFAULT_AGENT, SHIPPED, resolve_agent
from server.settings import AgentSettings, McpServer, Settings, SettingsError, load_settings
from server.tools.ask_user import ask_user
from server.tools.base import Policy
from server.tools.canvas import canvas_edit
from server.tools.search import search


def test_three_agents_ship_and_the_assistant_answers_where_nobody_is_named() -> None:
    assert set(SHIPPED) == {"local/assistant", "local/orchestrator", "local/aiops"}
    agent = resolve_agent(Settings(), None)
    assert (agent.name, agent.model, agent.system_prompt) == (DEFAULT_AGENT, None, None)
    assert agent.allows("anything")
    assert not resolve_agent(Settings(), "local/aiops").allows("canvas_edit")
    assert resolve_agent(Settings(), "local/orchestrator").system_prompt


def test_an_unknown_agent_is_the_default_one_and_a_warning() -> None:
    with structlog.testing.capture_logs() as logs:
        agent = resolve_agent(Settings(), "local/nobody")
    assert agent.name == DEFAULT_AGENT
    assert [(entry["log_level"], entry["actor_name"]) for entry in logs] == [("warning", "local/nobody")]


def test_settings_change_an_agent_field_by_field_and_add_others() -> None:
    settings = Settings(
        system_prompt="Be brief.",
        agents={
            "local/orchestrator": AgentSettings(model="big"),
            "acme/helper": AgentSettings(
                system_prompt="Help.",
                tools=("s*",),
                policies={"search": "confirm", "*": "immediate"},
            ),
        },
    )
    orchestrator = resolve_agent(settings, "local/orchestrator")
    assert orchestrator.model == "big"
    assert orchestrator.system_prompt == f"Be brief.\n\n{SHIPPED['local/orchestrator'].system_prompt}"
    helper = resolve_agent(settings, "acme/helper")
    assert helper.system_prompt == "Be brief.\n\nHelp."
    assert (helper.allows("search"), helper.allows("ask_user")) == (True, False)
    assert helper.policy(search) is Policy.CONFIRM
    assert helper.policy(canvas_edit) is Policy.IMMEDIATE


def test_a_question_is_asked_whatever_the_policies_say() -> None:
    settings = Settings(agents={"a/b": AgentSettings(policies={"*": "immediate"})})
    assert resolve_agent(settings, "a/b").policy(ask_user) is Policy.ASK_USER


def test_the_file_names_agents_and_servers(tmp_path: Path) -> None:
    path = tmp_path / "turnwire.toml"
    path.write_text(
        """
[agents."local/assistant"]
model = "small"
tools = ["search", "time__*"]
[agents."local/assistant".policies]
"time__*" = "confirm"

[mcp.time]
command = ["mcp-server-time", "--local-timezone", "UTC"]
policy = "immediate"
env = { SECRET = "hush" }
[mcp.time.tools]
convert_time = "confirm"

[mcp.web]
url = "https://example.org/mcp"
headers = { Authorization = "Bearer hush" }
""",
        encoding="utf-8",
    )
    settings = load_settings(path, {})
    assert settings.agents["local/assistant"].policies == {"time__*": "confirm"}
    assert settings.mcp["time"].tools == {"convert_time": "confirm"}
    assert settings.mcp["web"].policy == "confirm"
    assert "hush" not in repr(settings) + repr(settings.mcp)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[mcp.a]\n", "either `command` or `url`"),
        ('[mcp.a]\ncommand = ["x"]\nurl = "http://x"\n', "either `command` or `url`"),
        ('[mcp.a]\nurl = "http://x"\nenv = { A = "hush" }\n', "`env` is for"),
        ('[mcp.a]\ncommand = ["x"]\nheaders = { A = "hush" }\n', "`headers` are for"),
        ('[mcp.a]\ncommand = ["x"]\npolicy = "never"\n', "never"),
        ('[mcp.a__b]\ncommand = ["x"]\n', "key"),
        ('[mcp."a b"]\ncommand = ["x"]\n', "key"),
        ("[agents.nobody]\n", "key"),
        ('[agents."a/b"]\npolicies = { x = "ask_user" }\n', "ask_user"),
        ("tool_output_bytes = 10\n", "1024"),
    ],
)
def test_wrong_settings_are_refused_without_telling_secrets(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "turnwire.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load_settings(path, {})
    assert said in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_server_has_a_command_or_a_url() -> None:
    with pytest.raises(ValueError, match="either"):
        McpServer()
