"""The environment of the processes of MCP servers."""

import os
from typing import Any

import pytest

from trunkline.tools.config import ServerConfig
from trunkline.tools.server_process import build_environment

SERVER = ServerConfig(command="mcp-server")


def test_the_entrys_environment_wins_and_other_variables_are_not_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("SECRET_TOKEN", "made up")
    monkeypatch.setenv("LANG", "C")
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("HOME", "/home")
    environment = build_environment(
        SERVER, {"OTEL_SERVICE_NAME": "mine", "PATH": "/bin"}, {"OTEL_SERVICE_NAME": "mcp-a"}
    )
    assert environment == {
        "LANG": "C",
        "LC_ALL": "C",
        "HOME": "/home",
        "PATH": "/bin",
        "OTEL_SERVICE_NAME": "mine",
        "PYTHONSAFEPATH": "1",
    }


@pytest.mark.parametrize(
    ("entry", "is_safe"),
    [
        ({"command": "python", "args": ["-m", "mcp_server_time"]}, True),
        ({"command": "python", "args": ["-m", "server", "notes.py"]}, True),
        ({"command": "python", "args": ["-mserver"]}, True),
        ({"command": "python", "args": ["-um", "server", "notes.py"]}, True),
        ({"command": "python", "args": ["-Bc", "import server", "notes.py"]}, True),
        ({"command": "python", "args": ["-Wignore::m", "server.py"]}, False),
        ({"command": "uvx", "args": ["mcp-server-time"]}, True),
        # Each names the folder that is searched.
        ({"command": "python", "args": ["server.py"]}, False),
        ({"command": "python", "args": ["-u", "/srv/server.py", "-c", "server.toml"]}, False),
        ({"command": "python", "args": ["-m", "server"], "cwd": "/srv"}, False),
    ],
)
def test_a_servers_python_searches_the_current_folder_only_if_the_entry_names_it(
    entry: dict[str, Any], is_safe: bool
) -> None:
    environment = build_environment(ServerConfig.model_validate(entry), {}, {})
    assert environment.get("PYTHONSAFEPATH") == ("1" if is_safe else None)


def test_an_entry_may_let_python_search_the_current_folder() -> None:
    assert build_environment(SERVER, {"PYTHONSAFEPATH": ""}, {})["PYTHONSAFEPATH"] == ""
