"""Promise 5: cancel at the root stops every descendant and the tool; a race has one outcome."""

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path

from harness.a2a.sse_client import PATIENCE_S, ClientFold, Json, call, sse, user_message
from harness.mcp.blocked_tool import blocked_tool, mcp_flags
from harness.mesh.processes import MeshProcess, running_mesh
from harness.promise_scale import PromiseScale, percentiles
from trunkline.client import ChannelPool, HostClient
from trunkline.v1 import event_pb2, task_pb2, task_service_pb2

HARNESS = Path(__file__).parents[1] / "harness"
# As many races as run at the same time.
RACES_AT_ONCE = 16


async def states(channels: ChannelPool, mesh: MeshProcess) -> Counter[str]:
    """How many tasks are in which state."""
    client = HostClient(channels.get(mesh.mesh_address))
    found: Counter[str] = Counter()
    request = task_service_pb2.ListTasksRequest(account="anonymous", page_size=100)
    while True:
        page = await client.list_tasks(request)
        found.update(task_pb2.TaskState.Name(row.status.state) for row in page.tasks)
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def test_cancel_means_stop(tmp_path: Path, scale: PromiseScale) -> None:
    """Three hops and a blocked MCP tool: all of it stops, and the tool is told."""
    runs = scale.pick(ci=20, prove=1000)
    answered: list[float] = []
    told: list[float] = []
    async with (
        running_mesh(tmp_path, *mcp_flags(tmp_path)) as mesh,
        blocked_tool() as tool,
        ChannelPool(ping_s=PATIENCE_S) as channels,
    ):
        for _ in range(runs):
            params: Json = {"message": user_message(tool.question)}
            params["configuration"] = {"returnImmediately": True}
            asked = await call(mesh.http_url, "/", "SendMessage", params)
            async with asyncio.timeout(PATIENCE_S):
                ended = await tool.begins()
                started = time.perf_counter()
                task_id = asked["result"]["task"]["id"]
                canceled = await call(mesh.http_url, "/", "CancelTask", {"id": task_id})
                answered.append(time.perf_counter() - started)
                await ended.wait()
                told.append(time.perf_counter() - started)
            assert canceled["result"]["status"]["state"] == "TASK_STATE_CANCELED"
        # The supervisor's task and the agent's, of every run, and nothing that still works.
        assert await states(channels, mesh) == {"TASK_STATE_CANCELED": 2 * runs}
    scale.report(runs=runs, answered=percentiles(answered), tool_told=percentiles(told))


async def race(mesh: MeshProcess, channels: ChannelPool, rng: random.Random) -> str:
    """Let a cancel race with an end; return the outcome that everybody saw."""
    way = rng.choice(("complete", "fail", "ask", "answer"))
    first = "ask" if way == "answer" else way
    params: Json = {"message": user_message(f"{first} {rng.randrange(12)}")}
    fold = ClientFold()
    async with sse(mesh.http_url, "/agents/racer", "SendStreamingMessage", params) as answer:
        events = answer.events()
        fold.apply(await anext(events))
        if way == "answer":
            # Until it asks; the answer then races with the cancel.
            async for event in events:
                fold.apply(event)
        task_id = fold.task_id
        for _ in range(rng.randrange(40)):
            await asyncio.sleep(0)
        async with asyncio.TaskGroup() as group:
            canceling = group.create_task(
                call(mesh.http_url, "/agents/racer", "CancelTask", {"id": task_id})
            )
            if way == "answer":
                message = user_message(f"complete {rng.randrange(8)}", taskId=task_id)
                group.create_task(
                    call(mesh.http_url, "/agents/racer", "SendMessage", {"message": message})
                )
        async for event in events:
            fold.apply(event)
    canceled = canceling.result()
    task = (await call(mesh.http_url, "/agents/racer", "GetTask", {"id": task_id}))["result"]
    state: str = task["status"]["state"]
    if "result" in canceled:
        assert state == canceled["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    else:
        # -32002: the task had ended before the cancel took hold.
        assert canceled["error"]["code"] == -32002, canceled
        assert state in ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED")
    if fold.has_ended:
        assert fold.state == state
        wanted = {one["artifactId"]: one["parts"][0]["text"] for one in task.get("artifacts", ())}
        assert fold.texts == wanted
    else:
        assert fold.state == "TASK_STATE_INPUT_REQUIRED"
    assert await ends(channels, mesh, task_id) == [state]
    return state.removeprefix("TASK_STATE_").lower()


async def ends(channels: ChannelPool, mesh: MeshProcess, task_id: str) -> list[str]:
    """The terminal states in a task's journal, which must be its last event, and but one."""
    found: list[str] = []
    client = HostClient(channels.get(mesh.mesh_address))
    async with client.watch_task(
        task_id, account="anonymous", after=0, with_snapshot=False
    ) as stream:
        async for batches in stream:
            for sealed in batches:
                for event in event_pb2.EventBatch.FromString(sealed).events:
                    assert not found, "something came behind the end"
                    state = event.status.status.state
                    if state in ENDED:
                        found.append(task_pb2.TaskState.Name(state))
    return found


ENDED = (
    task_pb2.TASK_STATE_COMPLETED,
    task_pb2.TASK_STATE_FAILED,
    task_pb2.TASK_STATE_CANCELED,
    task_pb2.TASK_STATE_REJECTED,
)


async def test_a_race_with_cancel_has_one_outcome(
    tmp_path: Path, scale: PromiseScale, rng: random.Random
) -> None:
    """Cancel against completion, failure, a question and an answer: the same for every reader."""
    races = scale.pick(ci=150, prove=10_000)
    outcomes: Counter[str] = Counter()
    turns = asyncio.Semaphore(RACES_AT_ONCE)
    flags = ("--agent", "harness.agents.race_agent:racer")
    environment = {
        "PYTHONPATH": os.pathsep.join((str(HARNESS.parent), os.environ.get("PYTHONPATH", "")))
    }
    async with (
        running_mesh(tmp_path, *flags, environment=environment) as mesh,
        ChannelPool(ping_s=PATIENCE_S) as channels,
    ):

        async def one(seed: int) -> None:
            async with turns:
                outcomes[await race(mesh, channels, random.Random(seed))] += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(races):
                group.create_task(one(rng.getrandbits(64)))
    assert outcomes.total() == races
    assert set(outcomes) == {"canceled", "completed", "failed"}, outcomes
    scale.report(races=races, **outcomes)
