"""An idle mesh with all its processes uses little memory."""

import asyncio
from pathlib import Path

from harness.mesh.forked_commands import AS_USUAL
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import running_mesh
from harness.polling import wait_for
from trunkline.client import ChannelPool, ToolClient

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


async def test_an_idle_mesh_with_all_its_processes_stays_under_250_mb(tmp_path: Path) -> None:
    environment = {"TRUNKLINE_TOOL_IDLE_S": "1", **AS_USUAL}
    async with (
        running_mesh(tmp_path, servers=None, environment=environment) as mesh,
        asyncio.timeout(LIMIT_S),
        ChannelPool(mesh_credentials()) as channels,
    ):
        client = ToolClient(channels.get(mesh.mesh_address))
        tools = await client.wait_for_tools(timeout_s=LIMIT_S)
        assert {tool.server for tool in tools.tools} == {"currency", "math", "research"}
        # The mesh started the servers to list their tools; without calls they stop again.
        await wait_for(lambda: len(tree(mesh.process.pid)) == 1)
        sizes = {process.name: resident_bytes(process) for process in tree(mesh.process.pid)}
    assert sum(sizes.values()) < LIMIT_BYTES, sizes
