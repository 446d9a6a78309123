"""Effective settings name their sources and hide secrets; the schema describes every key."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.mesh.command_line import run_in_process
from trunkline.core.settings import Settings
from trunkline.core.settings.effective import (
    DEFAULT,
    HIDDEN,
    EffectiveSetting,
    list_effective_settings,
)
from trunkline.core.settings.schema import build_settings_schema
from trunkline.errors import ConfigurationError
from trunkline.tools.config import build_config_schema

FILE = """
model = "openai:x"
queue_limit = 5
webhook_secret = "whsec_c2VjcmV0"

[agent.math]
timeout_s = 3

[agent.math.options]
api_key = "s3cr3t"
digits = 3

[identity]
folder = "id"

[remote.other]
url = "http://127.0.0.1:1"
headers = {authorization = "s3cr3t"}

[policy.callers]
math = ["supervisor"]
"""


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, EffectiveSetting]:
    (tmp_path / "trunkline.toml").write_text(FILE)
    environment = {
        "TRUNKLINE_JOIN_TOKEN": "s3cr3t",
        "TRUNKLINE_QUEUE_LIMIT": "7",
        "TRUNKLINE_TREE_DEPTH": "3",
    }
    listed = list_effective_settings(
        {"http": "127.0.0.1:1"}, environment=environment, folder=tmp_path
    )
    return {setting.name: setting for setting in listed}


def test_every_setting_has_its_source(
    settings: dict[str, EffectiveSetting], tmp_path: Path
) -> None:
    file = str(tmp_path / "trunkline.toml")
    sources = {name: setting.source for name, setting in settings.items()}
    assert {name for name, source in sources.items() if source == file} == {
        "model", "webhook_secret", "agent.math.timeout_s", "agent.math.options.api_key",
        "agent.math.options.digits", "identity.folder", "remote.other.url", "remote.other.headers",
        "policy.callers.math",
    }  # fmt: skip
    assert sources["queue_limit"] == "TRUNKLINE_QUEUE_LIMIT"
    assert sources["tree.depth"] == "TRUNKLINE_TREE_DEPTH"
    assert sources["tree.tasks"] == sources["lease_s"] == DEFAULT
    assert sources["http"] == "--http"
    assert settings["queue_limit"].value == 7
    assert settings["http"].value == "127.0.0.1:1"


def test_secrets_are_hidden(settings: dict[str, EffectiveSetting]) -> None:
    hidden = {name for name, setting in settings.items() if setting.value == HIDDEN}
    assert hidden == {
        "join_token", "webhook_secret", "agent.math.options.api_key", "remote.other.headers",
    }  # fmt: skip
    assert "s3cr3t" not in json.dumps([setting.value for setting in settings.values()])


def valid(document: dict[str, Any], schema: dict[str, Any]) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(document))


def test_the_schema_of_settings_describes_every_key() -> None:
    schema = build_settings_schema({})
    jsonschema.Draft202012Validator.check_schema(schema)
    described = {
        name
        for name, value in schema["properties"].items()
        if value.get("description") or "properties" in value
    }
    assert described == set(schema["properties"])
    assert len(described) > len(fields(Settings)) * 0.8
    assert valid({"model": "x", "agent": {"math": {"timeout_s": 3}}, "http": "a:1"}, schema)
    assert not valid({"modl": "x"}, schema)
    assert not valid({"agent": {"math": {"timeout": 3}}}, schema)
    assert not valid({"queue_limit": -1}, schema)


def test_the_schema_of_mcp_files_accepts_what_other_clients_write() -> None:
    schema = build_config_schema()
    server = {"command": "x", "args": ["y"], "disabled": True, "alwaysAllow": []}
    assert valid({"mcpServers": {"a": server}}, schema)
    assert valid({"mcpServers": {"a": {"disabled": True}}}, schema)
    assert not valid({"mcpServers": {"a": {}}}, schema)
    assert not valid({"mcpServers": {"a": {"command": "x", "url": "http://x"}}}, schema)
    assert not valid({"mcpServers": {"a": {"command": 3}}}, schema)
    assert not valid({"mcpServers": {"a": {"url": "http://x", "trunkline": {"agnet": 1}}}}, schema)


def test_the_command_shows_and_checks_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trunkline.toml").write_text('mcp_file = "tools.json"\nlease_s = 5\n')
    (tmp_path / "tools.json").write_text('{"mcpServers": {"a": {"command": "x"}}}')
    shown = run_in_process("config", "show", "--set", "--json").json
    mcp_file = {"setting": "mcp_file", "value": "tools.json", "source": "trunkline.toml"}
    assert mcp_file in shown
    assert DEFAULT not in {setting["source"] for setting in shown}
    assert run_in_process("config", "check").out == "ok  trunkline.toml\nok  tools.json\n"
    (tmp_path / "tools.json").write_text('{"mcpServers":\n{"a": {}}}')
    for words in (("config", "check"), ("config", "check", "tools.json")):
        failed = run_in_process(*words)
        assert failed.exit == 1
        assert failed.err.startswith("error: tools.json, line 2: mcpServers.a: give either")
    (tmp_path / "other.toml").write_text("lease = 5\n")
    (tmp_path / "good.json").write_text('{"mcpServers": {}}')
    failed = run_in_process("config", "check", "other.toml", "good.json")
    assert failed.exit == 1
    assert "other.toml: lease: no such setting" in failed.err
    assert failed.out == "ok  good.json\n"
    assert run_in_process("config", "schema").json["title"].startswith("Settings")
    assert run_in_process("config", "schema", "mcp").json["required"] == ["mcpServers"]


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        list_effective_settings(environment={"TRUNKLINE_CONFIG": str(tmp_path / "none.toml")})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[supervisor.a]\nagents = ["b"]\n[supervisor.b]\nagents = ["a"]\n',
            "[supervisor.a] agents: a asks b asks a: supervisors can't ask in a circle",
        ),
        ('[supervisor.front]\nagents = ["mth"]\n', "[supervisor.front] agents: there is no agent"),
        ('default_agent = "mth"\n', "default_agent (--default): there is no agent 'mth'"),
        ('workflows = ["none.yaml"]\n', "none.yaml: there is no such file"),
        ('agents = ["none_here:agent"]\n', "--agent none_here:agent: can't import it"),
        ('mcp_file = "none.json"\n', "none.json: can't be read"),
    ],
)
def test_a_check_finds_what_would_end_up(
    text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.toml").write_text(text)
    (tmp_path / "good.toml").write_text("lease_s = 5\n")
    checked = run_in_process("config", "check", "wrong.toml", "good.toml")
    assert checked.exit != 0
    assert problem in checked.err
    assert checked.err.endswith("; in wrong.toml\n")
    assert checked.out == "ok  good.toml\n"
