"""The research server gets the settings of its mesh, and no other server gets its keys."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.journal.protected import new_key
from trunkline import ReasoningAgentSpec
from trunkline.core.settings import PluginTable, Settings
from trunkline.processes.tools import load_mcp_config
from trunkline_agents.research.agent import plugin
from trunkline_agents.research.settings import documents_path

KEYS = {"MY_TAVILY": "tvly-secret", "OPENAI_API_KEY": "sk-secret"}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def test_the_server_gets_the_documents_engines_and_keys_of_its_mesh(tmp_path: Path) -> None:
    table = PluginTable(
        {
            "tavily_key_env": "MY_TAVILY",
            "searxng_url": "http://s.example",
        }
    )

    settings = Settings(data_dir=tmp_path, embeddings="openai:small", plugins={"research": table})

    config = load_mcp_config(settings)

    server = config.servers["research"]
    assert f"--documents={tmp_path / 'private' / 'documents.db'}" in server.args
    assert "--searxng-url=http://s.example" in server.args
    assert "--embeddings=openai:small" in server.args
    assert server.env == {"TAVILY_API_KEY": "tvly-secret", "TRUNKLINE_EMBEDDINGS_KEY": "sk-secret"}
    assert not any("secret" in word for word in server.args)
    assert config.servers["math"].env == {}


def test_the_server_gets_a_key_for_encrypted_documents_only(tmp_path: Path) -> None:
    (tmp_path / "documents.db").touch()
    settings = Settings(data_dir=tmp_path, encryption_key=new_key())
    server = load_mcp_config(settings).servers["research"]
    # The file of an earlier version remains where it is.
    assert f"--documents={tmp_path / 'documents.db'}" in server.args
    assert server.env.keys() == {"TRUNKLINE_DOCUMENTS_KEY"}
    assert load_mcp_config(settings).servers["research"].env == server.env
    assert settings.encryption_key not in server.env.values()


def test_the_server_gets_a_database_only_by_a_url_for_documents(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, store="postgresql://owner:secret@db.example/mesh")
    server = load_mcp_config(settings).servers["research"]
    assert server.env == {}
    assert "--documents=" in server.args
    assert not any("secret" in word for word in server.args)
    reader = "postgresql://reader@db.example/mesh"
    table = PluginTable({"documents_store": reader})
    config = load_mcp_config(replace(settings, plugins={"research": table}))
    assert config.servers["research"].env == {"TRUNKLINE_DOCUMENTS_STORE": reader}


def test_the_server_gets_no_key_without_settings(tmp_path: Path) -> None:
    assert load_mcp_config(Settings(data_dir=tmp_path)).servers["research"].env == {}


def test_the_servers_entry_wins_and_another_server_is_unchanged(tmp_path: Path) -> None:
    entry = {"command": "trunkline-mcp-research", "args": ["--arxiv-url="], "env": {"A": "b"}}
    file = tmp_path / "mcp.json"
    settings = Settings(data_dir=tmp_path, mcp_file=file)

    file.write_text(json.dumps({"mcpServers": {"research": entry}}))
    server = load_mcp_config(settings).servers["research"]
    file.write_text(json.dumps({"mcpServers": {"research": {"command": "mine"}}}))
    other = load_mcp_config(settings).servers["research"]
    file.write_text(json.dumps({"mcpServers": {"research": {"disabled": True}}}))

    # The last occurrence of an option counts.
    assert server.args[-1] == "--arxiv-url="
    assert server.env == {"A": "b"}
    assert (other.command, other.args, other.env) == ("mine", [], {})
    assert "research" not in load_mcp_config(settings).servers


def test_examples_are_of_searches_that_work_without_a_key(tmp_path: Path) -> None:
    spec, settings = plugin.agent, Settings(data_dir=tmp_path)
    assert isinstance(spec, ReasoningAgentSpec)
    list_more_skills = spec.list_more_skills
    assert list_more_skills is not None

    def examples() -> list[str]:
        skills = [*spec.skills, *list_more_skills(settings)]
        return [example for skill in skills for example in skill.examples]

    without_documents = examples()
    documents_path(tmp_path).parent.mkdir()
    documents_path(tmp_path).touch()
    assert without_documents == ["find papers about retrieval augmented generation"]
    assert examples()[len(without_documents) :] == [
        "what do the documents say about leave",
        "search the docs for release notes",
    ]
