"""Promise 9: a submit with a key is idempotent, even across a kill; a plain request never is."""

import asyncio
import os
import random
import signal
from pathlib import Path

from harness.a2a.sse_client import call, user_message
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import running_mesh
from harness.promise_scale import PromiseScale
from trunkline.a2a_wire.protocol import RESUME_EXTENSION
from trunkline.errors import PeerError
from trunkline.mesh.client import ChannelPool, HostClient
from trunkline.v1 import message_pb2, message_service_pb2, part_pb2, snapshot_pb2, task_service_pb2

RESUME = {"A2A-Extensions": RESUME_EXTENSION}
# The number of requests that a client has in flight.
AT_ONCE = 100


def a_message(message_id: str) -> message_pb2.Message:
    return message_pb2.Message(
        message_id=message_id,
        role=message_pb2.ROLE_USER,
        parts=[part_pb2.Part(text="wait 0.05")],
    )


async def submit(client: HostClient, message_id: str) -> str | None:
    """Submit with a key; return the task's id, or None if the call failed without a response."""
    submission = message_service_pb2.Submission(account="acme", caller="clerk", idempotent=True)
    try:
        answer = await client.send_message(
            agent="echo",
            message=a_message(message_id),
            submission=submission,
            return_immediately=True,
            timeout_s=10,
        )
    except PeerError:
        return None
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    return answer.task.id


async def submit_many(channels: ChannelPool, address: str, message_id: str, count: int) -> set[str]:
    """Submit repeatedly and concurrently; return the ids of all tasks in responses."""
    client = HostClient(channels.get(address))
    task_ids: set[str] = set()
    turns = asyncio.Semaphore(AT_ONCE)

    async def submit_in_turn() -> None:
        async with turns:
            task_id = await submit(client, message_id)
            if task_id is not None:
                task_ids.add(task_id)

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(submit_in_turn())
    return task_ids


async def tasks_of(channels: ChannelPool, address: str, account: str) -> list[str]:
    request = task_service_pb2.ListTasksRequest(account=account, page_size=100)
    page = await HostClient(channels.get(address)).tasks.ListTasks(request)
    assert page.total_size == len(page.tasks)
    return [row.task_id for row in page.tasks]


async def test_submit_once(tmp_path: Path, scale: PromiseScale, rng: random.Random) -> None:
    """A thousand submits with one key, concurrent and across a SIGKILL, create one task."""
    count = scale.pick(ci=120, prove=1000)
    kills = scale.pick(ci=1, prove=3)
    message_id = f"once-{rng.getrandbits(64):x}"
    task_ids: set[str] = set()
    async with ChannelPool(mesh_credentials()) as channels, asyncio.TaskGroup() as group:
        for _ in range(kills):
            async with running_mesh(tmp_path) as mesh:
                submitting = group.create_task(
                    submit_many(channels, mesh.mesh_address, message_id, count // (kills + 1))
                )
                # The kill comes after a random number of event loop iterations, not after a time.
                for _ in range(rng.randrange(2000)):
                    await asyncio.sleep(0)
                os.killpg(mesh.process.pid, signal.SIGKILL)
                await mesh.process.wait()
                task_ids |= await submitting
        async with running_mesh(tmp_path) as mesh:
            task_ids |= await submit_many(
                channels, mesh.mesh_address, message_id, count // (kills + 1)
            )
            assert await tasks_of(channels, mesh.mesh_address, "acme") == sorted(task_ids)
    assert len(task_ids) == 1, task_ids
    scale.report(submits=count, kills=kills, tasks=len(task_ids))


async def test_plain_anonymous_requests_are_always_new(tmp_path: Path, scale: PromiseScale) -> None:
    """Repeated messageIds create a task each; with the resume extension they create one task."""
    count = scale.pick(ci=20, prove=200)
    message = user_message("echo hello")
    async with running_mesh(tmp_path) as mesh:

        async def ask(headers: dict[str, str]) -> str:
            params = {"message": message, "configuration": {"returnImmediately": True}}
            answer = await call(mesh.http_url, "/agents/echo", "SendMessage", params, headers)
            task_id: str = answer["result"]["task"]["id"]
            return task_id

        async with asyncio.TaskGroup() as group:
            plain = [group.create_task(ask({})) for _ in range(count)]
        assert len({task.result() for task in plain}) == count
        async with asyncio.TaskGroup() as group:
            keyed = [group.create_task(ask(RESUME)) for _ in range(count)]
        assert len({task.result() for task in keyed}) == 1
    scale.report(requests=count)
