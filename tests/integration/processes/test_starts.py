"""Processes with `store` start while the database is away, or refuse a database that is wrong."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from harness.journal.postgres_server import PostgresServer
from harness.mesh.command_line import COMMAND, run_command
from harness.mesh.processes import free_address, read_line, running_process

PATIENCE_S = 60.0
SERVICES: Mapping[str, tuple[str, ...]] = {
    "registry": ("registry",),
    "bridge": ("bridge", "--http", "127.0.0.1:0", "--a2a-grpc", "127.0.0.1:0"),
    "tools": ("tools", "--listen", "127.0.0.1:0"),
    "messages": ("messages", "--listen", "127.0.0.1:0"),
    "agents": ("agents", "echo", "--listen", "127.0.0.1:0"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """The server that a test kills."""
    made = PostgresServer("fsync=off")
    yield made
    made.remove()


async def start(
    stack: AsyncExitStack, folder: Path, words: tuple[str, ...], variables: Mapping[str, str]
) -> asyncio.subprocess.Process:
    return await stack.enter_async_context(
        running_process(
            *(*COMMAND, "serve", *words),
            cwd=folder,
            environment=variables,
            stderr=asyncio.subprocess.PIPE,
        )
    )


async def wait_until_reported(process: asyncio.subprocess.Process, event: str) -> None:
    assert process.stderr is not None
    lines: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        while line := (await process.stderr.readline()).decode():
            lines.append(line)
            if event in line:
                return
    pytest.fail(f"ended without {event}: {lines}")


async def test_every_process_waits_for_a_database_that_is_away_when_it_starts(
    tmp_path: Path, server: PostgresServer
) -> None:
    variables = {"TRUNKLINE_STORE": server.url, "TRUNKLINE_MESH": free_address()}
    await asyncio.to_thread(server.kill)
    async with AsyncExitStack() as stack:
        try:
            processes = [
                await start(stack, tmp_path, words, variables) for words in SERVICES.values()
            ]
            for process in processes:
                await wait_until_reported(process, "database.awaited")
        finally:
            await asyncio.to_thread(server.start)
        for process in processes:
            assert await read_line(process, "ready ")


async def test_a_bridge_with_a_secret_of_its_own_starts_while_the_database_is_away(
    tmp_path: Path, server: PostgresServer
) -> None:
    variables = {
        "TRUNKLINE_STORE": server.url,
        "TRUNKLINE_MESH": free_address(),
        "TRUNKLINE_WEBHOOK_SECRET": "whsec_" + "A" * 43 + "=",
    }
    await asyncio.to_thread(server.kill)
    try:
        async with AsyncExitStack() as stack:
            # A registry with `store` waits, and a process is ready once it is on the mesh.
            without_store = {"TRUNKLINE_MESH": variables["TRUNKLINE_MESH"]}
            registry = await start(stack, tmp_path, SERVICES["registry"], without_store)
            await read_line(registry, "ready ")
            bridge = await start(stack, tmp_path, SERVICES["bridge"], variables)
            assert (await read_line(bridge, "ready "))["http"]
    finally:
        await asyncio.to_thread(server.start)


@pytest.mark.parametrize("service", SERVICES)
async def test_a_process_ends_if_its_database_does_not_exist(
    tmp_path: Path, server: PostgresServer, service: str
) -> None:
    ended = await run_command(
        *("serve", *SERVICES[service]),
        folder=tmp_path,
        TRUNKLINE_STORE=server.url.removesuffix("postgres") + "missing",
        TRUNKLINE_MESH=free_address(),
    )
    assert ended.exit == 1
    assert "store: can't be used: " in ended.err
    assert 'database "missing" does not exist' in ended.err
