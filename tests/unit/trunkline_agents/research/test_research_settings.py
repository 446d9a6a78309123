"""The research server gets the settings of its mesh, and only it gets their keys."""

import json
from pathlib import Path

import pytest

from trunkline.mesh.tools import load_mcp_config
from trunkline.settings import PluginTable, Settings

KEYS = {"MY_TAVILY": "tvly-secret", "OPENAI_API_KEY": "sk-secret"}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def test_it_gets_the_documents_the_engines_and_the_keys_of_its_mesh(tmp_path: Path) -> None:
    table = PluginTable(
        {
            "tavily_key_env": "MY_TAVILY",
            "searxng_url": "http://s.example",
            "embeddings": "openai:small",
        }
    )

    config = load_mcp_config(Settings(data_dir=tmp_path, plugins={"research": table}))

    told = config.servers["research"]
    assert f"--documents={tmp_path / 'documents.db'}" in told.args
    assert "--searxng-url=http://s.example" in told.args
    assert "--embeddings=openai:small" in told.args
    assert told.env == {"TAVILY_API_KEY": "tvly-secret", "TRUNKLINE_EMBEDDINGS_KEY": "sk-secret"}
    assert not any("secret" in word for word in told.args)
    assert config.servers["math"].env == {}


def test_without_settings_it_gets_no_key(tmp_path: Path) -> None:
    assert load_mcp_config(Settings(data_dir=tmp_path)).servers["research"].env == {}


def test_what_its_entry_says_itself_wins_and_another_server_is_left_alone(tmp_path: Path) -> None:
    own = {"command": "trunkline-mcp-research", "args": ["--arxiv-url="], "env": {"A": "b"}}
    file = tmp_path / "mcp.json"
    settings = Settings(data_dir=tmp_path, mcp_file=file)

    file.write_text(json.dumps({"mcpServers": {"research": own}}))
    told = load_mcp_config(settings).servers["research"]
    file.write_text(json.dumps({"mcpServers": {"research": {"command": "mine"}}}))
    other = load_mcp_config(settings).servers["research"]
    file.write_text(json.dumps({"mcpServers": {"research": {"disabled": True}}}))

    # The last occurrence of an option counts.
    assert told.args[-1] == "--arxiv-url="
    assert told.env == {"A": "b"}
    assert (other.command, other.args, other.env) == ("mine", [], {})
    assert "research" not in load_mcp_config(settings).servers
