"""Invalid input, MCP servers, files and proxies get a clear error, and the mesh still works."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
import pytest_asyncio

from harness.mcp.scripted_servers import AWKWARD
from harness.mesh.command_line import run_command
from harness.mesh.processes import MeshProcess, running_mesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT_S = 300.0
DEAD_PROXY = "http://127.0.0.1:9"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")

# Questions that are refused, and the text of the refusal.
HOSTILE = [
    ("9**9**9**9", "too large"),
    ("what is factorial(10**9)", "too large"),
    ("what is " + "1+" * 500_000 + "1", "at most 2000"),
    ("100 ZZZ to EUR", "'ZZZ' is not a currency"),
    ("100 USD to EUR on 1950-01-01", "Choose a date from 1999-01-04"),
    ("1/0", "divides by zero"),
    ("__import__('os').system('id')", "no agent's tags or examples match"),
    ("().__class__", "no agent's tags or examples match"),
]
AT_MATH = [
    "__import__('os').system('id')",
    "what is __import__('os').system('id')",
    "what is ().__class__",
    "what is (1).real",
    "what is 'a'*3",
    "solve x.__class__ = 0",
]


def server(*command: str, **rules: Any) -> dict[str, Any]:
    agent = {"description": "A server that misbehaves.", "tags": []}
    return {
        "command": command[0],
        "args": list(command[1:]),
        "trunkline": {"approval": "never", "agent": agent, "tools": rules},
    }


def bad_servers() -> dict[str, Any]:
    die = {"match": [{"pattern": "^die (?P<code>[0-9]+)$", "arguments": {"code": "{code}"}}]}
    return {
        "missing": server("no-such-command-here"),
        "dies": server(sys.executable, "-c", "raise SystemExit(3)"),
        "hangs": server(sys.executable, "-c", "import signal; signal.pause()"),
        "garbage": server(
            sys.executable, "-c", "while True: print('no JSON at all ' * 100, flush=True)"
        ),
        "awkward": server(sys.executable, AWKWARD, die=die),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MeshProcess]:
    """A mesh with every kind of bad MCP server, in an environment whose proxies are dead."""
    folder = tmp_path_factory.mktemp("mesh")
    (folder / "tools.json").write_text(json.dumps({"mcpServers": bad_servers()}))
    environment = dict.fromkeys(PROXIES, DEAD_PROXY)
    flags = ("--mcp", str(folder / "tools.json"))
    async with running_mesh(folder, *flags, environment=environment) as running:
        yield running


async def post(mesh: MeshProcess, body: bytes, *, path: str = "/") -> httpx2.Response:
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    async with httpx2.AsyncClient(trust_env=False, timeout=LIMIT_S, headers=headers) as client:
        return await client.post(mesh.http_url + path, content=body)


async def say(mesh: MeshProcess, text: str, *, path: str = "/") -> tuple[str, str]:
    """Send a message; return the task's state and the text that comes with it."""
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    task = (await post(mesh, json.dumps(request).encode(), path=path)).json()["result"]["task"]
    status = task["status"]
    if "message" in status:
        return status["state"], text_of(status["message"])
    # The last update may be an empty artifact, which only marks the answer as complete.
    return status["state"], [text for each in task["artifacts"] if (text := text_of(each))][-1]


def text_of(holder: dict[str, Any]) -> str:
    return "".join(part["text"] for part in holder["parts"])


async def test_hostile_and_impossible_questions_are_refused_with_the_reason(
    mesh: MeshProcess,
) -> None:
    # At the same time, because some of them wait for the tool server that never answers.
    async with asyncio.TaskGroup() as group:
        answers = {
            question: group.create_task(say(mesh, question)) for question, _problem in HOSTILE
        }
    for question, problem in HOSTILE:
        state, text = answers[question].result()
        assert state in {"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_FAILED"}, question
        assert problem in text
        assert "Traceback" not in text
    assert await say(mesh, "what is 1+2") == ("TASK_STATE_COMPLETED", "3")


@pytest.mark.parametrize("question", AT_MATH)
async def test_python_never_reaches_the_math_engine(mesh: MeshProcess, question: str) -> None:
    state, text = await say(mesh, question, path="/agents/math")
    assert state in {"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_FAILED"}
    assert "uid=" not in text
    assert "<class" not in text


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing", "'no-such-command-here' is not on PATH"),
        ("dies", "exited with code 3"),
        ("garbage", "no MCP message on stdout"),
    ],
)
async def test_an_mcp_server_that_cannot_be_used_is_named_with_the_reason(
    mesh: MeshProcess, name: str, problem: str
) -> None:
    state, text = await say(mesh, "hello", path=f"/agents/{name}")
    assert state == "TASK_STATE_FAILED"
    assert f"tool server '{name}' is down" in text
    assert problem in text


async def test_a_server_that_dies_in_a_call_fails_that_call_and_serves_the_next(
    mesh: MeshProcess,
) -> None:
    state, text = await say(mesh, "die 3", path="/agents/awkward")
    assert state == "TASK_STATE_FAILED"
    assert "awkward/die failed" in text
    assert "exited with code 3 during the call" in text
    answered = await say(mesh, "repeat after me", path="/agents/awkward")
    assert answered == ("TASK_STATE_COMPLETED", "after me")


async def up(folder: Path, *flags: str) -> tuple[int | None, str, str]:
    """Run `trunkline up` where it can't start."""
    addresses = ("--mesh", "127.0.0.1:0", "--a2a-grpc", "127.0.0.1:0")
    done = await run_command("up", *addresses, *flags, folder=folder)
    return done.exit, done.out, done.err


async def test_an_invalid_data_directory_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    code, out, err = await up(tmp_path, "--http", "127.0.0.1:0", "--data", "data")
    assert code != 0
    assert not out
    assert err.startswith("error: data directory data: ")
    assert "--data" in err
    assert err.count("\n") == 1


async def test_a_broken_mcp_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text("{\nnot json")
    code, out, err = await up(tmp_path, "--http", "127.0.0.1:0", "--mcp", "tools.json")
    assert code != 0
    assert not out
    assert err.startswith("error: tools.json, line 2: is not JSON: ")
    assert err.count("\n") == 1
