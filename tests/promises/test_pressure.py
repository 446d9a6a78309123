"""Limits per agent, priorities, and a load far above capacity."""

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from harness.a2a.sse_client import (
    PATIENCE_S,
    ClientFold,
    Json,
    RefusedError,
    send,
    sse,
    user_message,
)
from harness.agents.worker_agent import CONCURRENCY, WORK_S
from harness.mesh.identity import mesh_credentials
from harness.mesh.process_sizes import resident_bytes
from harness.mesh.processes import WITH_HARNESS, MeshProcess, running_mesh
from harness.promise_scale import PromiseScale
from trunkline.errors import OverloadedError
from trunkline.mesh.client import ChannelPool, HostClient
from trunkline.v1 import (
    message_pb2,
    message_service_pb2,
    part_pb2,
    snapshot_pb2,
    task_pb2,
    task_service_pb2,
)

QUEUE_LIMIT = 40
FLAGS = ("--agent", "harness.agents.worker_agent:worker")
MIB = 1024 * 1024


def environment() -> dict[str, str]:
    """Return the environment of a mesh with a short queue and this test's agent."""
    return {**WITH_HARNESS, "TRUNKLINE_QUEUE_LIMIT": str(QUEUE_LIMIT)}


async def submit(client: HostClient, text: str, *, priority: int = 0) -> str:
    """Submit to the worker; return the task's id. Raises OverloadedError."""
    answer = await client.send_message(
        agent="worker",
        message=message_pb2.Message(
            message_id=text, role=message_pb2.ROLE_USER, parts=[part_pb2.Part(text=text)]
        ),
        submission=message_service_pb2.Submission(account="anonymous", priority=priority),
        return_immediately=True,
    )
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    return answer.task.id


async def states(client: HostClient) -> Counter[str]:
    """Count the worker's tasks by state."""
    counts: Counter[str] = Counter()
    for state in (
        task_pb2.TASK_STATE_SUBMITTED, task_pb2.TASK_STATE_WORKING,
        task_pb2.TASK_STATE_COMPLETED, task_pb2.TASK_STATE_FAILED, task_pb2.TASK_STATE_CANCELED,
    ):  # fmt: skip
        request = task_service_pb2.ListTasksRequest(
            account="anonymous", agent="worker", state=state, page_size=1
        )
        counts[task_pb2.TaskState.Name(state)] = (await client.tasks.ListTasks(request)).total_size
    return +counts


async def test_priorities_overtake_and_a_full_queue_says_so_at_once(tmp_path: Path) -> None:
    """All slots busy and the queue full: the next task is refused, the urgent one runs first."""
    async with (
        running_mesh(tmp_path, *FLAGS, environment=environment()) as mesh,
        ChannelPool(mesh_credentials(), ping_s=PATIENCE_S) as channels,
    ):
        client = HostClient(channels.get(mesh.mesh_address))
        blocking = [await submit(client, "block") for _ in range(CONCURRENCY)]
        waiting = [await submit(client, f"low-{n}", priority=-n) for n in range(QUEUE_LIMIT)]
        with pytest.raises(OverloadedError) as overloaded:
            await submit(client, "one too many")
        assert float(overloaded.value.retry_after_s) >= 1
        params: Json = {"message": user_message("one too many")}
        status, headers, body = await send(mesh.http_url, "/agents/worker", "SendMessage", params)
        assert status == 429, body
        assert int(headers["retry-after"]) >= 1
        with pytest.raises(RefusedError) as refused:
            async with sse(mesh.http_url, "/agents/worker", "SendStreamingMessage", params):
                pass
        assert refused.value.status == 429
        # One slot is freed for the urgent task; only then do the others run.
        await client.cancel_task(waiting.pop(), account="anonymous")
        urgent = await submit(client, "urgent", priority=10)
        for task_id in blocking:
            await client.cancel_task(task_id, account="anonymous")
        ends = [await ended_at(client, task_id) for task_id in (urgent, *waiting)]
        # Tasks that run concurrently end together; the order among the batches is that of priority.
        assert ends[0] <= sorted(ends)[CONCURRENCY - 1]
        for n in range(len(ends) - 2 * CONCURRENCY):
            assert ends[n] <= ends[n + 2 * CONCURRENCY]


