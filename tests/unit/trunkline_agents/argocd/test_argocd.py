"""The Argo CD tools with a fake Argo CD on a real socket, and their question patterns."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult

from harness.remote.argocd_server import TOKEN, ArgoCDServer, argocd_server
from harness.remote.certificates import self_signed
from trunkline.core.settings import load_settings
from trunkline.errors import ConfigurationError
from trunkline.processes.tools import load_mcp_config
from trunkline.rules.tool_patterns import match_tools
from trunkline.tools.config import McpConfig, agents_from_config
from trunkline_agents.argocd import patterns
from trunkline_agents.argocd.applications import abbreviate_revision, list_changes, parse_history
from trunkline_agents.argocd.client import ArgoCDClient
from trunkline_agents.argocd.server import ArgoCDTools
from trunkline_agents.mcp_server import MENDABLE_KEY, match_whole

DECLARED = {
    "version": match_whole(patterns.VERSION),
    "list": match_whole(patterns.LIST),
    "get": match_whole(patterns.GET),
    "health": match_whole(patterns.HEALTH),
    "history": match_whole(patterns.HISTORY),
    "diff": match_whole(patterns.DIFF),
    "sync": match_whole(patterns.SYNC),
}


@pytest.fixture
def argocd() -> Iterator[ArgoCDServer]:
    with argocd_server() as server:
        yield server


def make_tools(server: ArgoCDServer, token: str = TOKEN, **options: Any) -> ArgoCDTools:
    return ArgoCDTools(ArgoCDClient(server.url, token=token, **options))


def get_text(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def is_mendable(result: CallToolResult) -> bool:
    assert result.is_error
    return bool((result.meta or {})[MENDABLE_KEY])


async def test_the_version_is_reported_also_without_a_token(argocd: ArgoCDServer) -> None:
    assert get_text(await make_tools(argocd).version()) == (
        "Argo CD v3.2.1+8c4ab63 (built 2026-01-30T17:48:12Z, linux/amd64, Kustomize v5.7.0, "
        "Helm v3.18.4+gd80839c, Kubectl v0.34.0)."
    )
    assert get_text(await make_tools(argocd, token="").version()) == "Argo CD v3.2.1+8c4ab63."


async def test_applications_are_listed_and_filtered(argocd: ArgoCDServer) -> None:
    tools = make_tools(argocd)
    everything = await tools.list_applications()
    assert get_text(everything) == (
        "2 applications:\n"
        "- guestbook: Synced, Healthy (project default, 53e28ff20cc5)\n"
        "- shop: OutOfSync, Degraded (project default, 53e28ff20cc5)"
    )
    for state in ("OutOfSync", "Unhealthy", "Degraded"):
        result = await tools.list_applications(state=state)
        assert get_text(result).splitlines()[1:] == [
            "- shop: OutOfSync, Degraded (project default, 53e28ff20cc5)"
        ]
    empty = await tools.list_applications(project="other")
    assert get_text(empty) == "No application in project other is there."


async def test_one_application_is_shown_with_its_problems(argocd: ArgoCDServer) -> None:
    tools = make_tools(argocd)
    description = get_text(await tools.get_application("Shop"))
    assert "source: https://git.example/apps.git shop HEAD" in description
    assert "last operation: Succeeded, successfully synced" in description
    health = await tools.application_health("shop")
    assert get_text(health).splitlines()[0] == "shop is Degraded and OutOfSync."
    assert "- Deployment shop-ui: Degraded, OutOfSync, 2 of 3 ready" in get_text(health)
    history = get_text(await tools.application_history("guestbook"))
    assert history.splitlines() == [
        "guestbook was deployed:",
        "- 2026-02-02T03:04:05Z: 53e28ff20cc5 (id 1, by automated)",
        "- 2026-01-02T03:04:05Z: aaaaaaaaaaaa (id 0, by ada)",
    ]


async def test_a_diff_is_what_a_sync_would_change(argocd: ArgoCDServer) -> None:
    tools = make_tools(argocd)
    unchanged = await tools.application_diff("guestbook")
    assert get_text(unchanged) == "A sync of guestbook would change nothing."
    diff = get_text(await tools.application_diff("shop"))
    assert "change Deployment shop-ui in shop" in diff
    assert '-    "replicas": 1' in diff
    assert '+    "replicas": 3' in diff
    assert "create ConfigMap new in shop" in diff


async def test_a_sync_starts_with_the_requested_options(argocd: ArgoCDServer) -> None:
    tools = make_tools(argocd)
    result = await tools.sync_application("team/shop", revision="v2", prune=True)
    assert get_text(result).startswith("The sync of team/shop to v2 has begun.")
    assert argocd.synced == [
        {"name": "shop", "prune": True, "dryRun": False, "appNamespace": "team", "revision": "v2"}
    ]
    argocd.running.add("shop")
    refused = await tools.sync_application("shop")
    assert is_mendable(refused)
    assert "another operation is already in progress" in get_text(refused)


async def test_an_invalid_name_is_refused_without_a_request(argocd: ArgoCDServer) -> None:
    for name in ("", "../version", "a b", "a/b/c", "x" * 300, "-a", "a?b=c"):
        assert is_mendable(await make_tools(argocd).get_application(name)), name
    assert argocd.requests == []


async def test_a_refused_request_says_what_to_do(argocd: ArgoCDServer) -> None:
    unknown = await make_tools(argocd).application_health("nothing")
    assert is_mendable(unknown)
    assert "Argo CD has no application nothing" in get_text(unknown)
    for token, problem in (("", "is missing"), ("wrong", "is wrong or has expired")):
        result = await make_tools(argocd, token).list_applications()
        assert not is_mendable(result)
        assert f"the token {problem}: set what [argocd] token_env names" in get_text(result)
    result = await ArgoCDTools(ArgoCDClient("http://127.0.0.1:9")).version()
    assert "check [argocd] url" in get_text(result)


async def test_certificates_are_verified(tmp_path: Path) -> None:
    _, certificate = self_signed(tmp_path, "localhost")
    with argocd_server(certificate=certificate, key=tmp_path / "key.pem") as server:
        untrusted = await make_tools(server).version()
        assert "its certificate is not trusted; name its authority" in get_text(untrusted)
        assert server.requests == []
        trusted = await make_tools(server, ca_file=certificate).version()
        assert "v3.2.1" in get_text(trusted)


@pytest.mark.parametrize(
    ("question", "tool", "arguments"),
    [
        ("show argocd version", "version", {}),
        ("version", "version", {}),
        ("list argocd applications", "list", {}),
        ("which apps are out of sync?", "list", {"state": "OutOfSync"}),
        ("show all unhealthy applications", "list", {"state": "Unhealthy"}),
        ("list apps in project payments", "list", {"project": "payments"}),
        ("show app guestbook", "get", {"application": "guestbook"}),
        ("status of shop", "health", {"application": "shop"}),
        ("show the history of app guestbook", "history", {"application": "guestbook"}),
        ("diff of app guestbook", "diff", {"application": "guestbook"}),
        ("sync app guestbook", "sync", {"application": "guestbook", "revision": ""}),
        ("please sync shop to v1.2", "sync", {"application": "shop", "revision": "v1.2"}),
    ],
)
def test_a_question_is_matched_to_a_tool_call(
    question: str, tool: str, arguments: dict[str, Any]
) -> None:
    (match,) = match_tools(question, DECLARED)
    assert (match.tool, match.arguments) == (tool, arguments)


@pytest.mark.parametrize(
    "question",
    ["sync everything and delete the cluster", "what is 1+2", "don't sync shop", "tell me a joke"],
)
def test_an_unclear_request_syncs_nothing(question: str) -> None:
    assert all(match.tool != "sync" for match in match_tools(question, DECLARED))


def load(folder: Path, toml: str, *, mcp: str = '{"mcpServers": {}}') -> McpConfig:
    (folder / "trunkline.toml").write_text(f'mcp_file = "mcp.json"\n{toml}')
    (folder / "mcp.json").write_text(mcp)
    return load_mcp_config(load_settings(folder=folder, environment={}))


def test_the_server_is_configured_if_settings_have_the_url(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "argocd" not in load(tmp_path, "").servers
    toml = '[argocd]\nurl = "https://argocd.example"\nca_file = "ca.pem"\n'
    monkeypatch.setenv("ARGOCD_AUTH_TOKEN", "secret")
    config = load(tmp_path, toml)
    assert config.servers["argocd"].args == [
        "--url=https://argocd.example",
        f"--ca-file={tmp_path / 'ca.pem'}",
    ]
    assert "secret" not in str(config.servers["argocd"].model_dump())
    assert config.plugin_servers["argocd"] == "argocd"
    # A server that the operator configured replaces it, and gets an agent like any other.
    own = load(tmp_path, toml, mcp='{"mcpServers": {"argocd": {"command": "mcp-argocd"}}}')
    assert own.servers["argocd"].command == "mcp-argocd"
    assert "argocd" not in own.plugin_servers
    assert [spec.name for spec in agents_from_config(own)] == ["argocd"]


def test_a_url_without_tls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not https"):
        load(tmp_path, '[argocd]\nurl = "http://argocd.example"\n')


def test_incomplete_objects_are_no_error() -> None:
    assert parse_history({}) == []
    assert parse_history({"status": {"history": [None, {"id": None}]}})[0]["id"] == 0
    odd: list[dict[str, Any]] = [{"targetState": "{", "liveState": 3}, {"hook": True}, {}]
    assert list(list_changes(odd)) == []
    assert abbreviate_revision("1.2.3") == "1.2.3"
