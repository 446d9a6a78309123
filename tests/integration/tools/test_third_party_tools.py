"""Third-party MCP servers behind agents that exist by configuration alone.

time and git (PyPI), everything (over stdio and over HTTP), filesystem and memory (npm).
"""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from harness.a2a.sdk_processes import make_environment
from harness.mcp.bundled_servers import only_servers
from harness.mcp.scripted_servers import collect_responses
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import free_address, running_mesh, running_process
from harness.mesh.small_mesh import PATIENCE_S, SmallMesh
from trunkline.core.json_values import update_struct
from trunkline.errors import ToolNotFoundError
from trunkline.mesh.client import ChannelPool
from trunkline.mesh.client.artifacts import ArtifactClient, parse_reference
from trunkline.mesh.client.services import ToolClient
from trunkline.tasks.lifecycle import State
from trunkline.v1 import part_pb2, snapshot_pb2, tool_service_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")

_ROOT = Path(__file__).parents[3]
NODE = str(_ROOT / ".venv-partners/bin/node")
_SERVERS = _ROOT / ".venv-partners/js-mcp/node_modules/.bin"
READY = tool_service_pb2.TOOL_SERVER_STATE_READY
PNG = b"\x89PNG\r\n\x1a\n" + os.urandom(200_000)
BIG = "".join(f"line {n}\n" for n in range(200_000))
SETTINGS = """
mcp_file = "mcp.json"
[agent.files]
deny_tools = ["write_*", "files/edit_file", "move_file"]
[agent.git]
allow_tools = ["git_log", "git/git_status"]
"""


def npm(name: str, *arguments: str, **more: object) -> dict[str, Any]:
    command = {"command": NODE, "args": [str(_SERVERS / f"mcp-server-{name}"), *arguments]}
    return {**command, **more}


def rules(**by_tool: object) -> dict[str, Any]:
    """Return the built-in model's patterns by tool; `_` in a tool's name stands for `-`."""
    return {name: {"match": [rule]} for name, rule in by_tool.items()}


def entries(folder: Path, port: str) -> dict[str, Any]:
    number = {"from": "{1}", "type": "integer"}
    everything = {
        "echo": {"match": [{"pattern": "^shout (.+)$", "arguments": {"message": "{1}"}}]},
        "get-tiny-image": {"match": [{"pattern": "picture"}]},
        "get-resource-links": {
            "match": [{"pattern": r"^(\d+) links$", "arguments": {"count": number}}]
        },
        "get-structured-content": {
            "match": [
                {
                    "pattern": "weather in (.+)",
                    "arguments": {"location": "{1}"},
                    "answer": "{temperature} degrees, {conditions}",
                }
            ]
        },
        "trigger-long-running-operation": {
            "match": [
                {"pattern": r"take (\d+) s", "arguments": {"duration": number, "steps": number}}
            ]
        },
    }
    files = rules(
        read_text_file={"pattern": "^read (.+)$", "arguments": {"path": f"{folder}/{{1}}"}},
        read_media_file={"pattern": "^show (.+)$", "arguments": {"path": f"{folder}/{{1}}"}},
        write_file={"pattern": "^write$", "arguments": {"path": f"{folder}/new", "content": "x"}},
    )
    tokyo = {
        "pattern": r"what time is it in (?P<city>[\w ]+)",
        "arguments": {"timezone": {"from": "{city}", "map": {"tokyo": "Asia/Tokyo"}}},
        "answer": "It is {datetime} in {timezone}.",
    }
    log = {"pattern": "latest", "arguments": {"repo_path": str(folder), "max_count": 1}}
    bin_folder = Path(sys.executable).parent
    # Its tools have no annotations, so they would ask.
    unasked = {"approval": "never", "tools": everything}
    return {
        "everything": npm("everything", "stdio", trunkline=unasked),
        "remote": {"url": f"http://127.0.0.1:{port}/mcp", "trunkline": unasked},
        "files": npm("filesystem", str(folder), trunkline={"tools": files}),
        "memory": npm(
            "memory",
            env={"MEMORY_FILE_PATH": "${MEMORY_FOLDER}/memory.json"},
            # The test calls it without an agent.
            trunkline={
                "approval": "never",
                "tools": rules(read_graph={"pattern": "remember"}),
            },
        ),
        "git": {
            "command": str(bin_folder / "mcp-server-git"),
            "trunkline": {"tools": rules(git_log=log)},
        },
        "time": {
            "command": str(bin_folder / "mcp-server-time"),
            "trunkline": {"tools": rules(get_current_time=tokyo)},
        },
    }


