"""Commands in a folder with hostile files: nothing there runs until the user trusts the folder."""

import importlib.util
import json
import sys
from pathlib import Path

from harness.mesh.command_line import run_command
from harness.mesh.processes import running_mesh

AGENT = """
from trunkline import agent
{more}
@agent(description="Greets.")
async def hello(task):
    return f"Hello, {{task.text}}!"
"""
# No mesh answers there, so that `ask` starts one.
NO_MESH = {"TRUNKLINE_HTTP": "127.0.0.1:1"}
# Packages that a mesh imports, and modules that Python imports at its start.
IMPORTED = (
    "anyio", "click", "google", "grpc", "httpx2", "jwt", "langchain_core", "langgraph", "mcp",
    "mcp_types", "opentelemetry", "pydantic", "pydantic_settings", "sitecustomize", "starlette",
    "sympy", "trunkline", "trunkline_agents", "trunkline_bridge", "typer", "typing_extensions",
    "usercustomize", "uvicorn", "uvloop",
)  # fmt: skip


def leave_trace(folder: Path, name: str) -> str:
    """Return Python code that leaves a file in the folder's `ran` folder."""
    (folder / "ran").mkdir(exist_ok=True)
    return f"open({str(folder / 'ran' / name)!r}, 'w').close()\n"


def write_hostile_files(folder: Path) -> None:
    """Write modules, a plugin, agents, servers and variables that leave a trace if they run."""
    for name in {*sys.stdlib_module_names, *IMPORTED}:
        (folder / f"{name}.py").write_text(leave_trace(folder, name))
    (folder / "hostile.py").write_text(AGENT.format(more=leave_trace(folder, "agent")))
    command = [sys.executable, "-P", "-c", leave_trace(folder, "server")]
    servers = {"evil": {"command": command[0], "args": command[1:]}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    info = folder / "evil-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trunkline.agents]\nevil = hostile:hello\n")
    (folder / ".env").write_text("TRUNKLINE_MCP_FILE=mcp.json\nTRUNKLINE_AGENTS=hostile:hello\n")
    (folder / "trunkline.toml").write_text(
        'agents = ["hostile:hello"]\nmcp_file = "mcp.json"\nlog_level = "error"\n'
        '[models.openai]\nbase_url = "http://192.0.2.1"\n[agent.math]\nmodel = "openai:x"\n'
    )


def traces(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "ran").iterdir())


async def test_nothing_in_the_folder_runs(tmp_path: Path) -> None:
    write_hostile_files(tmp_path)
    result = await run_command("ask", "what is 1+2", folder=tmp_path, **NO_MESH)
    assert traces(tmp_path) == []
    assert (result.exit, result.out) == (0, "3\n"), result.err
    notice = result.err.splitlines()[1]
    assert "ignored agents, mcp_file, models, agent.math.model" in notice
    assert "`trunkline trust`" in notice


async def test_a_trusted_folder_brings_its_agents(tmp_path: Path) -> None:
    (tmp_path / "greeter.py").write_text(AGENT.format(more=""))
    (tmp_path / "trunkline.toml").write_text('agents = ["greeter:hello"]\n')
    assert (await run_command("trust", folder=tmp_path)).exit == 0
    result = await run_command("ask", "Ada", "--agent", "hello", folder=tmp_path, **NO_MESH)
    assert (result.exit, result.out) == (0, "Hello, Ada!\n"), result.err
    assert result.err.count("\n") == 1


async def test_an_agent_that_is_named_runs_and_its_folder_shadows_no_module(tmp_path: Path) -> None:
    write_hostile_files(tmp_path)
    (tmp_path / "trunkline.toml").write_text('agents = ["hostile:hello"]\n')
    # The folder of an agent is on the path, so that it may bring modules that exist nowhere else.
    # Code imports some if they exist, such as `winreg` of Windows.
    for name in {*sys.stdlib_module_names, *IMPORTED}:
        if importlib.util.find_spec(name) is None:
            (tmp_path / f"{name}.py").unlink()
    async with running_mesh(tmp_path, servers=None) as mesh:
        answer = await run_command("ask", "Ada", "--agent", "hello", "--url", mesh.http_url)
        assert answer.out == "Hello, Ada!\n"
    assert traces(tmp_path) == ["agent"]
