"""An idle server is stopped to free memory, and its users do not notice."""

import asyncio
import re
from contextlib import suppress
from pathlib import Path

from harness.mcp.scripted_servers import (
    READY_TIMEOUT_S,
    awkward,
    call,
    running,
    wait_for_file,
    wait_until,
)
from harness.mesh.command_line import run_command
from harness.mesh.processes import running_mesh
from trunkline.tools.server import ToolServerState

IDLE = {"idle_s": 0.2}
SCRIPTS = {"trunkline-mcp-m": "math", "trunkline-mcp-c": "currency"}


async def test_a_server_that_may_rest_starts_at_its_first_use() -> None:
    async with running(lazy=awkward(trunkline=IDLE), eager=awkward()) as adapter:
        await adapter.wait_ready(["eager"], timeout_s=READY_TIMEOUT_S)
        (lazy,) = adapter.list_servers(["lazy"])
        assert (lazy.state, lazy.pid) == (ToolServerState.TOOL_SERVER_STATE_IDLE, None)
        # A caller that uses it waits for it from here on.
        lazy.note_use()
        assert lazy.state == ToolServerState.TOOL_SERVER_STATE_STARTING
        await adapter.wait_ready(["lazy"], timeout_s=READY_TIMEOUT_S)
        assert "repeat" in lazy.tools


async def test_an_idle_server_stops_and_the_next_call_starts_it() -> None:
    async with running(awkward=awkward(trunkline=IDLE)) as adapter:
        (server,) = adapter.list_servers()
        assert (await call(adapter, "repeat", text="one")).content[0].text == "one"
        await wait_until(adapter, lambda: server.pid is None)
        assert server.state == ToolServerState.TOOL_SERVER_STATE_READY
        assert "repeat" in server.tools
        results = []
        async with asyncio.TaskGroup() as group:
            results = [group.create_task(call(adapter, "repeat", text="two")) for _ in range(5)]
        assert {result.result().content[0].text for result in results} == {"two"}
        await wait_until(adapter, lambda: server.pid is None)
        assert (await call(adapter, "repeat", text="three")).content[0].text == "three"


async def test_a_server_with_a_running_call_is_not_idle(tmp_path: Path) -> None:
    servers = {name: awkward(trunkline=IDLE) for name in ("awkward", "other")}
    async with running(**servers) as adapter:
        (server,), (other,) = (adapter.list_servers([name]) for name in servers)
        async with asyncio.TaskGroup() as group:
            hanging = group.create_task(call(adapter, "hang", marks=str(tmp_path)))
            await wait_for_file(tmp_path / "began")
            first = server.pid
            # A server that is used later, and only for a moment, is stopped meanwhile.
            await call(adapter, "repeat", server="other", text="one")
            await wait_until(adapter, lambda: other.pid is None)
            assert server.pid == first is not None
            hanging.cancel()
        await wait_until(adapter, lambda: server.pid is None)


async def test_a_question_starts_only_the_servers_of_its_agents(tmp_path: Path) -> None:
    async with running_mesh(tmp_path, servers=("math", "currency")) as mesh:
        assert started_servers(mesh.process.pid) == set()
        asked = await run_command("ask", "--url", mesh.http_url, "what is 1+2")
        assert (asked.exit, asked.out) == (0, "3\n")
        assert started_servers(mesh.process.pid) == {"math"}
        listed = await run_command("tools", "--mesh", mesh.mesh_address)
        assert started_servers(mesh.process.pid) == {"math", "currency"}
    assert re.search(r"^currency/\w+ +ready ", listed.out, re.MULTILINE)


def started_servers(mesh: int) -> set[str]:
    """Return the names of the bundled MCP servers that run as children of a process."""
    names = set()
    for process in Path("/proc").glob("[0-9]*"):
        # Processes may end meanwhile.
        with suppress(OSError):
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            # Linux cuts the name of a script after 15 characters.
            script = (process / "comm").read_text().strip()
            if script in SCRIPTS and int(parent) == mesh:
                names.add(SCRIPTS[script])
    return names
