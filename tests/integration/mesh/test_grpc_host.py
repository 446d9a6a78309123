"""A host's messages and tasks, as its clients see them over a real connection."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness.agents.inline_agents import NOTHING, define, message, status_texts
from harness.journal.opening import open_journal
from harness.mesh.identity import mesh_credentials
from trunkline.errors import (
    InvalidArgumentError,
    PeerTimeoutError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from trunkline.journal.events import parse_header
from trunkline.journal.fold import Fold
from trunkline.mesh.client import ChannelPool, HostClient, MeshChannel, TaskStream
from trunkline.mesh.client.status import translate_errors
from trunkline.mesh.server import MeshServer
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.v1 import (
    event_pb2,
    message_pb2,
    message_service_pb2,
    snapshot_pb2,
    task_service_pb2,
)

ACCOUNT = ""


class Script:
    """An agent whose behaviour is the first word of its message, with pauses that the test ends."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.waits = asyncio.Event()

    async def __call__(self, task: TaskContext) -> None:
        match task.text.partition(" ")[0]:
            case "count":
                artifact = task.artifact("count")
                for number in range(1, int(task.text.split()[1]) + 1):
                    await artifact.append(f"{number} ")
                await artifact.close()
            case "ask" if task.turn == 1:
                await task.require_input("which one?")
            case "wait":
                await task.working("waiting")
                self.waits.set()
                await self.go_on.wait()
                await task.complete("waited")
            case "reply":
                await task.reply("directly")
            case _:
                await task.complete(f"turn {task.turn}")


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def host(tmp_path: Path, script: Script) -> AsyncIterator[TaskHost]:
    journal = open_journal(tmp_path / "journal.db")

    async def run(task: TaskContext) -> None:
        await script(task)

    async with TaskHost(journal, [define(run, direct_replies=True)]) as host:
        yield host
    await journal.close()


@pytest.fixture
async def channel(host: TaskHost) -> AsyncIterator[MeshChannel]:
    server = MeshServer(mesh_credentials())
    server.add_message_service(host)
    server.add_task_service(host)
    (address,) = await server.start("127.0.0.1:0")
    async with ChannelPool(mesh_credentials()) as channels:
        yield channels.get(address)
    await server.stop(0)


@pytest.fixture
def client(channel: MeshChannel) -> HostClient:
    return HostClient(channel)


async def send(client: HostClient, text: str, **ids: str) -> snapshot_pb2.TaskSnapshot:
    answer = await client.send_message(
        agent="tested", message=message(text, **ids), submission=NOTHING
    )
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    return answer


async def start(client: HostClient, text: str) -> snapshot_pb2.TaskSnapshot:
    answer = await client.send_message(
        agent="tested", message=message(text), submission=NOTHING, return_immediately=True
    )
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    return answer


async def fold_stream(stream: TaskStream) -> snapshot_pb2.TaskSnapshot:
    """Return the fold of a stream's events."""
    assert stream.snapshot is not None
    fold = Fold(stream.snapshot.task.id, stream.snapshot)
    async for batches in stream:
        for sealed in batches:
            fold.apply(event_pb2.EventBatch.FromString(sealed))
    return fold.snapshot()


async def sequences(stream: TaskStream) -> list[int]:
    covered: list[int] = []
    async for batches in stream:
        for header in map(parse_header, batches):
            covered += range(header.first_sequence, header.first_sequence + header.count)
    return covered


def submit(
    sent: message_pb2.Message, *, agent: str = "tested"
) -> message_service_pb2.StreamMessageRequest:
    return message_service_pb2.StreamMessageRequest(agent=agent, message=sent)


async def test_a_watch_from_any_cursor_yields_each_later_event_once(client: HostClient) -> None:
    whole = await send(client, "count 9")
    for after in range(whole.sequence):
        async with client.watch_task(
            whole.task.id, account=ACCOUNT, after=after, with_snapshot=False
        ) as stream:
            assert stream.snapshot is None
            assert await sequences(stream) == list(range(after + 1, whole.sequence + 1))


async def test_a_watch_with_a_snapshot_continues_from_it(client: HostClient) -> None:
    whole = await send(client, "count 9")
    async with client.watch_task(whole.task.id, account=ACCOUNT, after=4) as stream:
        assert stream.snapshot is not None
        assert stream.snapshot.sequence == 4
        assert (await fold_stream(stream)).task == whole.task


