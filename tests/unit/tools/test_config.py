import json
from pathlib import Path

import pytest

from harness.logs import find_logged
from trunkline.errors import ConfigurationError
from trunkline.tools.config import ServerConfig, agents_from_config, load_config


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mcp.json"


def write(path: Path, **servers: object) -> Path:
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return path


def plugin(command: str, **more: object) -> ServerConfig:
    return ServerConfig.model_validate({"command": command, **more})


def test_a_file_adds_replaces_and_disables_servers_by_name(file: Path) -> None:
    write(file, math={"command": "mine"}, currency={"disabled": True}, time={"command": "clock"})
    config = load_config(file)
    for name in ("math", "currency", "research"):
        config = config.add_plugin_servers(name, {name: plugin(f"our-{name}")})
    commands = {name: server.command for name, server in config.servers.items()}
    assert commands == {"math": "mine", "research": "our-research", "time": "clock"}
    # Replaced and disabled servers still belong to the plugin.
    assert config.plugin_servers.keys() == {"math", "currency", "research"}


def test_an_entry_with_the_command_of_the_plugin_adds_to_its_server(file: Path) -> None:
    write(file, math={"command": "ours", "args": ["--b"], "env": {"X": "2"}})
    server = plugin("ours", args=["--a"], env={"X": "1", "Y": "1"})
    merged = load_config(file).add_plugin_servers("math", {"math": server}).servers["math"]
    assert merged.args == ["--a", "--b"]
    assert merged.env == {"X": "2", "Y": "1"}


def test_keys_of_other_mcp_clients_are_ignored(file: Path) -> None:
    entry = {"command": "clock", "type": "stdio", "autoApprove": [], "args": ["-v"], "cwd": "/"}
    server = load_config(write(file, time=entry)).servers["time"]
    assert (server.command, server.args, server.cwd) == ("clock", ["-v"], Path("/"))


def test_a_key_of_no_known_client_is_logged_with_its_line(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Editors of Windows begin a file with a byte order mark.
    file.write_bytes(b'\xef\xbb\xbf{"mcpServers": {"a": {"command": "x",\n"zzz": 1}}}')
    assert load_config(file).servers["a"].command == "x"
    (record,) = find_logged(caplog)
    assert record.message == "mcp_file.key_ignored"
    assert vars(record)["key"] == f"{file}, line 2: mcpServers.a.zzz"


def test_a_relative_cwd_starts_at_the_folder_of_the_file(file: Path) -> None:
    servers = load_config(
        write(file, a={"command": "x", "cwd": "tools"}, b={"command": "x", "cwd": ""})
    ).servers
    assert (servers["a"].cwd, servers["b"].cwd) == (file.parent / "tools", file.parent)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{\n", r"line 2: is not JSON: Expecting property"),
        ("\n", r"the file is empty"),
        ("[]", 'line 1: it must be an object with an object "mcpServers"'),
        ('{\n"mcpServers": []}', 'line 2: it must be an object with an object "mcpServers"'),
        ('{"servers": {}}', 'with an object "mcpServers"; it has: servers'),
        ('{"mcpServers": {"a": 1}}', r"mcpServers\.a: it must be an object"),
        (
            '{"mcpServers": {"…": {"command": "x"}}}',
            r"mcpServers\.…: .* set trunkline\.agent\.name",
        ),
        ('{"mcpServers": {\n"a": {"command": "x"},\n"a": {}}}', r"line 3: mcpServers\.a: .* twice"),
        (
            '{"mcpServers": {"a": {"command": "x",\n"arguments": []}}}',
            r'line 2: mcpServers\.a\.arguments: unknown key; do you mean "args"\?',
        ),
        (
            '{"mcpServers": {"a": {"command": "x", "trunkline": {"agent": {"name": "a b"}}}}}',
            r"mcpServers\.a\.trunkline\.agent\.name: it must be up to 63 letters",
        ),
        (
            '{"mcpServers": {"a": {"url": "ftp://x"}}}',
            r"mcpServers\.a\.url: it must start with http",
        ),
        (
            '{"mcpServers": {"a": {"command": "x", "trunkline": {"agent": {"tag": []}}}}}',
            r"trunkline\.agent\.tag: unknown key",
        ),
        ('{"mcpServers": {"a": {}}}', r'mcpServers\.a: give either "command" or "url"'),
        ('{"mcpServers": {"a": {"command": "x", "url": "http://x"}}}', r"mcpServers\.a: give ei"),
        ('{"mcpServers": {"a": {"type": "sse", "url": "http://x"}}}', r"mcpServers\.a: HTTP with"),
        ('{"mcpServers": {"a": {"command": "x", "args": "y"}}}', r"mcpServers\.a\.args: "),
        ('{"mcpServers": {"a": {"command": "x", "env": {"B": 1}}}}', r"mcpServers\.a\.env\.B: "),
        ('{"mcpServers": {"a": {"url": "http://x", "headers": {"B": 1}}}}', r"a\.headers\.B: "),
        (
            '{"mcpServers": {"a": {"command": "x", "trunkline": {"agnet": {}}}}}',
            r"mcpServers\.a\.trunkline\.agnet: unknown key",
        ),
        (
            '{"mcpServers": {"a": {"command": "x", "trunkline": {"call_timeout_s": -1}}}}',
            r"mcpServers\.a\.trunkline\.call_timeout_s: ",
        ),
        ("[" * 100_000, "nested deeper than 40 levels"),
    ],
)
def test_a_broken_file_is_refused_in_one_line_with_the_position(
    file: Path, text: str, problem: str
) -> None:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=problem) as caught:
        load_config(file)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"pattern": "("}, r"0\.pattern: not a regular expression of RE2: missing \)"),
        (
            {"pattern": "a{1001}"},
            r"0\.pattern: not a regular expression of RE2: invalid repetition size",
        ),
        ({"pattern": "a(?=b)"}, r"0\.pattern: .* RE2: invalid perl operator"),
        ({"pattern": "(a{1,100}){1,9}{1,9}"}, r"0\.pattern: .* RE2: "),
        ({"pattern": r"\pL{0,900}"}, r"0\.pattern: .* RE2: .* too large"),
        ({"pattern": "a", "require": {"0": "("}}, r"0\.require\.0: not a regular expression"),
        ({"pattern": "a" * 5000}, r"0\.pattern: String should have at most 4000 characters"),
        ({"pattern": 7}, r"0\.pattern: it must be a text"),
        ({}, r"0\.pattern: it is missing"),
        ({"pattern": "a", "anwser": "b"}, r"0\.anwser: unknown key"),
        ({"pattern": "a", "arguments": ["x"]}, r"0\.arguments: "),
        (
            {"pattern": "a", "arguments": {"x": {"form": "{1}"}}},
            r"0\.arguments: x\.form: unknown key",
        ),
        (
            {"pattern": "a", "arguments": {"x": ["1", {"y": "{1}"}]}},
            r"0\.arguments: x\.1\.y: unknown key",
        ),
        ({"pattern": "a", "arguments": {"x": {}}}, r"0\.arguments: x: give .from. or .default."),
        (
            {"pattern": "a", "arguments": {"x": {"from": "{1}", "map": 3}}},
            r"0\.arguments: x\.map: it must be an object",
        ),
        (
            {"pattern": "a", "arguments": {"x": {"from": "{1}", "type": "int"}}},
            r"0\.arguments: x\.type: Input should be 'string'",
        ),
        ({"pattern": "a", "exclude": {"x": "b"}}, r"0\.exclude: "),
        ("no object", r"0: "),
    ],
)
def test_an_invalid_match_is_reported_with_file_server_and_tool(
    file: Path, rule: object, problem: str
) -> None:
    write(file, time={"command": "x", "trunkline": {"tools": {"now": {"match": [rule]}}}})
    with pytest.raises(ConfigurationError, match=problem) as caught:
        load_config(file)
    assert str(caught.value).startswith(
        f"{file}, line 1: mcpServers.time.trunkline.tools.now.match.0"
    )
    assert "\n" not in str(caught.value)


