"""The public MCP conformance suite: the tool adapter as a client, `serve mcp` as a server.

It takes minutes and runs only in `make prove`. What we don't pass, and why, is in
tests/harness/conformance/mcp_expected_failures.yaml.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.mesh.processes import read_line, running_mesh, running_process

ROOT = Path(__file__).resolve().parents[2]
PARTNERS = ROOT / ".venv-partners"
SUITE = PARTNERS / "js-mcp/node_modules/@modelcontextprotocol/conformance/dist/index.js"
EXPECTED_FAILURES = ROOT / "tests/harness/conformance/mcp_expected_failures.yaml"
# The suite starts all clients at once, and each loads the adapter.
SCENARIO_LIMIT_MS = "180000"
# Not `--requirements`: that ignores extensions and newer scenarios, whether they pass or fail.
VERSIONS = tuple(
    ("--suite", "all", "--spec-version", version)
    for version in ("2025-06-18", "2025-11-25", "2026-07-28")
)


async def check_suite(side: str, *words: str) -> None:
    """Run the suite, print its summary, and assert that nothing unexpected happened."""
    process = await asyncio.create_subprocess_exec(
        *(str(PARTNERS / "bin/node"), str(SUITE), side, *words),
        *("--expected-failures", str(EXPECTED_FAILURES), "--timeout", SCENARIO_LIMIT_MS),
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    text = output.decode()
    sys.stdout.write(text[text.rfind("SUMMARY") :])
    assert "SUMMARY" in text, text
    assert process.returncode == 0, text


@pytest.mark.parametrize("scenarios", [*VERSIONS, ("--suite", "extensions")], ids=" ".join)
async def test_the_tool_adapter_passes_the_scenarios_of_clients(scenarios: Sequence[str]) -> None:
    command = f"{sys.executable} -m harness.conformance.mcp_client"
    await check_suite("client", "--command", command, *scenarios)


@pytest.mark.parametrize("scenarios", [*VERSIONS, ("--suite", "all")], ids=" ".join)
async def test_agents_as_tools_pass_the_scenarios_of_servers(
    tmp_path: Path, scenarios: Sequence[str]
) -> None:
    command = (sys.executable, "-m", "trunkline.cli", "serve", "mcp", "--http", "127.0.0.1:0")
    async with (
        running_mesh(
            *(tmp_path, "--agent", "harness.conformance.suite_agents:ask_back"),
            environment={"PYTHONPATH": str(ROOT / "tests")},
        ) as mesh,
        running_process(
            *command, "--url", mesh.http_url, "--mesh", mesh.mesh_address, cwd=tmp_path
        ) as server,
    ):
        url = (await read_line(server, "ready "))["mcp"]
        await check_suite("server", "--url", url, *scenarios)
