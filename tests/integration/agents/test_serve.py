"""`await serve(...)`: agents served within a program, until the call is canceled."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness.mesh.host_processes import PATIENCE_S, Caller, has_ended, text_of
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import Services, open_services
from harness.mesh.recorded_spans import forget_provider
from trunkline import FunctionAgent, TaskContext, agent, serve
from trunkline.errors import ConfigurationError
from trunkline.mesh.client import ChannelPool, Directory
from trunkline.v1 import task_pb2


@pytest.fixture(autouse=True)
def fresh_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_provider(monkeypatch)


@agent
async def greeter(task: TaskContext) -> str:
    """Greet people by name."""
    return f"Hello, {task.text}!"


@agent
async def sleeper(task: TaskContext) -> None:
    """Work until it is canceled."""
    await task.working("sleeping")
    await asyncio.Event().wait()


@asynccontextmanager
async def mesh_without_agents(folder: Path) -> AsyncIterator[tuple[Services, Caller]]:
    async with open_services(folder) as services, ChannelPool(mesh_credentials()) as channels:
        await services.start("registry", "registry")
        async with Directory(channels, services.mesh_address) as directory:
            yield services, Caller(directory)


async def stop(serving: asyncio.Task[None]) -> None:
    """Cancel the call and wait for its end; fail if it ends otherwise."""
    serving.cancel()
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    assert serving.cancelled()


async def test_it_answers_on_free_ports_until_it_is_canceled(tmp_path: Path) -> None:
    async with mesh_without_agents(tmp_path) as (services, caller), asyncio.TaskGroup() as group:

        def start(*agents: FunctionAgent) -> asyncio.Task[None]:
            data = tmp_path / "agents"
            return group.create_task(serve(*agents, mesh=services.mesh_address, data_dir=data))

        serving = start(greeter, sleeper)
        await caller.wait_for_agents("greeter", "sleeper")
        address = caller.directory.choose_host("greeter").address
        task_id = await caller.begin("Ada", agent="greeter")
        answered = await caller.until(task_id, has_ended)
        assert answered.task.status.state == task_pb2.TASK_STATE_COMPLETED
        assert text_of(answered) == "Hello, Ada!"

        await stop(serving)
        await caller.wait_for_agents()
        host, _, port = address.rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, int(port))

        # The journal is closed in order: the next call serves its tasks.
        serving = start(greeter)
        await caller.wait_for_agents("greeter")
        assert text_of(await caller.until(task_id, has_ended)) == "Hello, Ada!"
        await stop(serving)


async def test_canceling_it_ends_a_running_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_DRAIN_GRACE_S", "0.1")
    async with mesh_without_agents(tmp_path) as (services, caller), asyncio.TaskGroup() as group:

        def start() -> asyncio.Task[None]:
            data = tmp_path / "agents"
            return group.create_task(serve(sleeper, mesh=services.mesh_address, data_dir=data))

        serving = start()
        await caller.wait_for_agents("sleeper")
        task_id = await caller.begin("now", agent="sleeper")
        await caller.until(
            task_id, lambda found: found.task.status.state == task_pb2.TASK_STATE_WORKING
        )
        await stop(serving)
        await caller.wait_for_agents()

        serving = start()
        ended = await caller.until(task_id, has_ended)
        assert ended.task.status.state == task_pb2.TASK_STATE_FAILED
        await stop(serving)


async def test_a_setting_that_is_not_valid_is_raised() -> None:
    with pytest.raises(ConfigurationError, match="mesh"):
        await serve(greeter, mesh="nowhere")