def test_a_match_reaches_the_matcher_unchanged(file: Path) -> None:
    rule = {
        "pattern": "^in (?P<city>.+)$",
        "arguments": {
            "zone": {"from": "{city}", "map": {"tokyo": "Asia/Tokyo"}, "type": "string"},
            "n": {"default": 8},
            "text": "{1}",
            "many": [1, 2.5, True, None],
            "nothing": None,
            "yes": True,
        },
        "answer": "{datetime}",
    }
    write(file, time={"command": "x", "trunkline": {"tools": {"now": {"match": [rule]}}}})
    overlay = load_config(file).servers["time"].trunkline.tools["now"]
    assert overlay.dump_match() == [rule]


def test_a_missing_or_binary_file_is_refused(file: Path) -> None:
    with pytest.raises(ConfigurationError, match="can't be read: No such file"):
        load_config(file)
    file.write_bytes(b"{\n\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="line 2: is not UTF-8"):
        load_config(file)


def test_a_server_added_by_configuration_becomes_an_agent(file: Path) -> None:
    agent_table = {"tags": ["time", "timezone"], "examples": ["what time is it in Tokyo"]}
    write(file, time={"command": "clock", "trunkline": {"agent": agent_table}})
    (spec,) = agents_from_config(load_config(file))
    assert (spec.name, spec.servers) == ("time", ("time",))
    card = spec.build_card()
    assert card.name == "time"
    assert list(card.skills[0].tags) == ["time", "timezone"]
    assert list(card.skills[0].examples) == ["what time is it in Tokyo"]


def test_tags_default_to_those_of_the_tools(file: Path) -> None:
    tools = {"get_current_time": {"tags": ["clock"]}, "convert_time": {}}
    write(file, time={"command": "x", "trunkline": {"tools": tools}})
    (explicit,) = agents_from_config(load_config(file))
    assert explicit.tags == ("clock",)
    write(file, My_Time={"command": "x", "trunkline": {"tools": {"get_current_time": {}}}})
    (derived,) = agents_from_config(load_config(file))
    assert (derived.name, derived.tags) == ("my-time", ("my", "time", "current"))


def test_an_agent_can_be_renamed_or_disabled(file: Path) -> None:
    write(
        file,
        a={"command": "x", "trunkline": {"agent": {"name": "Clock_2.local"}}},
        b={"command": "x", "trunkline": {"agent": False}},
        math={"command": "mine"},
    )
    config = load_config(file).add_plugin_servers("math", {"math": plugin("ours")})
    assert [spec.name for spec in agents_from_config(config)] == ["Clock_2.local"]


@pytest.mark.parametrize("name", ["math", "a"])
def test_duplicate_agent_names_are_refused(file: Path, name: str) -> None:
    write(file, a={"command": "x"}, b={"command": "x", "trunkline": {"agent": {"name": name}}})
    config = load_config(file).add_plugin_servers("math", {"math": plugin("ours")})
    with pytest.raises(ConfigurationError, match=r"set agent\.name"):
        agents_from_config(config)
