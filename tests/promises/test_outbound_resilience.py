"""Outbound resilience: who fails is named, and slows nobody who doesn't call him.

Each hop has a breaker, which is seen from outside to go through its three states.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx

from harness.a2a.sse_client import PATIENCE_S, Json, call, send, sse, user_message
from harness.mcp.scripted_servers import AWKWARD
from harness.mesh.nonsense_host import nonsense_host
from harness.mesh.processes import Services, open_services, running_mesh
from harness.promise_scale import PromiseScale, percentiles
from trunkline.client import ChannelPool, ToolClient, run_in_background
from trunkline.v1 import tool_service_pb2

TESTS = Path(__file__).parents[1]
# In the flooder's pieces, which have a kilobyte each.
MIB = 1024


def environment(**settings: str) -> dict[str, str]:
    path = os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))
    named = {f"TRUNKLINE_{name.upper()}": value for name, value in settings.items()}
    return {"PYTHONPATH": path, "TRUNKLINE_BREAKER_FAILURES": "3", **named}


async def ask(url: str, text: str, path: str = "/") -> tuple[str, str]:
    """Ask; return the task's state and what it says at last: the answer, or why there is none."""
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


async def follow(url: str, text: str) -> tuple[str, str]:
    """Ask as `ask` does, and read the answer as it comes: it may be long."""
    state, said = "", [""]
    async with sse(url, "/", "SendStreamingMessage", {"message": user_message(text)}) as answer:
        async for event in answer.events():
            if status := event.result.get("statusUpdate"):
                state = status["status"]["state"].removeprefix("TASK_STATE_")
            if update := event.result.get("artifactUpdate"):
                parts = [part["text"] for part in update["artifact"]["parts"]]
                if not update.get("append"):
                    said = []
                said += parts
    return state, "".join(said)


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again until it is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not await look():  # noqa: ASYNC110  other processes tell nobody
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
        ChannelPool() as channels,
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


# The hops from host to host.


@asynccontextmanager
async def running_trouble(folder: Path) -> AsyncIterator[Services]:
    """A mesh with a good agent and bad ones, each host a process; `garbler` is this process."""
    module = "harness.agents.misbehaving_agents"
    # Longer than elsewhere: who is busy with a flood must not be taken for dead.
    async with open_services(folder, environment=environment(lease_s="15")) as services:
        await services.start("registry", "registry")
        await services.launch("bridge", "bridge")
        for name in ("supervisor", "echo"):
            await services.launch(name, "agents", name)
        both = ("--agent", f"{module}:hanger", "--agent", f"{module}:flooder")
        await services.launch("hanger", "agents", *both)
        await services.launch("flapper", "agents", "--agent", f"{module}:flapper")
        for name in ("bridge", "supervisor", "echo", "hanger", "flapper"):
            await services.ready(name)
        async with nonsense_host(services.mesh_address, "garbler"):
            await until(partial(are_known, services, "garbler", "flapper"))
            yield services


async def are_known(services: Services, *agents: str) -> bool:
    """Whether the bridge knows these agents."""
    async with httpx.AsyncClient(base_url=services.http_url, timeout=PATIENCE_S) as client:
        paths = [f"/agents/{name}/.well-known/agent-card.json" for name in agents]
        return all([(await client.get(path)).status_code == 200 for path in paths])


async def flap(services: Services, rng: random.Random) -> None:
    """Kill the flapper and start it again, for ever."""
    while True:
        await asyncio.sleep(rng.uniform(1, 3))
        await services.kill("flapper")
        await asyncio.sleep(rng.uniform(0, 1))
        await services.restart("flapper")


async def test_outbound_resilience(tmp_path: Path, scale: PromiseScale, rng: random.Random) -> None:
    """Agents that hang, talk nonsense, flood and flap: each is named, and the others work on."""
    rounds = scale.pick(ci=3, prove=100)
    quiet: list[float] = []
    troubled: list[float] = []
    flaps: Counter[str] = Counter()

    async def good(url: str, times: list[float]) -> None:
        for number in range(4):
            began = time.perf_counter()
            assert await ask(url, f"@echo fine {number}") == ("COMPLETED", f"fine {number}")
            times.append(time.perf_counter() - began)

    async def bad(url: str) -> None:
        state, said = await ask(
            url, "@echo alpha; @hanger wait; @garbler speak; @flooder pour 300; @echo omega"
        )
        assert state == "COMPLETED", said
        lines = said.split("\n")
        assert (lines[0], lines[-1]) == ("alpha", "omega"), lines
        assert lines[1].startswith('Could not answer "wait": '), lines
        assert lines[1].endswith("(agent hanger)."), lines
        assert lines[2].startswith('Could not answer "speak": '), lines
        assert lines[2].endswith("(agent garbler)."), lines
        assert lines[3].startswith("xxxx"), lines

    async def flapping(url: str) -> None:
        state, said = await ask(url, "@flapper once")
        assert (state, said) == ("COMPLETED", "flapped once") or "flapper" in said, (state, said)
        flaps[state.lower()] += 1

    async with running_trouble(tmp_path) as services:
        url = services.http_url
        await good(url, quiet)
        async with run_in_background(flap(services, rng)):
            for _ in range(rounds):
                async with asyncio.TaskGroup() as group:
                    for work in (good(url, troubled), bad(url), bad(url), flapping(url)):
                        group.create_task(work)
        state, said = await follow(url, f"@echo still here; @flooder pour {17 * MIB}")
        assert state == "COMPLETED", said
        assert said.startswith("still here\nCould not answer"), said
        assert "it sent more than 16 MiB in one turn" in said
    scale.report(rounds=rounds, quiet=percentiles(quiet), troubled=percentiles(troubled), **flaps)


async def test_the_breaker_of_a_host_goes_through_its_states(tmp_path: Path) -> None:
    """Seen at the bridge: closed, open when the host is gone, half-open, closed when it is back."""
    # The lease is long: a host that is on the mesh and can't be reached is what breakers are for.
    variables = environment(lease_s="120", breaker_open_s="1")
    async with open_services(tmp_path, environment=variables) as services:
        await services.start("registry", "registry")
        await services.start("echo", "agents", "echo")
        await services.start("bridge", "bridge", "--default", "echo")
        await until(partial(are_known, services, "echo"))
        url = services.http_url

        async def is_so(state: str) -> bool:
            async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
                breakers = (await client.get("/readyz")).json().get("breakers", {})
            return bool(breakers.get(services._addresses["echo"]) == state)

        async def asked(state: str) -> bool:
            await send(url, "/", "SendMessage", params(), {"Trunkline-Timeout": "1"})
            return await is_so(state)

        def params() -> Json:
            return {"message": user_message("hello")}

        assert await ask(url, "hello") == ("COMPLETED", "hello")
        assert await is_so("closed")
        await services.kill("echo")
        await until(partial(asked, "open"))
        await until(partial(is_so, "half-open"))
        await services.restart("echo")
        await until(partial(asked, "closed"))
        assert await ask(url, "hello again") == ("COMPLETED", "hello again")
