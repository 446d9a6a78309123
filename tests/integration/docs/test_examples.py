"""The examples, each started and asked by the commands of its documentation."""

import asyncio
import json
import os
import re
import shlex
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from harness.mcp.bundled_servers import only_servers
from harness.mesh.command_line import LIMIT_S, run_command
from harness.mesh.processes import (
    MeshProcess,
    free_address,
    read_line,
    running_mesh,
    running_process,
)
from harness.remote.model_server import ModelServer, call, model_server, say

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXAMPLES = Path(__file__).parents[3] / "examples"

# Examples whose docstring is a transcript of commands and all that they print.
TRANSCRIPTS = ("dinner", "helpdesk", "notes", "order", "pay", "remote", "review", "weather")
_SHOWN_COMMAND = re.compile(r"^ {4}\$ (.+)\n((?:\n? {4}(?!\$).+\n)*)", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\b(TASK|OTHER)\b")


def transcript(example: str) -> list[tuple[str, str]]:
    """Return the commands in an example's docstring, each with the output shown below it."""
    text = (EXAMPLES / f"{example}.py").read_text(encoding="utf-8").split('"""')[1]
    return [(command, textwrap.dedent(out)) for command, out in _SHOWN_COMMAND.findall(text)]


def agents_of(example: str) -> list[str]:
    """Return the agents of the command that starts an example."""
    (start,) = [command for command, _ in transcript(example) if "trunkline up " in command]
    return [word for flag, word in pairwise(shlex.split(start)) if flag == "--agent"]


def stock_server() -> dict[str, Any]:
    """Return the server of stock.json, which starts in the folder of that file."""
    servers = json.loads((EXAMPLES / "stock.json").read_text(encoding="utf-8"))["mcpServers"]
    return {name: {"cwd": str(EXAMPLES), **entry} for name, entry in servers.items()}


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with model_server() as running:
        yield running


@pytest.fixture(scope="module")
def mesh_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(mesh_folder: Path, model: ModelServer) -> AsyncIterator[MeshProcess]:
    """All examples in the mesh's process, except `countdown`, which has its own."""
    environment = {
        "PYTHONPATH": str(EXAMPLES),
        "TRUNKLINE_AGENT_REPORT_ROW_LIMIT": "2",
        # `python` in stock.json is the one of this environment.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        **model.environment,
        **only_servers(mesh_folder, "research", own=stock_server()),
    }
    agents = [
        "release:release",
        "report.agent:report",
    ]
    agents += [agent for example in TRANSCRIPTS for agent in agents_of(example)]
    flags = [word for agent in agents for word in ("--agent", agent)]
    sdk_url = f"http://{free_address()}"
    environment["REMOTE_URL"] = sdk_url
    sdk_agent = (sys.executable, str(EXAMPLES / "sdk_agent.py"), sdk_url.rpartition(":")[2])
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running_process(*sdk_agent, cwd=mesh_folder))
        await wait_until_found(f"{sdk_url}/.well-known/agent-card.json")
        mesh = await stack.enter_async_context(
            running_mesh(mesh_folder, *flags, servers=None, environment=environment)
        )
        command = (sys.executable, str(EXAMPLES / "countdown.py"), "--mesh", mesh.mesh_address)
        countdown = await stack.enter_async_context(running_process(*command, cwd=mesh_folder))
        assert (await read_line(countdown, "ready "))["agent"] == "countdown"
        # The bridge serves an agent a moment after the registry lists it.
        for agent in ("countdown", "remote"):
            await wait_until_found(f"{mesh.http_url}/agents/{agent}/.well-known/agent-card.json")
        yield mesh


async def wait_until_found(url: str) -> None:
    """Poll until a server runs and has what is at the URL."""
    async with (
        asyncio.timeout(LIMIT_S),
        httpx2.AsyncClient(trust_env=False, timeout=LIMIT_S) as client,
    ):
        while True:
            with suppress(httpx2.ConnectError):
                if (await client.get(url)).status_code == HTTPStatus.OK:
                    return
            await asyncio.sleep(0.05)


