"""What a mesh says that it has loaded, and why."""

from pathlib import Path

import pytest

from trunkline.agents.plugins import load_plugins
from trunkline.core.settings import load_settings
from trunkline.processes.inventory import describe_inventory
from trunkline.processes.tools import load_mcp_config

SETTINGS = """\
agents = ["my_agent:hello"]
mcp_file = "tools.json"
fallbacks = ["ollama:small"]
[agent.math]
model = "openai:big"
[models."openai:big"]
api_key_env = "A_KEY_THAT_NOBODY_SET"
"""
SERVERS = '{"mcpServers": {"math": {"command": "mine"}, "time": {"command": "clock"}}}'


def test_each_agent_server_and_model_is_named_with_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trunkline.toml").write_text(SETTINGS)
    Path("tools.json").write_text(SERVERS)
    settings, plugins = load_settings(), load_plugins()
    config = load_mcp_config(settings, plugins)
    agents = ["supervisor", "math", "echo", "time", "hello"]
    agents += ["flow", "helper"]
    rows = describe_inventory(
        settings, config, agents, plugins, workflows=["flow"], brought={"helper": "flow"}
    )
    assert rows["agents"] == (
        "supervisor (bundled); math, echo (installed); time (tools.json); hello (my_agent:hello); "
        "flow (workflow); helper (for flow)"
    )
    assert "argocd (no settings for its MCP server argocd)" in rows["not loaded"]
    assert "currency" in rows["not loaded"]
    assert rows["servers"].startswith("math (tools.json, for math); time (tools.json); currency (")
    problem = "there is no key: set A_KEY_THAT_NOBODY_SET, or name another variable by api_key_env"
    assert rows["model"] == (
        f"rules, then ollama:small; math: openai:big ({problem}), then ollama:small"
    )