@dataclass(frozen=True, slots=True)
class Running:
    mesh: SmallMesh
    tools: ToolClient
    artifacts: ArtifactClient
    folder: Path

    async def ready(self, *servers: str) -> tool_service_pb2.WatchToolsResponse:
        """Return the list as soon as these servers, or all of them, are ready."""
        async with (
            asyncio.timeout(PATIENCE_S),
            aclosing(self.tools.watch_tools(servers)) as lists,
        ):
            async for listed in lists:
                if {server.state for server in listed.servers} == {READY}:
                    return listed
        raise AssertionError("the list ended")

    async def call(
        self, server: str, tool: str, *, agent: str = "", **arguments: Any
    ) -> tool_service_pb2.ToolResult:
        return (await self.responses(server, tool, agent=agent, **arguments))[-1].result

    async def responses(
        self, server: str, tool: str, *, agent: str = "", **arguments: Any
    ) -> Sequence[tool_service_pb2.CallToolResponse]:
        request = tool_service_pb2.CallToolRequest(server=server, tool=tool, agent=agent)
        update_struct(request.arguments, arguments)
        async with asyncio.timeout(PATIENCE_S):
            return await collect_responses(self.tools, request)

    async def ask(self, agent: str, text: str) -> Sequence[part_pb2.Part]:
        """Return the parts of the answer."""
        end = await self.mesh.ask(text, agent=agent)
        assert end.task.status.state == State.TASK_STATE_COMPLETED, answer_text(end)
        (artifact,) = end.task.artifacts
        return artifact.parts

    async def content(self, part: part_pb2.Part) -> bytes:
        """Return the content of a part, also if the part has only a URL."""
        reference = parse_reference(part.url)
        assert reference is not None, part
        async with self.artifacts.open(reference, account="") as download:
            return b"".join([chunk async for chunk in download])


def answer_text(end: snapshot_pb2.TaskSnapshot) -> str:
    return " ".join(part.text for part in end.task.status.message.parts)


@asynccontextmanager
async def everything_over_http() -> AsyncIterator[str]:
    """Run the server `everything` over HTTP; yield its port."""
    port = free_address().rpartition(":")[2]
    command = (NODE, str(_SERVERS / "mcp-server-everything"), "streamableHttp")
    opening = running_process(
        *command, cwd=_ROOT, environment={"PORT": port}, stderr=subprocess.PIPE
    )
    async with opening as process:
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            while b"listening" not in (line := await process.stderr.readline()):
                assert line, "it has ended"
        yield port


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    await asyncio.to_thread(make_environment)
    folder = tmp_path_factory.mktemp("work").resolve()
    (folder / "image.png").write_bytes(PNG)
    (folder / "big.txt").write_text(BIG)
    for words in ("init -q", "add big.txt", "-c user.name=Ann -c user.email=a@b commit -qm First"):
        command = ["git", "-C", str(folder), *words.split()]
        await asyncio.to_thread(subprocess.run, command, check=True)
    home = tmp_path_factory.mktemp("mesh")
    (home / "trunkline.toml").write_text(SETTINGS)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(everything_over_http())
        servers = entries(folder, port)
        only_servers(home, own=servers)
        up = await stack.enter_async_context(
            running_mesh(home, servers=None, environment={"MEMORY_FOLDER": str(folder)})
        )
        # With so many processes, the mesh may be slow to answer.
        channels = await stack.enter_async_context(
            ChannelPool(mesh_credentials(), ping_s=PATIENCE_S)
        )
        mesh = SmallMesh(stack, folder, channels, up.mesh_address)
        await stack.enter_async_context(mesh.directory)
        await mesh.directory.wait_until(
            lambda known: "time" in known.list_agents(), timeout_s=PATIENCE_S
        )
        tools = ToolClient(channels.get(up.mesh_address))
        artifacts = ArtifactClient(mesh.directory)
        yield Running(mesh, tools, artifacts, folder)


