"""`trunkline new agent`: what it makes passes its own tests, and runs as it says."""

import asyncio
import sys
from pathlib import Path

from harness.mesh.command_line import run_command
from harness.mesh.processes import read_line, running_mesh, running_process


async def test_new_projects_pass_their_tests_and_run_both_ways(tmp_path: Path) -> None:
    made = await run_command("new", "agent", "hello-there", folder=tmp_path)
    assert made.exit == 0
    hello, grapher = tmp_path / "hello-there", tmp_path / "here"
    assert sorted(made.out.splitlines()) == sorted(
        str(path.relative_to(tmp_path)) for path in hello.rglob("*") if path.is_file()
    )
    graph = await run_command("new", "agent", "grapher", str(grapher), "--langgraph", "--json")
    assert graph.json["agent"] == "grapher"
    assert "grapher/agent.py" in graph.json["files"]

    await passes_its_tests(hello)
    await passes_its_tests(grapher)
    # Its own trunkline.toml names the agent.
    async with running_mesh(hello) as mesh:
        where = ("--url", mesh.http_url)
        assert (
            await run_command("ask", "Ada", "--agent", "hello-there", *where)
        ).out == "Hello, Ada!\n"
        command = (sys.executable, "-m", "grapher", "--mesh", mesh.mesh_address)
        async with running_process(*command, cwd=grapher) as agent:
            assert (await read_line(agent, "ready "))["agent"] == "grapher"
            told = await run_command("ask", "Ada", "--agent", "grapher", *where)
            assert told.out == "I have heard: Ada\n"


async def passes_its_tests(project: Path) -> None:
    # No plugins: nothing of ours may be needed.
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = (sys.executable, "-m", "pytest", "-q", "-W", "error")
    async with running_process(*command, cwd=project, environment=environment) as tests:
        assert tests.stdout is not None
        async with asyncio.timeout(90):
            told = (await tests.stdout.read()).decode()
            assert await tests.wait() == 0, told
    assert "2 passed" in told
