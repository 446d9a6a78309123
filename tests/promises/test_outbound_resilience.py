"""Outbound resilience: an error names the failed peer, and calls to other peers are not delayed.

Each hop has a circuit breaker. These tests observe its three states from outside.
"""

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx

from harness.a2a.sse_client import PATIENCE_S, Json, call, send, sse, user_message
from harness.mcp.bundled_servers import only_servers
from harness.mcp.scripted_servers import AWKWARD
from harness.mesh.command_line import run_command
from harness.mesh.identity import mesh_credentials
from harness.mesh.nonsense_host import nonsense_host
from harness.mesh.processes import WITH_HARNESS, Services, open_services, running_mesh
from harness.polling import poll
from harness.promise_scale import PromiseScale, percentiles
from harness.remote.token_issuer import write_api_keys
from trunkline.mesh.client import ChannelPool, ToolClient, run_in_background
from trunkline.v1 import tool_service_pb2

# In pieces of the flooder, one kilobyte each.
MIB = 1024


def environment(**settings: str) -> dict[str, str]:
    named = {f"TRUNKLINE_{name.upper()}": value for name, value in settings.items()}
    return {**WITH_HARNESS, "TRUNKLINE_BREAKER_FAILURES": "3", **named}


async def ask(url: str, text: str, path: str = "/") -> tuple[str, str]:
    """Ask; return the task's state and its final text: the answer, or the reason of a failure."""
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
    """Ask as `ask` does, but stream the answer, because it may be long."""
    state, pieces = "", [""]
    async with sse(url, "/", "SendStreamingMessage", {"message": user_message(text)}) as answer:
        async for event in answer.events():
            if status := event.result.get("statusUpdate"):
                state = status["status"]["state"].removeprefix("TASK_STATE_")
            if update := event.result.get("artifactUpdate"):
                parts = [part["text"] for part in update["artifact"]["parts"]]
                if not update.get("append"):
                    pieces = []
                pieces += parts
    return state, "".join(pieces)


# The MCP hop.


def script(source: str) -> Json:
    return {"command": sys.executable, "args": ["-u", "-c", source]}


def mcp_file(folder: Path, sign: Path) -> str:
    """Configure servers that hang, send garbage, or fail to start while the file `sign` exists."""
    frail = (
        f"import os, sys\nif os.path.exists({str(sign)!r}): sys.exit(7)\n"
        f"os.execv(sys.executable, [sys.executable, {AWKWARD!r}])"
    )
    servers = {
        "frail": script(frail),
        "stuck": script("import time; time.sleep(600)") | {"trunkline": {"connect_timeout_s": 0.5}},
        "noisy": script("while True: print('garbage')"),
    }
    return only_servers(folder, "math", "currency", own=servers)["TRUNKLINE_MCP_FILE"]


async def tool_servers(mesh_address: str) -> dict[str, Json]:
    """Return the servers in `trunkline tools --json`, by name."""
    done = await run_command("tools", "--json", "--mesh", mesh_address)
    assert done.exit == 0, done
    return {server["name"]: server for server in done.json["servers"]}


async def test_a_tool_server_that_fails_harms_no_other(tmp_path: Path) -> None:
    """Its breaker opens, is half-open after a restart, and closes after a successful call."""
    sign = tmp_path / "broken"
    sign.touch()
    flags = ("--mcp", mcp_file(tmp_path, sign))
    variables = environment(breaker_open_s="2")
    async with (
        running_mesh(tmp_path, *flags, environment=variables) as mesh,
        ChannelPool(mesh_credentials()) as channels,
    ):
        tools = ToolClient(channels.get(mesh.mesh_address))

        async def has_breaker(name: str, breaker: str, *, is_ready: bool) -> bool:
            (server,) = (await tools.list_tools((name,))).servers
            has_state = (server.state == tool_service_pb2.TOOL_SERVER_STATE_READY) == is_ready
            return has_state and server.breaker == breaker

        for name in ("frail", "stuck", "noisy"):
            # One after the other, because a breaker is half-open while its probe runs.
            await poll(partial(has_breaker, name, "open", is_ready=False))
        shown = await tool_servers(mesh.mesh_address)
        assert {shown[name]["state"] for name in ("frail", "stuck", "noisy")} == {
            "TOOL_SERVER_STATE_FAILED"
        }
        error = shown["frail"]["error"]
        assert error.startswith("it kept failing, at last: it exited with code 7"), error

        assert await ask(mesh.http_url, "what is 2+2") == ("COMPLETED", "4")
        state, error = await ask(mesh.http_url, "@frail repeat hello")
        assert state == "FAILED"
        assert "tool server 'frail' is down: it kept failing" in error
        state, error = await ask(mesh.http_url, "what is 2+2; @stuck do something")
        assert state == "COMPLETED"
        assert error.startswith("4")
        assert "tool server 'stuck' is down: it kept failing" in error

        sign.unlink()
        await poll(partial(has_breaker, "frail", "half-open", is_ready=True))
        assert (await tool_servers(mesh.mesh_address))["frail"]["breaker"] == "half-open"
        assert await ask(mesh.http_url, "@frail repeat hello") == ("COMPLETED", "hello")
        shown = await tool_servers(mesh.mesh_address)
        assert {shown[name]["breaker"] for name in ("frail", "math", "currency")} == {"closed"}