async def test_all_their_tools_are_listed_with_their_need_for_approval(running: Running) -> None:
    found = await running.ready()
    servers = [server.name for server in found.servers]
    count = {name: len([t for t in found.tools if t.server == name]) for name in servers}
    assert count["everything"] == count["remote"] == 15
    assert (count["files"], count["memory"], count["git"], count["time"]) == (14, 9, 12, 2)
    need_approval = {
        tool.name for tool in found.tools if tool.server == "git" and tool.needs_approval
    }
    assert need_approval == {
        "git_commit",
        "git_add",
        "git_reset",
        "git_create_branch",
        "git_checkout",
    }


@pytest.mark.parametrize("agent", ["everything", "remote"])
async def test_text_images_structure_and_resources_become_answers(
    running: Running, agent: str
) -> None:
    (echoed,) = await running.ask(agent, "shout hello there")
    assert echoed.text == "Echo: hello there"
    (weather,) = await running.ask(agent, "weather in Chicago")
    assert re.fullmatch(r"\d+ degrees, .+", weather.text)
    (words, image) = await running.ask(agent, "picture")
    assert "image" in words.text
    assert (image.media_type, image.raw[:8]) == ("image/png", PNG[:8])
    (intro, blob, text) = await running.ask(agent, "2 links")
    assert intro.text.startswith("Here are 2 resource links")
    # The adapter read from the server what only that can deliver.
    assert blob.raw.decode().startswith("Resource 1: This is a base64 blob")
    assert text.raw.decode().startswith("Resource 2: This is a plaintext resource")
    assert text.filename
    assert text.media_type == "text/plain"


@pytest.mark.parametrize("server", ["everything", "remote"])
async def test_progress_is_streamed_and_errors_have_the_reason(
    running: Running, server: str
) -> None:
    *news, last = await running.responses(
        server, "trigger-long-running-operation", duration=0.4, steps=4
    )
    assert [response.progress.progress for response in news] == [1, 2, 3, 4]
    assert {response.progress.total for response in news} == {4}
    assert "completed" in last.result.content[0].text
    failed = await running.call(server, "get-sum", a="no number", b=1)
    assert failed.is_error
    assert "expected number" in failed.content[0].text
    with pytest.raises(ToolNotFoundError):
        await running.call(server, "no-such-tool")


@pytest.mark.parametrize("agent", ["everything", "remote"])
async def test_a_task_is_canceled_while_its_tool_runs(running: Running, agent: str) -> None:
    task_id = await running.mesh.begin("take 50 s", agent=agent)
    await running.mesh.until(task_id, lambda now: bool(now.tool_calls))
    client = running.mesh.directory.client_for_task(task_id)
    ended = await client.cancel_task(task_id, account="")
    assert ended.task.status.state == State.TASK_STATE_CANCELED
    (echoed,) = await running.ask(agent, "shout still here")
    assert echoed.text == "Echo: still here"


async def test_large_content_is_stored_with_the_task_and_referenced(running: Running) -> None:
    (head, whole) = await running.ask("files", "read big.txt")
    assert head.text.startswith("line 0\nline 1\n")
    assert head.text.endswith(f"[{len(BIG)} characters in all; the whole text is attached.]")
    assert await running.content(whole) == BIG.encode()
    (*_, picture) = await running.ask("files", "show image.png")
    assert picture.media_type == "image/png"
    assert await running.content(picture) == PNG
    # Without a task to store it with, the call fails with the reason.
    refused = await running.call("files", "read_text_file", path=str(running.folder / "big.txt"))
    assert "ask for less" in refused.content[0].text


async def test_a_tool_that_is_denied_is_neither_seen_nor_called(running: Running) -> None:
    end = await running.mesh.ask("write", agent="files")
    assert end.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    new = running.folder / "new"
    with pytest.raises(ToolNotFoundError, match="files/write_file"):
        await running.call("files", "write_file", agent="files", path=str(new), content="x")
    with pytest.raises(ToolNotFoundError):
        await running.call("git", "git_reset", agent="git", repo_path=str(running.folder))
    assert not new.exists()
    outside = await running.call("files", "read_text_file", path="/etc/hostname")
    assert "Access denied" in outside.content[0].text


async def test_git_and_time_answer(running: Running) -> None:
    (log,) = await running.ask("git", "what was the latest commit?")
    assert "First" in log.text
    (time,) = await running.ask("time", "what time is it in Tokyo?")
    assert re.fullmatch(r"It is \d{4}-\d\d-\d\dT[\d:]+\+09:00 in Asia/Tokyo\.", time.text)
