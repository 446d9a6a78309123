"""Promises 1 and 3: each streamed text arrives exactly once and in order over any hops."""

import asyncio
import random
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from harness.a2a.bridged_mesh import open_bridged_mesh
from harness.a2a.sse_client import ClientFold, call, sse, user_message
from harness.agents.fuzz_agents import act, texts_of
from harness.journal.builders import fold_batches
from harness.mesh.processes import WITH_HARNESS, read_line, running_process
from harness.promise_scale import PromiseScale
from trunkline import TaskContext, agent, get_turn_runtime
from trunkline.agents import FunctionAgent
from trunkline.core.settings import Settings
from trunkline.journal.batches import parse_batch
from trunkline.mesh.client import Directory
from trunkline.v1 import event_pb2, message_pb2, part_pb2

CHILDREN = 8
TASKS_AT_ONCE = 8


def branching(directory: Directory) -> FunctionAgent:
    """Return an agent that writes its own text while it forwards the texts of several children."""

    async def forward(task: TaskContext, seed: int) -> None:
        turn = get_turn_runtime(task)
        message = message_pb2.Message(
            message_id=f"{task.id}-{seed}",
            role=message_pb2.ROLE_USER,
            parts=[part_pb2.Part(text=str(seed))],
        )
        async with directory.submit(
            "leaf", message=message, submission=turn.child_submission("")
        ) as stream:
            started = event_pb2.ChildStarted(task_id=stream.task_id, agent="leaf")
            await turn.record(event_pb2.Event(child_started=started))
            async for batches in stream:
                for sealed in batches:
                    turn.forward(sealed, parse_batch(sealed), agent="leaf")
                    await turn.make_room()

    @agent(name="branch", description="Forwards.", tags=["branch"])
    async def branch(task: TaskContext) -> None:
        own_seed, *children = map(int, task.text.split())
        async with asyncio.TaskGroup() as group:
            group.create_task(act(task, own_seed))
            for seed in children:
                group.create_task(forward(task, seed))

    return branch


async def check_one(url: str, directory: Directory, seeds: list[int]) -> int:
    """Run one task; compare the texts of every kind of reader. Return the number of events."""
    # The wire gives artifacts of several children the same name, so the test compares texts, which
    # hardly ever coincide.
    expected = sorted(text for seed in seeds for text in texts_of(seed).values())
    fold = ClientFold()
    params = {"message": user_message(" ".join(map(str, seeds)))}
    async with sse(url, "/agents/branch", "SendStreamingMessage", params) as answer:
        async for event in answer.events():
            fold.apply(event)
    assert fold.state == "TASK_STATE_COMPLETED"
    assert sorted(fold.texts.values()) == expected
    task = (await call(url, "/agents/branch", "GetTask", {"id": fold.task_id}))["result"]
    again = ClientFold()
    again.take_task(task)
    assert (again.texts, again.names) == (fold.texts, fold.names)
    return await check_journal(directory, fold.task_id)


async def check_journal(directory: Directory, task_id: str) -> int:
    """Assert that a task's events have no gap and fold to the task."""
    client = directory.client_for_task(task_id)
    journal: list[bytes] = []
    async with client.watch_task(
        task_id, account="anonymous", after=0, with_snapshot=False
    ) as stream:
        async for batches in stream:
            journal += batches
    snapshot = await client.get_task(task_id, account="anonymous")
    # The fold rejects gaps, appends before a create, and events after the end.
    assert fold_batches(task_id, journal) == snapshot
    return snapshot.sequence


async def test_no_text_doubled_lost_or_moved(
    tmp_path: Path, scale: PromiseScale, rng: random.Random
) -> None:
    """Fuzzed tasks with up to eight concurrent streaming children in two other processes."""
    tasks = scale.pick(ci=60, prove=10_000)
    events = children = 0
    async with AsyncExitStack() as stack:
        bridged = await stack.enter_async_context(
            # Bridge, host and clients share this process, so a short lease would make the test
            # flaky.
            open_bridged_mesh(tmp_path, Settings(default_agent="branch"), lease_s=30)
        )
        leaf = await stack.enter_async_context(
            running_process(
                sys.executable, "-m", "harness.agents.fuzz_agents",
                "--mesh", bridged.mesh.registry_address, "--data", str(tmp_path / "leaf"),
                cwd=tmp_path, environment=WITH_HARNESS,
            )
        )  # fmt: skip
        await read_line(leaf, "ready ")
        directory = bridged.mesh.directory
        await bridged.mesh.join(branching(directory))
        await directory.wait_until(lambda known: "leaf" in known.list_agents(), timeout_s=45)
        turns = asyncio.Semaphore(TASKS_AT_ONCE)

        async def check_task(seeds: list[int]) -> None:
            nonlocal events, children
            async with turns:
                seen = await check_one(bridged.url, directory, seeds)
                events += seen
                children += len(seeds) - 1

        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                count = 1 + rng.randrange(CHILDREN + 1)
                group.create_task(check_task(rng.sample(range(10**9), count)))
    scale.report(tasks=tasks, children=children, events=events)
