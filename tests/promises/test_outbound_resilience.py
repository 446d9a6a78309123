"""Outbound resilience: who fails is named, and slows nobody who doesn't call him.

Each hop has a breaker, which is seen from outside to go through its three states.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from harness.processes import running_mesh
from harness.sse import PATIENCE_S, Json, call, user_message
from harness.tool_servers import AWKWARD
from trunkline.client import Channels, ToolClient
from trunkline.v1 import tool_service_pb2

TESTS = Path(__file__).parents[1]


def environment(**settings: str) -> dict[str, str]:
    path = os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))
    named = {f"TRUNKLINE_{name.upper()}": value for name, value in settings.items()}
    return {"PYTHONPATH": path, "TRUNKLINE_BREAKER_FAILURES": "3", **named}


async def ask(url: str, text: str, path: str = "/") -> tuple[str, str]:
    """Ask, and return the task's state and what it says at last: the answer, or why there is none."""
    async with asyncio.timeout(PATIENCE_S):
        response = await call(url, path, "SendMessage", {"message": user_message(text)})
    if "error" in response:
        return "REFUSED", response["error"]["message"]
    task: Json = response["result"]["task"]
    parts = task["status"].get("message", {}).get("parts", ())
    if not parts and "artifacts" in task:
        parts = task["artifacts"][-1]["parts"]
    state = task["status"]["state"].removeprefix("TASK_STATE_")
    return state, "".join(part["text"] for part in parts if "text" in part)


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again until it is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not await look():
            await asyncio.sleep(0.05)


# The MCP hop.


def script(source: str) -> Json:
    return {"command": sys.executable, "args": ["-u", "-c", source]}


def mcp_file(folder: Path, sign: Path) -> str:
    """Servers that can't be started while a file exists, hang, talk nonsense; beside good ones."""
    frail = (
        f"import os, sys\nif os.path.exists({str(sign)!r}): sys.exit(7)\n"
        f"os.execv(sys.executable, [sys.executable, {AWKWARD!r}])"
    )
    servers = {
        "frail": script(frail),
        "stuck": script("import time; time.sleep(600)") | {"trunkline": {"connect_timeout_s": 0.5}},
        "noisy": script("while True: print('garbage')"),
    }
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return str(file)


async def tool_servers(mesh_address: str) -> dict[str, Json]:
    """What `trunkline tools --json` says of the servers, by name."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "trunkline.cli", "tools", "--json", "--mesh", mesh_address,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        out, _ = await process.communicate()
    assert process.returncode == 0
    return {server["name"]: server for server in json.loads(out)["servers"]}


async def test_a_tool_server_that_fails_harms_no_other(tmp_path: Path) -> None:
    """Its breaker opens, is half-open once it starts again, and is closed by calls that work."""
    sign = tmp_path / "broken"
    sign.touch()
    flags = ("--mcp", mcp_file(tmp_path, sign))
    variables = environment(breaker_open_s="2")
    async with (
        running_mesh(tmp_path, *flags, environment=variables) as mesh,
        Channels() as channels,
    ):
        tools = ToolClient(channels.get(mesh.mesh_address))

        async def is_so(name: str, breaker: str, *, is_ready: bool) -> bool:
            (server,) = (await tools.list_tools((name,))).servers
            has_state = (server.state == tool_service_pb2.TOOL_SERVER_STATE_READY) == is_ready
            return has_state and server.breaker == breaker

        for name in ("frail", "stuck", "noisy"):
            # One after the other: while a probe is under way a breaker is half-open.
            await until(partial(is_so, name, "open", is_ready=False))
        shown = await tool_servers(mesh.mesh_address)
        assert {shown[name]["state"] for name in ("frail", "stuck", "noisy")} == {
            "TOOL_SERVER_STATE_FAILED"
        }
        said = shown["frail"]["error"]
        assert said.startswith("it kept failing, at last: it exited with code 7"), said

        assert await ask(mesh.http_url, "what is 2+2") == ("COMPLETED", "4")
        state, said = await ask(mesh.http_url, "@frail repeat hello")
        assert state == "FAILED"
        assert "tool server 'frail' is down: it kept failing" in said
        state, said = await ask(mesh.http_url, "what is 2+2; @stuck do something")
        assert state == "COMPLETED"
        assert said.startswith("4")
        assert "tool server 'stuck' is down: it kept failing" in said

        sign.unlink()
        await until(partial(is_so, "frail", "half-open", is_ready=True))
        assert (await tool_servers(mesh.mesh_address))["frail"]["breaker"] == "half-open"
        assert await ask(mesh.http_url, "@frail repeat hello") == ("COMPLETED", "hello")
        shown = await tool_servers(mesh.mesh_address)
        assert {shown[name]["breaker"] for name in ("frail", "math", "currency")} == {"closed"}
