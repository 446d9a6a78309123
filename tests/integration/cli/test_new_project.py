"""`trunkline new agent`: the new project passes its tests and runs as documented."""

import asyncio
import sys
from pathlib import Path

from harness.mesh.command_line import run_command
from harness.mesh.processes import read_line, running_mesh, running_process


async def test_new_projects_pass_their_tests_and_run_both_ways(tmp_path: Path) -> None:
    created = await run_command("new", "agent", "hello-there", folder=tmp_path)
    assert created.exit == 0
    hello, grapher = tmp_path / "hello-there", tmp_path / "here"
    assert sorted(created.out.splitlines()) == sorted(
        str(path.relative_to(tmp_path)) for path in hello.rglob("*") if path.is_file()
    )
    graph = await run_command("new", "agent", "grapher", str(grapher), "--langgraph", "--json")
    assert graph.json["agent"] == "grapher"
    assert "grapher/agent.py" in graph.json["files"]

    await check_its_tests(hello)
    await check_its_tests(grapher)
    # The project's own trunkline.toml names the agent.
    async with running_mesh(hello) as mesh:
        address = ("--url", mesh.http_url)
        assert (
            await run_command("ask", "Ada", "--agent", "hello-there", *address)
        ).out == "Hello, Ada!\n"
        command = (sys.executable, "-m", "grapher", "--mesh", mesh.mesh_address)
        async with running_process(*command, cwd=grapher) as agent:
            assert (await read_line(agent, "ready "))["agent"] == "grapher"
            answer = await run_command("ask", "Ada", "--agent", "grapher", *address)
            assert answer.out == "I have heard: Ada\n"


async def check_its_tests(project: Path) -> None:
    # Without plugins, because the project must not need ours.
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = (sys.executable, "-m", "pytest", "-q", "-W", "error")
    async with running_process(*command, cwd=project, environment=environment) as tests:
        assert tests.stdout is not None
        async with asyncio.timeout(90):
            output = (await tests.stdout.read()).decode()
            assert await tests.wait() == 0, output
    assert "2 passed" in output