async def all_ended(client: HostClient) -> None:
    """Follow every unfinished task to its end."""
    for state in (task_pb2.TASK_STATE_SUBMITTED, task_pb2.TASK_STATE_WORKING):
        request = task_service_pb2.ListTasksRequest(
            account="anonymous", agent="worker", state=state, page_size=100
        )
        while page := (await client.tasks.ListTasks(request)).tasks:
            for row in page:
                await ended_at(client, row.task_id)


async def ended_at(client: HostClient, task_id: str) -> int:
    """Wait for a task's completion; return its time in ns."""
    async with client.watch_task(task_id, account="anonymous", after=0) as stream:
        async for _ in stream:
            pass
    task = (await client.get_task(task_id, account="anonymous")).task
    assert task.status.state == task_pb2.TASK_STATE_COMPLETED
    return task.status.timestamp.ToNanoseconds()


async def test_ten_times_the_capacity(
    tmp_path: Path, scale: PromiseScale, rng: random.Random
) -> None:
    """Accepted tasks end, others are refused at once, and memory does not grow."""
    seconds = scale.pick(ci=2, prove=60)
    rate = 10 * CONCURRENCY / WORK_S
    outcomes: Counter[str] = Counter()
    async with (
        running_mesh(tmp_path, *FLAGS, environment=environment()) as mesh,
        ChannelPool(mesh_credentials(), ping_s=PATIENCE_S) as channels,
    ):
        pid = mesh.process.pid
        rss: list[int] = []
        client = HostClient(channels.get(mesh.mesh_address))
        async with asyncio.TaskGroup() as group:
            for second in range(seconds):
                next_second = time.monotonic() + 1
                for _ in range(int(rate)):
                    group.create_task(offer(mesh, outcomes, rng.random()))
                rss.append(resident_bytes(Path(f"/proc/{pid}")))
                # The next second starts when this one is over, however fast the responses are.
                await asyncio.sleep(max(0.0, next_second - time.monotonic()))
                assert second < seconds
        offered = int(rate) * seconds
        assert outcomes.total() == offered
        assert set(outcomes) == {"accepted", "refused"}
        assert outcomes["refused"] > 0
        assert outcomes["accepted"] >= QUEUE_LIMIT
        await all_ended(client)
        assert await states(client) == {"TASK_STATE_COMPLETED": outcomes["accepted"]}
        # The agent is as ready as before.
        assert await ended_at(client, await submit(client, "once more"))
        rss.append(resident_bytes(Path(f"/proc/{pid}")))
    if scale.is_proof:
        # After a third of the time, every bounded buffer is full.
        assert max(rss[seconds // 3 :]) - min(rss[seconds // 3 :]) <= 32 * MIB, rss
    scale.report(
        offered=offered, rss_mib=[size // MIB for size in (rss[0], max(rss), rss[-1])], **outcomes
    )


async def offer(mesh: MeshProcess, outcomes: Counter[str], delay_s: float) -> None:
    """Send a message after a delay; record the outcome."""
    await asyncio.sleep(delay_s)
    params: Json = {"message": user_message("work")}
    if delay_s < 0.9:
        params["configuration"] = {"returnImmediately": True}
        status, headers, body = await send(mesh.http_url, "/agents/worker", "SendMessage", params)
        if status == 429:
            assert int(headers["retry-after"]) >= 1
            outcomes["refused"] += 1
        else:
            assert "result" in body, body
            outcomes["accepted"] += 1
        return
    try:
        async with sse(mesh.http_url, "/agents/worker", "SendStreamingMessage", params) as answer:
            fold = ClientFold()
            async for event in answer.events():
                fold.apply(event)
            assert fold.state == "TASK_STATE_COMPLETED"
            outcomes["accepted"] += 1
    except RefusedError as refused:
        outcomes["refused" if refused.status == 429 else f"status {refused.status}"] += 1
