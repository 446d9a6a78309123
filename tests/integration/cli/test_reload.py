"""`trunkline up --reload` starts the mesh again when the code of its agents changes."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from harness.mcp.bundled_servers import only_servers
from harness.mesh.command_line import LIMIT_S, start_command
from harness.mesh.processes import free_address
from trunkline import Client
from trunkline.a2a_client.answers import TextChunk
from trunkline.cli.exits import ExitCode
from trunkline.cli.reload import find_folders, read_versions

AGENT = """
from trunkline import agent

@agent(tags=["greet"])
async def hello(task):
    '''Greets.'''
    return "{}"
"""


def write(path: Path, text: str) -> None:
    """Replace a file at once, as editors do."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


async def ask(
    url: str, text: str = "hi", *, agent: str = "hello", began: asyncio.Event | None = None
) -> str:
    """Return the text of an agent's answer. Sets the event at its first text."""
    async with Client(url, agent=agent) as client:
        stream = client.stream(text)
        async for event in stream:
            if isinstance(event, TextChunk) and began is not None:
                began.set()
    return stream.answer.text


async def read_until(stream: asyncio.StreamReader, text: bytes) -> bytes:
    """Return the first line with a text."""
    while text not in (line := await stream.readline()):
        assert line, f"ended without {text!r}"
    return line


async def test_a_change_of_an_agent_restarts_the_mesh(tmp_path: Path) -> None:
    write(tmp_path / "greeter.py", AGENT.format("one"))
    address = free_address()
    flags = ("--http", address, "--mesh", "127.0.0.1:0", "--a2a-grpc", "127.0.0.1:0")
    command = start_command(
        *("up", "--reload", "--agent", "greeter:hello", *flags),
        folder=tmp_path,
        TRUNKLINE_MCP_FILE=only_servers(tmp_path)["TRUNKLINE_MCP_FILE"],
        TRUNKLINE_LOG_FORMAT="json",
    )
    began = asyncio.Event()
    async with command as mesh, asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        await read_until(mesh.stdout, b"ready ")
        assert await ask(f"http://{address}") == "one"
        # It takes longer than a running task has to end, and continues in the next mesh.
        count = ask(f"http://{address}", "count 30 100", agent="echo", began=began)
        counting = group.create_task(count)
        await began.wait()
        write(tmp_path / "greeter.py", "def broken(\n")
        changed = json.loads(await read_until(mesh.stderr, b"reload.changed"))
        assert changed["file"].endswith("greeter.py")
        ended = json.loads(await read_until(mesh.stderr, b"reload.mesh_ended"))
        assert ended["exit_code"] == ExitCode.USAGE
        write(tmp_path / "greeter.py", AGENT.format("two"))
        await read_until(mesh.stdout, b"ready ")
        assert await ask(f"http://{address}") == "two"
        assert (await counting).split() == [str(number) for number in range(1, 31)]
        mesh.send_signal(signal.SIGTERM)
        assert await mesh.wait() == 0


async def test_files_are_found_without_importing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "pack"
    for folder in (package / "inner", package / "__pycache__", package / ".venv"):
        folder.mkdir(parents=True)
        (folder / "x.py").write_text("raise SystemExit")
    (package / "__init__.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    (found,) = find_folders(["pack.inner.x:agent", "no_such_module:agent"])
    assert found == package
    settings = tmp_path / "trunkline.toml"
    versions = read_versions([package], [settings])
    assert set(versions) == {package / "__init__.py", package / "inner" / "x.py"}
    settings.write_text("")
    os.utime(package / "__init__.py", ns=(1, 1))
    assert read_versions([package], [settings])[package / "__init__.py"] == 1
    assert settings in read_versions([package], [settings])
