"""The aliases of a host's tasks, as its clients see them over a real connection."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.agents.inline_agents import NOTHING, define, message
from harness.journal.opening import open_journal
from harness.mesh.identity import mesh_credentials
from trunkline.errors import (
    InvalidArgumentError,
)
from trunkline.mesh.client import ChannelPool, HostClient
from trunkline.mesh.server import MeshServer
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.v1 import (
    snapshot_pb2,
    task_service_pb2,
)


async def answer(task: TaskContext) -> None:
    await task.complete("done")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[HostClient]:
    journal = open_journal(tmp_path / "journal.db")
    async with TaskHost(journal, [define(answer)]) as host:
        server = MeshServer(mesh_credentials())
        server.add_message_service(host)
        server.add_task_service(host)
        (address,) = await server.start("127.0.0.1:0")
        async with ChannelPool(mesh_credentials()) as channels:
            yield HostClient(channels.get(address))
        await server.stop(0)
    await journal.close()


async def create_task(client: HostClient) -> str:
    answer = await client.send_message(agent="tested", message=message("hi"), submission=NOTHING)
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    return answer.task.id


async def bind(
    client: HostClient, account: str, alias: str, task_id: str, replaces: str = ""
) -> str:
    request = task_service_pb2.SetTaskAliasRequest(
        account=account, alias=alias, task_id=task_id, replaces=replaces
    )
    return (await client.tasks.SetTaskAlias(request)).task_id


async def resolve(client: HostClient, account: str, alias: str) -> str:
    request = task_service_pb2.ResolveTaskAliasRequest(account=account, alias=alias)
    return (await client.tasks.ResolveTaskAlias(request)).task_id


async def test_an_alias_is_rebound_only_by_a_caller_that_knows_its_target(
    client: HostClient,
) -> None:
    task_id = await create_task(client)
    async with asyncio.TaskGroup() as group:
        settings = [
            group.create_task(bind(client, "acme", "mine", f"{task_id}{number}"))
            for number in range(5)
        ]
    (first,) = {setting.result() for setting in settings}
    assert await resolve(client, "acme", "mine") == first
    assert await bind(client, "acme", "mine", task_id, "another") == first
    assert await bind(client, "acme", "mine", task_id, first) == task_id
    assert await bind(client, "acme", "mine", task_id, first) == task_id
    assert await resolve(client, "acme", "mine") == task_id


async def test_aliases_are_per_account(client: HostClient) -> None:
    task_id = await create_task(client)
    assert await bind(client, "", "mine", task_id) == task_id
    assert await resolve(client, "anonymous", "mine") == task_id
    assert await resolve(client, "acme", "mine") == ""


@pytest.mark.parametrize(("alias", "task_id"), [("", "t"), ("a" * 1025, "t"), ("a", "")])
async def test_an_invalid_alias_is_refused(client: HostClient, alias: str, task_id: str) -> None:
    with pytest.raises(InvalidArgumentError):
        await bind(client, "", alias, task_id)
    assert await resolve(client, "", alias) == ""
