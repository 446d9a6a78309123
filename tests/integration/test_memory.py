"""An idle mesh with all its processes uses little memory."""

import asyncio
from contextlib import aclosing
from pathlib import Path

from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import running_mesh
from trunkline.client import ChannelPool, ToolClient
from trunkline.v1 import tool_service_pb2

LIMIT_BYTES = 250 * 1000 * 1000
LIMIT_S = 300.0


def tree(root: int) -> list[Path]:
    """Return the /proc folders of a process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        try:
            # The name in parentheses may contain anything; after it come state, parent, ….
            pid = int(folder.name)
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        parents.setdefault(parent, []).append(pid)
    folders = [root]
    for pid in folders:
        folders += parents.get(pid, [])
    return [Path("/proc") / str(pid) for pid in folders]


def resident_bytes(process: Path) -> int:
    lines = (process / "status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


async def servers_started(client: ToolClient) -> None:
    """Wait for the MCP servers, because the mesh is smaller without them."""
    async with aclosing(client.watch_tools()) as lists:
        async for tools in lists:
            states = {server.state for server in tools.servers}
            if states == {tool_service_pb2.TOOL_SERVER_STATE_READY}:
                return


async def test_an_idle_mesh_with_all_its_processes_stays_under_250_mb(tmp_path: Path) -> None:
    async with (
        running_mesh(tmp_path, servers=None) as mesh,
        asyncio.timeout(LIMIT_S),
        ChannelPool(mesh_credentials()) as channels,
    ):
        await servers_started(ToolClient(channels.get(mesh.mesh_address)))
        # The mesh started them to list their tools; without calls they stop again.
        while len(tree(mesh.process.pid)) > 1:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.05)
        sizes = {process.name: resident_bytes(process) for process in tree(mesh.process.pid)}
    assert sum(sizes.values()) < LIMIT_BYTES, sizes