async def test_a_watch_at_the_head_is_open_before_anything_happens(
    client: HostClient, script: Script
) -> None:
    task_id = (await start(client, "wait")).task.id
    await script.waits.wait()
    head = (await client.get_task(task_id, account=ACCOUNT)).sequence
    for after in (None, head):
        async with client.watch_task(
            task_id, account=ACCOUNT, after=after, with_snapshot=False
        ) as stream:
            assert stream.snapshot is None
    async with client.watch_task(task_id, account=ACCOUNT, with_snapshot=False) as stream:
        script.go_on.set()
        assert (await sequences(stream))[0] == head + 1


async def test_a_watch_until_the_head_ends_while_the_task_continues(
    client: HostClient, script: Script
) -> None:
    task_id = (await start(client, "wait")).task.id
    await script.waits.wait()
    async with client.watch_task(task_id, account=ACCOUNT, after=0, until_head=True) as stream:
        snapshot_at_head = await fold_stream(stream)
    assert snapshot_at_head.task.status.state == State.TASK_STATE_WORKING
    script.go_on.set()


async def test_a_caller_that_runs_out_of_time_does_not_stop_its_task(
    client: HostClient, script: Script
) -> None:
    # On a busy machine the time may be over before the message arrives.
    for timeout_s in (0.2, 2.0, 20.0):
        with pytest.raises(PeerTimeoutError):
            await client.send_message(
                agent="tested", message=message("wait"), submission=NOTHING, timeout_s=timeout_s
            )
        if script.waits.is_set():
            break
    await script.waits.wait()
    script.go_on.set()
    listed = await client.tasks.ListTasks(task_service_pb2.ListTasksRequest())
    async with client.watch_task(listed.tasks[0].task_id, account=ACCOUNT, after=0) as stream:
        assert status_texts(await fold_stream(stream)) == "waited"


async def test_an_invalid_watch_is_refused_before_it_opens(client: HostClient) -> None:
    task = (await send(client, "one")).task
    for with_snapshot in (True, False):
        with pytest.raises(TaskNotFoundError):
            async with client.watch_task(
                "aaaaaaaa-0", account=ACCOUNT, with_snapshot=with_snapshot
            ):
                pass
        with pytest.raises(InvalidArgumentError):
            async with client.watch_task(
                task.id, account=ACCOUNT, after=10_000, with_snapshot=with_snapshot
            ):
                pass


async def test_a_method_of_a_later_release_is_unsupported(channel: MeshChannel) -> None:
    later: Any = channel.unary_unary("/trunkline.v1.TaskService/ForeseeTask")
    with pytest.raises(UnsupportedOperationError), translate_errors(channel.address):
        await later(b"")


async def test_events_that_are_ready_together_arrive_together(client: HostClient) -> None:
    whole = await send(client, "count 2000")
    async with client.watch_task(
        whole.task.id, account=ACCOUNT, after=0, with_snapshot=False
    ) as stream:
        sizes = [sum(parse_header(sealed).count for sealed in batches) async for batches in stream]
    assert sum(sizes) == whole.sequence
    assert len(sizes) < whole.sequence / 20


async def test_the_bytes_of_the_journal_are_the_bytes_of_the_wire(
    client: HostClient, host: TaskHost
) -> None:
    whole = await send(client, "count 5")
    journaled = await host.journal.read(whole.task.id, 0)
    async with client.watch_task(
        whole.task.id, account=ACCOUNT, after=0, with_snapshot=False
    ) as stream:
        received = [sealed async for batches in stream for sealed in batches]
    assert received == journaled


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
    task_id = (await send(client, "hello")).task.id
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
    task_id = (await send(client, "hello")).task.id
    assert await bind(client, "", "mine", task_id) == task_id
    assert await resolve(client, "anonymous", "mine") == task_id
    assert await resolve(client, "acme", "mine") == ""


@pytest.mark.parametrize(("alias", "task_id"), [("", "t"), ("a" * 1025, "t"), ("a", "")])
async def test_an_invalid_alias_is_refused(client: HostClient, alias: str, task_id: str) -> None:
    with pytest.raises(InvalidArgumentError):
        await bind(client, "", alias, task_id)
    assert await resolve(client, "", alias) == ""
