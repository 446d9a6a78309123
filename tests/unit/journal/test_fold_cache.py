"""Tests of the cache of folds and of its limits."""

import asyncio
from collections import Counter

from harness.journal.builders import append, begin, created
from trunkline.journal.events import build_draft, last_sequence, seal
from trunkline.journal.fold_cache import FoldCache
from trunkline.v1 import event_pb2

TEXT = "x" * 1000


class Tasks:
    """Batches of tasks by task id, with a record of each read."""

    def __init__(self) -> None:
        self.batches: dict[str, list[bytes]] = {}
        self.reads: list[tuple[str, int]] = []

    async def head(self, task_id: str) -> int:
        return last_sequence(self.batches[task_id][-1])

    async def read(self, task_id: str, after: int) -> list[bytes]:
        self.reads.append((task_id, after))
        return [batch for batch in self.batches[task_id] if last_sequence(batch) > after]

    def write(self, task_id: str, *events: event_pb2.Event) -> None:
        batches = self.batches.setdefault(task_id, [])
        for event in events:
            first = last_sequence(batches[-1]) + 1 if batches else 1
            batches.append(
                seal(
                    build_draft([event]), task_id=task_id, epoch=1, first_sequence=first, time_ns=1
                )
            )


async def find_nothing(_: str) -> None:
    return None


def make_fold_cache(tasks: Tasks, *, limit_bytes: int) -> FoldCache:
    return FoldCache(
        head=tasks.head, read=tasks.read, find_stored=find_nothing, limit_bytes=limit_bytes
    )


async def read_again(folds: FoldCache, tasks: Tasks) -> list[tuple[str, int]]:
    """Fold every task again, in the order of the first time; return the reads that it needed."""
    tasks.reads.clear()
    for task_id in tasks.batches:
        await folds.fold(task_id, await tasks.head(task_id))
    return tasks.reads


def make_tasks(count: int) -> Tasks:
    tasks = Tasks()
    for number in range(count):
        tasks.write(f"task-{number}", created(), begin("a", TEXT))
    return tasks


async def test_a_cached_fold_is_not_read_again() -> None:
    tasks = make_tasks(3)
    folds = make_fold_cache(tasks, limit_bytes=10_000)
    await read_again(folds, tasks)
    assert await read_again(folds, tasks) == []
    tasks.write("task-1", append("a", "more"))
    assert await read_again(folds, tasks) == [("task-1", 2)]


async def test_large_folds_evict_each_other() -> None:
    tasks = make_tasks(4)
    folds = make_fold_cache(tasks, limit_bytes=2500)
    await read_again(folds, tasks)
    tasks.reads.clear()
    for task_id in ("task-2", "task-3", "task-0"):
        await folds.fold(task_id, 2)
    assert tasks.reads == [("task-0", 0)]


async def test_a_growing_fold_evicts_others() -> None:
    tasks = make_tasks(2)
    folds = make_fold_cache(tasks, limit_bytes=2500)
    await read_again(folds, tasks)
    tasks.write("task-1", append("a", TEXT))
    assert await read_again(folds, tasks) == [("task-1", 2)]
    assert await read_again(folds, tasks) == [("task-0", 0), ("task-1", 0)]


async def test_the_latest_fold_is_cached_at_any_size_until_it_is_dropped() -> None:
    tasks = make_tasks(1)
    folds = make_fold_cache(tasks, limit_bytes=1)
    await read_again(folds, tasks)
    assert await read_again(folds, tasks) == []
    folds.drop("task-0")
    assert await read_again(folds, tasks) == [("task-0", 0)]


async def test_dropped_folds_use_no_space() -> None:
    tasks = make_tasks(3)
    folds = make_fold_cache(tasks, limit_bytes=2500)
    for _ in range(10):
        await folds.fold("task-0", 2)
        folds.drop("task-0")
    for task_id in ("task-1", "task-2"):
        await folds.fold(task_id, 2)
    tasks.reads.clear()
    for task_id in ("task-1", "task-2"):
        await folds.fold(task_id, 2)
    assert tasks.reads == []


async def test_concurrent_callers_share_the_fold_of_a_long_task() -> None:
    tasks = Tasks()
    tasks.write("long", created(), begin("a", TEXT), *(append("a", TEXT) for _ in range(20)))
    tasks.write("other", created(), begin("a", TEXT), *(append("a", TEXT) for _ in range(20)))

    async def read_one(task_id: str, after: int) -> list[bytes]:
        return (await tasks.read(task_id, after))[:1]

    folds = FoldCache(head=tasks.head, read=read_one, find_stored=find_nothing)
    async with asyncio.TaskGroup() as group:
        requests = [
            group.create_task(folds.fold(task_id, await tasks.head(task_id)))
            for task_id in ("long", "other") * 5
        ]
    assert {request.result() for request in requests[::2]} == {requests[0].result()}
    assert {request.result() for request in requests[1::2]} == {requests[1].result()}
    # A waiting caller has read the beginning only.
    assert all(times == 1 for (_, after), times in Counter(tasks.reads).items() if after)
