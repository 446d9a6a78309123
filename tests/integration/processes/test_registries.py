"""A mesh has several registries. Any of them may die, and all of them for a while."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import httpx

from harness.a2a.sse_client import call, user_message
from harness.mesh.command_line import run_command
from harness.mesh.host_processes import PATIENCE_S, QUICK
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import Services, open_services
from harness.polling import poll, wait_for
from trunkline.core.network import is_listening
from trunkline.mesh.client import ChannelPool, RegistryClient

REGISTRIES = ("registry", "registry-2")
LATE = """
from trunkline import agent

@agent
async def late(task):
    \"\"\"Answers with the question.\"\"\"
    return task.text
"""
# A new host is on the mesh within this time after it is ready.
SEEN_S = 2.0
# Every client of the load sends several of them.
REQUESTS = 50


@asynccontextmanager
async def two_registries(folder: Path) -> AsyncIterator[Services]:
    """Run a mesh of two registries, a bridge and an agent."""
    async with open_services(folder, environment=QUICK) as services:
        (folder / "late.py").write_text(LATE)
        services.reserve_mesh_address(registries=2)
        for registry in REGISTRIES:
            await services.start(registry, "registry")
        await services.start("echo", "agents", "echo")
        await services.start("bridge", "bridge", "--default", "echo")
        await answered(services)
        yield services


async def ask(services: Services, agent: str = "echo") -> str:
    """Ask an agent; return its answer. A response that is no answer fails."""
    answer = await call(
        services.http_url, f"/agents/{agent}", "SendMessage", {"message": user_message("hello")}
    )
    return str(answer["result"]["task"]["artifacts"][0]["parts"][0]["text"])


async def answered(
    services: Services, agent: str = "echo", *, within_s: float = PATIENCE_S
) -> None:
    """Ask an agent until it answers."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                assert await ask(services, agent) == "hello"
            except KeyError:
                await asyncio.sleep(0.02)
            else:
                return


@asynccontextmanager
async def load(services: Services) -> AsyncIterator[list[float]]:
    """Ask all the time in the block, from four clients; every request must succeed.

    Yields the times that the requests took.
    """
    took: list[float] = []
    is_over = asyncio.Event()

    async def work() -> None:
        while not is_over.is_set():
            started_s = time.monotonic()
            assert await ask(services) == "hello"
            took.append(time.monotonic() - started_s)

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(work())
        yield took
        is_over.set()


async def wait_for_requests(took: list[float]) -> None:
    """Wait until many more requests of the load have succeeded."""
    wanted = len(took) + REQUESTS
    await wait_for(lambda: len(took) >= wanted)


async def wait_for_agents(services: Services, registry: str) -> set[str]:
    """Return the agents of a registry that came back empty, once a host has registered again."""
    async with ChannelPool(mesh_credentials()) as channels:
        client = RegistryClient(channels.get(services.address(registry)))
        hosts = await poll(client.list_agents, lambda hosts: any(host.agents for host in hosts))
    return {agent.card.name for host in hosts for agent in host.agents}


async def wait_for_whole_list(services: Services, registry: str) -> None:
    """Wait until a registry lets its watchers forget the hosts that have not registered at it."""
    async with ChannelPool(mesh_credentials()) as channels, asyncio.timeout(PATIENCE_S):
        client = RegistryClient(channels.get(services.address(registry)))
        async with aclosing(client.watch_agents()) as responses:
            async for response in responses:
                if response.hosts and not response.is_partial:
                    return
    raise AssertionError(f"{registry} went away")


async def test_no_request_fails_when_a_registry_dies_and_comes_back_empty(tmp_path: Path) -> None:
    async with two_registries(tmp_path) as services:
        for registry in REGISTRIES:
            async with load(services) as took:
                await services.kill(registry)
                await wait_for_requests(took)
                # Others come and go meanwhile.
                await services.start("late", "agents", "--agent", "late:late")
                await answered(services, "late", within_s=SEEN_S)
                await services.terminate("late")
                await services.restart(registry)
                assert await wait_for_agents(services, registry) == {"echo"}
                await wait_for_requests(took)
        # What one registry alone knows suffices after it has come back.
        await services.kill("registry")
        await answered(services, within_s=SEEN_S)


async def test_a_mesh_goes_on_while_all_registries_are_away(tmp_path: Path) -> None:
    async with two_registries(tmp_path) as services:
        async with load(services) as took:
            for registry in REGISTRIES:
                await services.kill(registry)
            # Longer than a lease, which nobody takes away now. What does not happen has no event.
            await asyncio.sleep(1.5 * float(QUICK["TRUNKLINE_LEASE_S"]))
            await wait_for_requests(took)
            await services.restart("registry-2")
            await wait_for_whole_list(services, "registry-2")
            await wait_for_requests(took)
        await services.start("late", "agents", "--agent", "late:late")
        await answered(services, "late", within_s=SEEN_S)
        done = await run_command("agents", "--json", "--mesh", services.mesh_address)
        assert {row["name"] for row in done.json} == {"echo", "late"}


async def test_processes_start_while_all_registries_are_away(tmp_path: Path) -> None:
    async with open_services(tmp_path, environment=QUICK) as services:
        services.reserve_mesh_address(registries=2)
        await services.launch("bridge", "bridge", "--default", "echo")
        for name, *words in (("echo", "agents", "echo"), ("tools", "tools"), ("messages",) * 2):
            await services.launch(name, *words)
        url = f"http://{services.address('bridge')}"
        await poll(lambda: is_listening(url))
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/readyz")).status_code == 503
            body = {"message": user_message("hello")}
            headers = {"A2A-Version": "1.0"}
            refused = await client.post("/agents/echo/message:send", json=body, headers=headers)
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) >= 1
            await services.start("registry-2", "registry")
            for name in ("bridge", "echo", "tools", "messages"):
                await services.ready(name)
            await answered(services, within_s=SEEN_S)
            assert (await client.get("/readyz")).status_code == 200


async def test_each_registry_takes_a_token_and_all_of_them_once(tmp_path: Path) -> None:
    own, other, third = (
        {"TRUNKLINE_IDENTITY_FOLDER": "", "XDG_STATE_HOME": str(tmp_path / user)}
        for user in ("own", "other", "third")
    )
    async with open_services(tmp_path, environment=QUICK | own) as services:
        services.reserve_mesh_address(registries=2)
        for registry in REGISTRIES:
            await services.start(registry, "registry")
        mesh = ("--mesh", services.mesh_address)
        words = ("mesh", "token", "--agent", "echo", *mesh)
        tokens = [(await run_command(*words, folder=None, **own)).out.strip() for _ in range(2)]
        assert (await run_command("mesh", "join", tokens[0], folder=None, **other)).exit == 0
        await services.kill("registry")
        again = await run_command("mesh", "join", tokens[0], folder=None, **third)
        assert (again.exit, "refuses the token" in again.err) == (1, True), again
        joined = await run_command("mesh", "join", tokens[1], folder=None, **third)
        assert joined.exit == 0, joined.err
        await services.start("bridge", "bridge", "--default", "echo")
        await services.start("echo", "agents", "echo", environment=third)
        await answered(services)
        # The other registry reads the revocation from what they share.
        await services.restart("registry")
        await services.kill("registry-2")
        revoked = await run_command("mesh", "revoke", "agents/echo", *mesh, folder=None, **own)
        assert revoked.exit == 0, revoked.err
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(KeyError):
                while True:
                    await ask(services)
