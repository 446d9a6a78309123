"""Promise 5: cancel at the root stops every descendant and the tool; a race has one outcome."""

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

from harness.a2a.sse_client import PATIENCE_S, ClientFold, Json, call, sse, user_message
from harness.mcp.blocked_tool import blocked_tool, mcp_flags
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import WITH_HARNESS, MeshProcess, running_mesh
from harness.promise_scale import PromiseScale, percentiles
from trunkline.mesh.client import ChannelPool, HostClient
from trunkline.v1 import event_pb2, task_pb2, task_service_pb2

# The number of concurrent races.
RACES_AT_ONCE = 16


async def states(channels: ChannelPool, mesh: MeshProcess) -> Counter[str]:
    """Count tasks by state."""
    client = HostClient(channels.get(mesh.mesh_address))
    counts: Counter[str] = Counter()
    request = task_service_pb2.ListTasksRequest(account="anonymous", page_size=100)
    while True:
        page = await client.tasks.ListTasks(request)
        counts.update(task_pb2.TaskState.Name(row.status.state) for row in page.tasks)
        if not page.next_page_token:
            return counts
        request.page_token = page.next_page_token


async def test_cancel_means_stop(tmp_path: Path, scale: PromiseScale) -> None:
    """Three hops and a blocked MCP tool: all stop, and the tool receives the cancellation."""
    runs = scale.pick(ci=20, prove=1000)
    answered: list[float] = []
    cancel_times_s: list[float] = []
    async with (
        running_mesh(tmp_path, *mcp_flags(tmp_path)) as mesh,
        blocked_tool() as tool,
        ChannelPool(mesh_credentials(), ping_s=PATIENCE_S) as channels,
    ):
        for _ in range(runs):
            params: Json = {"message": user_message(tool.question)}
            params["configuration"] = {"returnImmediately": True}
            asked = await call(mesh.http_url, "/", "SendMessage", params)
            async with asyncio.timeout(PATIENCE_S):
                ended = await tool.wait_for_call()
                started = time.perf_counter()
                task_id = asked["result"]["task"]["id"]
                canceled = await call(mesh.http_url, "/", "CancelTask", {"id": task_id})
                answered.append(time.perf_counter() - started)
                await ended.wait()
                cancel_times_s.append(time.perf_counter() - started)
            assert canceled["result"]["status"]["state"] == "TASK_STATE_CANCELED"
        # Each run leaves a supervisor task and an agent task, and no task that still works.
        assert await states(channels, mesh) == {"TASK_STATE_CANCELED": 2 * runs}
    scale.report(runs=runs, answered=percentiles(answered), tool_told=percentiles(cancel_times_s))


async def race(mesh: MeshProcess, channels: ChannelPool, rng: random.Random) -> str:
    """Race a cancel with the end of a turn; return the outcome that all readers agree on."""
    outcome_kind = rng.choice(("complete", "fail", "ask", "answer"))
    first = "ask" if outcome_kind == "answer" else outcome_kind
    params: Json = {"message": user_message(f"{first} {rng.randrange(12)}")}
    fold = ClientFold()
    async with sse(mesh.http_url, "/agents/racer", "SendStreamingMessage", params) as answer:
        events = answer.events()
        fold.apply(await anext(events))
        if outcome_kind == "answer":
            # Wait for the question; the answer then races with the cancel.
            async for event in events:
                fold.apply(event)
        task_id = fold.task_id
        for _ in range(rng.randrange(40)):
            await asyncio.sleep(0)
        async with asyncio.TaskGroup() as group:
            canceling = group.create_task(
                call(mesh.http_url, "/agents/racer", "CancelTask", {"id": task_id})
            )
            if outcome_kind == "answer":
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
        # -32002: the task ended before the cancel took effect.
        assert canceled["error"]["code"] == -32002, canceled
        assert state in ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED")
    if fold.has_ended:
        assert fold.state == state
        expected = {
            artifact["artifactId"]: artifact["parts"][0]["text"]
            for artifact in task.get("artifacts", ())
        }
        assert fold.texts == expected
    else:
        assert fold.state == "TASK_STATE_INPUT_REQUIRED"
    assert await ends(channels, mesh, task_id) == [state]
    return state.removeprefix("TASK_STATE_").lower()


async def ends(channels: ChannelPool, mesh: MeshProcess, task_id: str) -> list[str]:
    """Return the terminal states in a task's journal. There must be one, as the last event."""
    end_states: list[str] = []
    client = HostClient(channels.get(mesh.mesh_address))
    async with client.watch_task(
        task_id, account="anonymous", after=0, with_snapshot=False
    ) as stream:
        async for batches in stream:
            for sealed in batches:
                for event in event_pb2.EventBatch.FromString(sealed).events:
                    assert not end_states, "something came behind the end"
                    state = event.status.status.state
                    if state in ENDED:
                        end_states.append(task_pb2.TaskState.Name(state))
    return end_states


ENDED = (
    task_pb2.TASK_STATE_COMPLETED,
    task_pb2.TASK_STATE_FAILED,
    task_pb2.TASK_STATE_CANCELED,
    task_pb2.TASK_STATE_REJECTED,
)


async def test_a_race_with_cancel_has_one_outcome(
    tmp_path: Path, scale: PromiseScale, rng: random.Random
) -> None:
    """Cancel races with completion, failure, a question and an answer; every reader agrees."""
    races = scale.pick(ci=150, prove=10_000)
    outcomes: Counter[str] = Counter()
    turns = asyncio.Semaphore(RACES_AT_ONCE)
    flags = ("--agent", "harness.agents.race_agent:racer")
    async with (
        running_mesh(tmp_path, *flags, environment=WITH_HARNESS) as mesh,
        ChannelPool(mesh_credentials(), ping_s=PATIENCE_S) as channels,
    ):

        async def run_race(seed: int) -> None:
            async with turns:
                outcomes[await race(mesh, channels, random.Random(seed))] += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(races):
                group.create_task(run_race(rng.getrandbits(64)))
    assert outcomes.total() == races
    assert set(outcomes) == {"canceled", "completed", "failed"}, outcomes
    scale.report(races=races, **outcomes)