async def ask(mesh: MeshProcess, agent: str, text: str, *more: str) -> tuple[str, str]:
    result = await run_command("ask", text, "--agent", agent, "--url", mesh.http_url, *more)
    return result.out, result.err


@pytest.mark.parametrize("example", TRANSCRIPTS)
async def test_the_commands_of_an_example_print_what_it_shows(
    mesh: MeshProcess, mesh_folder: Path, model: ModelServer, example: str
) -> None:
    model.script(call("temperature", city="Oslo"), say("Yes, it is 4 °C in Oslo."))
    variables = {
        "TRUNKLINE_URL": mesh.http_url,
        "TRUNKLINE_MESH": mesh.mesh_address,
        "TRUNKLINE_DATA_DIR": str(mesh_folder / "data"),
    }
    found: dict[str, str] = {}  # the ids that the placeholders of the text stand for
    commands = transcript(example)
    starts = [number for number, (command, _) in enumerate(commands) if " up " in command]
    for command, shown in commands[starts[0] + 1 :]:
        name, *words = shlex.split(fill(command, found))
        assert name == "trunkline"
        result = await run_command(*words, folder=EXAMPLES, **variables)
        pattern = _PLACEHOLDER.sub(r"(?P<\1>[\\w-]+)", re.escape(fill(shown, found)))
        match = re.fullmatch(pattern, result.out)
        assert match is not None, f"{command}: {result}"
        found |= match.groupdict()


def fill(text: str, found: dict[str, str]) -> str:
    """Put the ids that are known in place of their placeholders."""
    return _PLACEHOLDER.sub(lambda match: found.get(match[0], match[0]), text)


async def test_the_model_gets_the_result_of_its_tool(mesh: MeshProcess, model: ModelServer) -> None:
    model.script(call("temperature", city="Rome"), say("No, it is warm."))
    assert (await ask(mesh, "weather", "a coat in Rome?"))[0] == "No, it is warm.\n"
    assert model.requests[-1].messages[-1]["content"] == "19 °C"


async def test_the_countdown_streams(mesh: MeshProcess) -> None:
    assert (await ask(mesh, "countdown", "from 3"))[0] == "3 2 1 liftoff!\n"


async def test_a_dinner_without_a_recipe_says_why(mesh: MeshProcess) -> None:
    out, _ = await ask(mesh, "dinner", "stones for 2")
    assert out == "stones for 2: no dinner, because I know recipes for pancakes only.\n"


async def test_a_release_waits_for_approval(mesh: MeshProcess) -> None:
    out, _ = await ask(mesh, "release", "which versions?")
    assert out == "1.0, 1.1\n"
    out, err = await ask(mesh, "release", "deploy 1.2")
    assert 'deploy with {"version": "1.2"} needs your approval' in out + err
    match = re.search(r"\(([\w.-]+)\.1\)", out + err)
    assert match is not None
    assert (await ask(mesh, "release", "approve", "--task", match[1]))[0] == "1.2 is deployed.\n"
    assert (await ask(mesh, "release", "which versions?"))[0] == "1.0, 1.1, 1.2\n"


async def test_a_report_is_made_from_a_file(mesh: MeshProcess) -> None:
    # The command is in the agent's docstring.
    source = (EXAMPLES / "report" / "agent.py").read_text(encoding="utf-8")
    match = re.search(r"-d \\\n\s*'(\{.*?\})'\n", source, re.DOTALL)
    assert match is not None
    async with asyncio.timeout(LIMIT_S):
        process = await asyncio.create_subprocess_exec(
            "curl", "-sS", f"{mesh.http_url}/agents/report/message:send",
            "-H", "Content-Type: application/json", "-d", match[1],
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
    assert b"a: 4\\nb: 6\\n" in out
    assert b"sums.json" in out


async def test_the_tests_of_the_tested_example_pass() -> None:
    command = (sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider")
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    async with running_process(
        *command, "--rootdir=.", "report", cwd=EXAMPLES, environment=environment
    ) as tests:
        assert tests.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            output = (await tests.stdout.read()).decode()
            assert await tests.wait() == 0, output
    assert "3 passed" in output
