"""Readers have cursors: each sees every event once, in order, from any start."""

import asyncio

import pytest

from harness.agents.inline_agents import NOTHING, OpenHost, define, finish, message, texts
from trunkline.errors import InvalidArgumentError
from trunkline.journal.fold import fold_batches
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.tasks.turn_runtime import get_turn_runtime
from trunkline.v1 import event_pb2


async def speak(task: TaskContext) -> None:
    artifact = task.artifact()
    for number in range(40):
        await artifact.append(f"{number} ")
        if number % 7 == 0:
            await task.working(f"at {number}")
    await artifact.close()


def list_sequences(batches: list[bytes]) -> list[int]:
    """Return the sequences of all batches, in order of arrival."""
    sequences: list[int] = []
    for data in batches:
        header = event_pb2.EventBatch.FromString(data).header
        sequences += range(header.first_sequence, header.first_sequence + header.count)
    return sequences


async def read(host: TaskHost, task_id: str, after: int | None, **options: bool) -> list[bytes]:
    watch = await host.watch(task_id, account="", after=after, **options)
    return [batch async for batches in watch for batch in batches]


async def test_a_live_reader_gets_every_event_once_and_then_the_end(open_host: OpenHost) -> None:
    host = await open_host(define(speak))
    accepted = await host.submit("tested", message(), NOTHING)
    assert isinstance(accepted, SubmitResult)
    batches = await read(host, accepted.task_id, 0)
    head = (await host.snapshot(accepted.task_id, account="")).sequence
    assert list_sequences(batches) == list(range(1, head + 1))


async def test_from_any_cursor_snapshot_and_events_make_the_same_task(open_host: OpenHost) -> None:
    host = await open_host(define(speak))
    final_snapshot = await finish(host)
    for after in range(final_snapshot.sequence + 1):
        watch = await host.watch(
            final_snapshot.task.id, account="", after=after, with_snapshot=True
        )
        snapshot = await watch.snapshot()
        batches = [batch async for ready in watch for batch in ready]
        assert snapshot is not None
        assert list_sequences(batches) == list(range(after + 1, final_snapshot.sequence + 1))
        assert fold_batches(final_snapshot.task.id, batches, snapshot).task == final_snapshot.task


async def test_a_reader_of_a_turn_ends_at_the_question(open_host: OpenHost) -> None:
    async def ask(task: TaskContext) -> None:
        await task.artifact().append("before")
        await task.require_input("?")

    host = await open_host(define(ask))
    accepted = await host.submit("tested", message(), NOTHING)
    assert isinstance(accepted, SubmitResult)
    batches = await read(host, accepted.task_id, 0, until_turn_ends=True)
    head = await host.snapshot(accepted.task_id, account="")
    assert head.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert list_sequences(batches) == list(range(1, head.sequence + 1))


async def test_a_canceled_reader_changes_nothing(open_host: OpenHost) -> None:
    release = asyncio.Event()

    async def slow(task: TaskContext) -> str:
        await task.working()
        await release.wait()
        return "done"

    host = await open_host(define(slow))
    accepted = await host.submit("tested", message(), NOTHING)
    assert isinstance(accepted, SubmitResult)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await read(host, accepted.task_id, 0)
    release.set()
    assert texts(await host.wait_turn(accepted.task_id)) == ["done"]


async def test_a_cursor_from_the_future_is_refused(open_host: OpenHost) -> None:
    host = await open_host(define(speak))
    final_snapshot = await finish(host)
    with pytest.raises(InvalidArgumentError, match="so far"):
        await read(host, final_snapshot.task.id, final_snapshot.sequence + 1)


async def test_forwarding_the_same_batch_twice_adds_nothing(open_host: OpenHost) -> None:
    def batch(first: int, *words: str) -> event_pb2.EventBatch:
        start = event_pb2.ArtifactStart(name="answer") if first == 3 else None
        delta = event_pb2.ArtifactDelta(artifact_id="artifact-1", start=start, texts=words)
        header = event_pb2.BatchHeader(
            task_id="child", first_sequence=first, count=len(words), kinds=1 << 3
        )
        return event_pb2.EventBatch(header=header, events=[event_pb2.Event(delta=delta)])

    async def parent(task: TaskContext) -> None:
        repeated = [batch(3, "a", "b"), batch(4, "b", "c")]
        for forwarded in repeated if task.turn == 2 else [batch(3, "a", "b"), *repeated[:1]]:
            await get_turn_runtime(task).forward(forwarded.SerializeToString(), agent="math")
        if task.turn == 1:
            await task.require_input("and in the next turn?")

    host = await open_host(define(parent))
    waiting = await finish(host)
    assert texts(waiting) == ["ab"]
    await host.submit("tested", message(task_id=waiting.task.id), NOTHING)
    snapshot = await host.wait_turn(waiting.task.id)
    assert texts(snapshot) == ["abc"]
    (info,) = snapshot.artifacts
    assert (info.origin.task_id, list(info.origin.path)) == ("child", ["math"])