# The hops between hosts.


@asynccontextmanager
async def running_trouble(folder: Path) -> AsyncIterator[Services]:
    """Run a mesh of processes with a good agent and bad ones; `garbler` is in this process."""
    module = "harness.agents.misbehaving_agents"
    # The lease is long, so that a host busy with a flood is not declared dead.
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
            await poll(partial(are_listed, services, "garbler", "flapper"))
            yield services


async def are_listed(services: Services, *agents: str) -> bool:
    """Return True if the bridge lists these agents."""
    async with httpx.AsyncClient(base_url=services.http_url, timeout=PATIENCE_S) as client:
        paths = [f"/agents/{name}/.well-known/agent-card.json" for name in agents]
        return all([(await client.get(path)).status_code == 200 for path in paths])


async def flap(services: Services, rng: random.Random) -> None:
    """Kill the flapper and restart it, in an endless loop."""
    while True:
        await asyncio.sleep(rng.uniform(1, 3))
        await services.kill("flapper")
        await asyncio.sleep(rng.uniform(0, 1))
        await services.restart("flapper")


async def test_outbound_resilience(tmp_path: Path, scale: PromiseScale, rng: random.Random) -> None:
    """Agents hang, send garbage, flood and flap: each error names its agent; the others work."""
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
        state, text = await ask(
            url, "@echo alpha; @hanger wait; @garbler speak; @flooder pour 300; @echo omega"
        )
        assert state == "COMPLETED", text
        lines = text.split("\n")
        assert (lines[0], lines[-1]) == ("alpha", "omega"), lines
        assert lines[1].startswith('Could not answer "wait": '), lines
        assert lines[1].endswith("(agent hanger)."), lines
        assert lines[2].startswith('Could not answer "speak": '), lines
        assert lines[2].endswith("(agent garbler)."), lines
        assert lines[3].startswith("xxxx"), lines

    async def flapping(url: str) -> None:
        state, text = await ask(url, "@flapper once")
        assert (state, text) == ("COMPLETED", "flapped once") or "flapper" in text, (state, text)
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
    """Seen from the bridge: closed, open when the host dies, half-open, closed once it is back."""
    # The lease is long: a breaker is for a host that is still listed and can't be reached.
    write_api_keys(tmp_path / "keys.toml", [("ann", "acme", "key-of-ann")])
    variables = environment(
        lease_s="120",
        breaker_open_s="1",
        api_keys_file=str(tmp_path / "keys.toml"),
        anonymous="true",
    )
    async with open_services(tmp_path, environment=variables) as services:
        await services.start("registry", "registry")
        await services.start("echo", "agents", "echo")
        await services.start("bridge", "bridge", "--default", "echo")
        await poll(partial(are_listed, services, "echo"))
        url = services.http_url

        async def has_breaker(state: str) -> bool:
            headers = {"X-API-Key": "key-of-ann"}
            async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
                readiness = (await client.get("/readyz", headers=headers)).json()
            breakers = readiness.get("breakers", {})
            return bool(breakers.get(services.address("echo")) == state)

        async def ask_reaches(state: str) -> bool:
            await send(url, "/", "SendMessage", params(), {"Trunkline-Timeout": "1"})
            return await has_breaker(state)

        def params() -> Json:
            return {"message": user_message("hello")}

        assert await ask(url, "hello") == ("COMPLETED", "hello")
        assert await has_breaker("closed")
        await services.kill("echo")
        await poll(partial(ask_reaches, "open"))
        await poll(partial(has_breaker, "half-open"))
        await services.restart("echo")
        await poll(partial(ask_reaches, "closed"))
        assert await ask(url, "hello again") == ("COMPLETED", "hello again")
