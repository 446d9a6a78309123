"""The process of the tool adapter is killed and started again while agents call tools."""

from asyncio.subprocess import Process
from contextlib import AsyncExitStack
from pathlib import Path

from harness.agents.inline_agents import status_texts, texts
from harness.mcp.bundled_servers import only_servers
from harness.mesh.command_line import COMMAND
from harness.mesh.processes import read_line, running_process
from harness.mesh.small_mesh import PATIENCE_S, SmallMesh, open_small_mesh
from trunkline import TaskContext, agent
from trunkline.mesh.client.mesh_words import TOOL_SERVICE
from trunkline.tasks.lifecycle import TERMINAL, State


@agent(name="caller", description="Calls a tool.")
async def caller(task: TaskContext) -> str:
    await task.working("calling")
    return (await task.call_tool("math/calculate", {"expression": task.text})).text


async def start_tools(mesh: SmallMesh, folder: Path, stack: AsyncExitStack) -> Process:
    command = (*COMMAND, "serve", "tools")
    options = ("--mesh", mesh.registry_address, "--data", str(folder / "tools"))
    process = await stack.enter_async_context(
        running_process(*command, *options, cwd=folder, environment=only_servers(folder, "math"))
    )
    await read_line(process, "ready ")
    return process


async def test_calls_wait_for_an_adapter_that_starts_again(tmp_path: Path) -> None:
    async with open_small_mesh(tmp_path) as mesh, AsyncExitStack() as stack:
        await mesh.join(caller)
        refused = await mesh.ask("1+1", agent="caller")
        # No process has served tools so far.
        assert refused.task.status.state == State.TASK_STATE_FAILED
        assert "no host on the mesh serves it" in status_texts(refused)

        tools = await start_tools(mesh, tmp_path, stack)
        await mesh.directory.wait_until(
            lambda known: any(TOOL_SERVICE in host.services for host in known.hosts),
            timeout_s=PATIENCE_S,
        )
        assert texts(await mesh.ask("1+2", agent="caller")) == ["3"]

        tools.kill()
        await tools.wait()
        task_id = await mesh.begin("2+2", agent="caller")
        await mesh.until(task_id, lambda now: "calling" in status_texts(now))
        await start_tools(mesh, tmp_path, stack)

        ended = await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL)
        assert texts(ended) == ["4"], status_texts(ended)


async def test_calls_wait_for_the_adapter_after_a_restart_of_all_processes(tmp_path: Path) -> None:
    async with open_small_mesh(tmp_path) as mesh:
        await mesh.join(caller)

    async with open_small_mesh(tmp_path) as mesh, AsyncExitStack() as stack:
        await mesh.join(caller)
        task_id = await mesh.begin("2+2", agent="caller")
        await mesh.until(task_id, lambda now: "calling" in status_texts(now))
        await start_tools(mesh, tmp_path, stack)

        ended = await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL)
        assert texts(ended) == ["4"], status_texts(ended)
