"""The command line starts quickly, because it loads only what a command needs."""

import subprocess
import sys

import pytest

from harness.mesh.command_line import run_in_process

HEAVY = (
    "asyncio", "cryptography", "google.protobuf", "grpc", "httpx2", "langgraph", "mcp",
    "opentelemetry", "rich", "starlette",
)  # fmt: skip
PROBE = """
import sys
from trunkline.cli import main
try:
    main()
except SystemExit as end:
    loaded = [name for name in {heavy!r} if name in sys.modules]
    print("loaded", end.code, *loaded)
"""
COMMANDS = {
    "up", "ask", "chat", "demo", "agents", "tools", "tasks", "task", "cancel", "trace",
    "approvals", "approve", "reject", "trust",
}  # fmt: skip


def run(*words: str) -> str:
    return run_in_process(*words).out


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("ask", "--help"), ()])
def test_help_and_version_import_no_heavy_libraries(words: tuple[str, ...]) -> None:
    code = PROBE.format(heavy=HEAVY)
    process = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    output = process.stdout.splitlines()
    assert output[-1].split()[:1] == ["loaded"]
    assert output[-1].split()[2:] == []


def test_a_question_starts_a_mesh_before_it_loads_its_client() -> None:
    client = ("cryptography", "google.protobuf", "grpc", "httpx2", "trunkline_bridge")
    probe = (
        "import sys, trunkline.cli.attachments, trunkline.cli.ephemeral_mesh; "
        "print([name for name in {!r} if name in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", probe.format(client)], check=True, capture_output=True
    )
    assert loaded.stdout.strip() == b"[]"


def test_help_names_every_command() -> None:
    named = {line.split()[0] for line in run("--help").splitlines() if line.startswith("  ")}
    assert named >= COMMANDS | {"serve", "join", "webhooks", "keys", "card", "data", "docs"}


def test_commands_of_packages_have_no_options_for_completion() -> None:
    output = run("docs", "--help")
    assert "search" in output
    assert "completion" not in output


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_can_print_json(command: str) -> None:
    assert "--json" in run(command, "--help")


def test_help_names_every_bundled_agent() -> None:
    named = set(run("serve", "agents", "--help").replace(",", " ").split())
    assert named >= {"supervisor", "echo", "math", "currency", "research", "argocd"}


def test_help_of_webhooks_names_every_subcommand() -> None:
    output = run("webhooks", "--help")
    assert {"list", "show", "replay", "secret"} <= set(output.split())
    assert "--state STATE" in run("webhooks", "list", "--help")


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").startswith("trunkline 0.")
