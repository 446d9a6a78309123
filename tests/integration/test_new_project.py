"""`trunkline new agent`: what it makes passes its own tests, and runs as it says."""

import asyncio
import sys
import tomllib
from pathlib import Path

from harness.command_line import run
from harness.processes import read_line, running_mesh, running_process


async def test_a_project_passes_its_tests_and_runs_both_ways(tmp_path: Path) -> None:
    made = await run("new", "agent", "hello-there", folder=tmp_path)
    assert made.exit == 0
    project = tmp_path / "hello-there"
    assert sorted(made.out.splitlines()) == sorted(
        str(path.relative_to(tmp_path)) for path in project.rglob("*") if path.is_file()
    )
    assert tomllib.loads((project / "pyproject.toml").read_text())["project"]["name"]

    await passes_its_tests(project)
    # Its own trunkline.toml names the agent.
    async with running_mesh(project) as mesh:
        asked = ("ask", "Ada", "--agent", "hello-there", "--url", mesh.http_url)
        assert (await run(*asked)).out == "Hello, Ada!\n"
    async with running_mesh(tmp_path) as mesh:
        command = (sys.executable, "-m", "hello_there", "--mesh", mesh.mesh_address)
        environment = {"TRUNKLINE_AGENT_HELLO_THERE_GREETING": "Hi"}
        async with running_process(*command, cwd=project, environment=environment) as agent:
            assert (await read_line(agent, "ready "))["agent"] == "hello-there"
            asked = ("ask", "Ada", "--agent", "hello-there", "--url", mesh.http_url)
            assert (await run(*asked)).out == "Hi, Ada!\n"


async def test_a_project_of_a_graph_passes_its_tests(tmp_path: Path) -> None:
    made = await run("new", "agent", "grapher", str(tmp_path / "here"), "--langgraph", "--json")
    assert made.json["agent"] == "grapher"
    assert "grapher/agent.py" in made.json["files"]
    await passes_its_tests(tmp_path / "here")


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
