"""The command line starts quickly, because it loads only what a command needs."""

import subprocess
import sys

from harness.mesh.command_line import run_in_process

HEAVY = (
    "asyncio", "cryptography", "google.protobuf", "grpc", "httpx2", "langgraph", "mcp",
    "opentelemetry", "rich", "starlette",
)  # fmt: skip
PROBE = """
import sys
from trunkline.cli import main
for words in {commands!r}:
    sys.argv[1:] = words
    try:
        main()
    except SystemExit:
        pass
print("loaded", *(name for name in {heavy!r} if name in sys.modules))
"""
COMMANDS = {
    "up", "ask", "chat", "demo", "agents", "tools", "tasks", "task", "cancel", "trace",
    "approvals", "approve", "reject", "trust",
}  # fmt: skip


def run(*words: str) -> str:
    return run_in_process(*words).out


def test_help_and_version_import_no_heavy_libraries() -> None:
    commands = [["--help"], ["--version"], ["ask", "--help"], []]
    code = PROBE.format(heavy=HEAVY, commands=commands)
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "trunkline 0." in process.stdout
    assert process.stdout.splitlines()[-1] == "loaded"


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


def test_every_command_can_print_json() -> None:
    assert [command for command in COMMANDS if "--json" not in run(command, "--help")] == []


def test_help_names_every_bundled_agent() -> None:
    named = set(run("serve", "agents", "--help").replace(",", " ").split())
    assert named >= {"supervisor", "echo", "math", "currency", "research", "argocd"}


def test_help_of_webhooks_names_every_subcommand() -> None:
    output = run("webhooks", "--help")
    assert {"list", "show", "replay", "secret"} <= set(output.split())
    assert "--state STATE" in run("webhooks", "list", "--help")
