"""A mesh of processes that each have an identity of their own role: users and approvals pass on."""

import asyncio
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.a2a.sse_client import call, user_message
from harness.mesh.command_line import run_command
from harness.mesh.identity import mesh_credentials
from harness.mesh.other_identities import mesh_authority
from harness.mesh.processes import Services, open_services, until_listed
from trunkline.core.identity import Identity, Role
from trunkline.core.identity.certificates import create_key
from trunkline.core.identity.folder import IdentityFolder
from trunkline.mesh.client import ChannelPool, Directory
from trunkline.v1 import snapshot_pb2

SHOP = Path(__file__).parents[2] / "harness" / "mcp" / "shop_server.py"
WAIT_S = 300.0


def joined_folder(path: Path, role: Role, *agents: str) -> dict[str, str]:
    """Make the identity folder of a process that joined; return the variable that names it."""
    authority = mesh_authority()
    folder = IdentityFolder(path)
    folder.create()
    public_key, key = create_key()
    identity = Identity(authority.mesh, role, frozenset(agents))
    certificate = authority.issue(identity, public_key, timedelta(hours=24))
    folder.write(folder.certificate, certificate + key)
    folder.write(folder.roots, authority.certificate_pem)
    return {"TRUNKLINE_IDENTITY_FOLDER": str(path)}


def write_mcp_file(folder: Path) -> str:
    server = {
        "command": sys.executable,
        "args": [str(SHOP)],
        "env": {"SHOP_FOLDER": str(folder)},
        "trunkline": {"agent": {"tags": ["apples"]}},
    }
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"apples": server}}))
    return str(file)


async def start_all(services: Services, folder: Path) -> None:
    """Start each service with an identity that allows only its own work."""
    mcp_file = await asyncio.to_thread(write_mcp_file, folder)
    await services.start("registry", "registry")
    roles: list[tuple[str, Role, tuple[str, ...], tuple[str, ...]]] = [
        ("bridge", Role.BRIDGE, (), ("bridge",)),
        ("tools", Role.TOOLS, (), ("tools", "--mcp", mcp_file)),
        ("supervisor", Role.AGENTS, ("supervisor",), ("agents", "supervisor", "--mcp", mcp_file)),
        ("apples", Role.AGENTS, ("apples",), ("agents", "apples", "--mcp", mcp_file)),
    ]
    for name, role, agents, words in roles:
        identity = await asyncio.to_thread(joined_folder, folder / f"id-{name}", role, *agents)
        await services.launch(name, *words, environment=identity)
    for name, *_ in roles:
        await services.ready(name)
    await until_listed(services.http_url, "supervisor", "apples")


async def send(url: str, text: str, task_id: str = "") -> dict[str, Any]:
    """Send a user's message to the bridge; return the task."""
    message = user_message(text, **({"taskId": task_id} if task_id else {}))
    answer = await call(url, "/", "SendMessage", {"message": message})
    task: dict[str, Any] = answer["result"]["task"]
    return task


async def read_tasks(mesh: str, task_id: str) -> list[snapshot_pb2.TaskSnapshot]:
    """Return a task and its child, as the owner of the mesh reads them."""
    async with (
        ChannelPool(mesh_credentials()) as channels,
        Directory(channels, mesh) as directory,
    ):
        await directory.wait_until(lambda known: bool(known.hosts), timeout_s=WAIT_S)
        root = await directory.client_for_task(task_id).get_task(task_id, account="")
        child_id = root.children[0].started.task_id
        child = await directory.client_for_task(child_id).get_task(child_id, account="")
        return [root, child]


async def until_ended(mesh: str, task_id: str) -> None:
    async with (
        ChannelPool(mesh_credentials()) as channels,
        Directory(channels, mesh) as directory,
        asyncio.timeout(WAIT_S),
    ):
        await directory.wait_until(lambda known: bool(known.hosts), timeout_s=WAIT_S)
        async with directory.watch(task_id, account="", after=0) as stream:
            async for _ in stream:
                pass


@pytest.mark.timeout(900)
async def test_an_approval_passes_from_the_user_to_the_tool(tmp_path: Path) -> None:
    async with open_services(tmp_path) as services:
        services.reserve_mesh_address()
        await start_all(services, tmp_path)
        task = await send(services.http_url, "order 3 apples")
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", task
        task = await send(services.http_url, "approve", task["id"])
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
        root, child = await read_tasks(services.mesh_address, task["id"])
        (answer,) = (approval.answered for approval in child.approvals)
        # The bridge signed once; the agents passed it on as it was.
        assert root.user_statement == child.user_statement == answer.user_statement != ""
        assert answer.account == "anonymous"
        # The owner's command line answers at the host of the task, which forwards it to the root.
        task = await send(services.http_url, "order 4 apples")
        root, child = await read_tasks(services.mesh_address, task["id"])
        (approval,) = child.approvals
        approval_id = approval.requested.approval_id
        answered = await run_command("approve", approval_id, "--mesh", services.mesh_address)
        assert answered.exit == 0, answered.err
        await until_ended(services.mesh_address, task["id"])
        orders = await asyncio.to_thread((tmp_path / "orders").read_text)
    assert orders == "3 apples\n4 apples\n"
