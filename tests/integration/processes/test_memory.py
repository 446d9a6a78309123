"""An idle mesh with all its processes uses little memory."""

import asyncio
from pathlib import Path

from harness.mesh.forked_commands import AS_USUAL
from harness.mesh.identity import mesh_credentials
from harness.mesh.process_sizes import IDLE_MESH_BYTES, process_tree, resident_bytes
from harness.mesh.processes import running_mesh
from harness.polling import wait_for
from trunkline.mesh.client import ChannelPool, ToolClient

LIMIT_S = 300.0


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
        await wait_for(lambda: len(process_tree(mesh.process.pid)) == 1)
        sizes = {
            process.name: resident_bytes(process) for process in process_tree(mesh.process.pid)
        }
    assert sum(sizes.values()) < IDLE_MESH_BYTES, sizes
