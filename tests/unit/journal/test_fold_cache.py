"""Tests of the cache of folds and of its limits."""

import asyncio
from collections import Counter

from harness.journal.builders import append, begin, created
from trunkline.journal.events import build_draft, last_sequence, seal
from trunkline.journal.fold_cache import FoldCache
from trunkline.v1 import event_pb2

TEXT = "x" * 1000


class Tasks:
    """Tasks by id as their batches, and from where each was read."""

    def __init__(self) -> None:
        self.batches: dict[str, list[bytes]] = {}
        self.reads: list[tuple[str, int]] = []

    def head(self, task_id: str) -> int:
        return last_sequence(self.batches[task_id][-1])

    def read(self, task_id: str, after: int) -> list[bytes]:
        self.reads.append((task_id, after))
        return [one for one in self.batches[task_id] if last_sequence(one) > after]

    def write(self, task_id: str, *events: event_pb2.Event) -> None:
        batches = self.batches.setdefault(task_id, [])
        for event in events:
            first = last_sequence(batches[-1]) + 1 if batches else 1
            batches.append(
                seal(
                    build_draft([event]), task_id=task_id, epoch=1, first_sequence=first, time_ns=1
                )
            )


def folds_of(tasks: Tasks, *, limit_bytes: int) -> FoldCache:
    return FoldCache(
        head=tasks.head, read=tasks.read, find_stored=lambda _: None, limit_bytes=limit_bytes
    )


async def read_again(folds: FoldCache, tasks: Tasks) -> list[tuple[str, int]]:
    """Ask for every task once more, as the first was kept; return what had to be read for it."""
    tasks.reads.clear()
    for task_id in tasks.batches:
        await folds.fold(task_id, tasks.head(task_id))
    return tasks.reads


def with_text(count: int) -> Tasks:
    tasks = Tasks()
    for number in range(count):
        tasks.write(f"task-{number}", created(), begin("a", TEXT))
    return tasks


async def test_what_is_kept_is_not_read_again() -> None:
    tasks = with_text(3)
    folds = folds_of(tasks, limit_bytes=10_000)
    await read_again(folds, tasks)
    assert await read_again(folds, tasks) == []
    tasks.write("task-1", append("a", "more"))
    assert await read_again(folds, tasks) == [("task-1", 2)]


async def test_large_folds_make_room_for_one_another() -> None:
    tasks = with_text(4)
    folds = folds_of(tasks, limit_bytes=2500)
    await read_again(folds, tasks)
    tasks.reads.clear()
    for task_id in ("task-2", "task-3", "task-0"):
        await folds.fold(task_id, 2)
    assert tasks.reads == [("task-0", 0)]


async def test_a_fold_that_grows_makes_others_go() -> None:
    tasks = with_text(2)
    folds = folds_of(tasks, limit_bytes=2500)
    await read_again(folds, tasks)
    tasks.write("task-1", append("a", TEXT))
    assert await read_again(folds, tasks) == [("task-1", 2)]
    assert await read_again(folds, tasks) == [("task-0", 0), ("task-1", 0)]


async def test_the_latest_is_kept_whatever_its_size_and_goes_when_it_is_dropped() -> None:
    tasks = with_text(1)
    folds = folds_of(tasks, limit_bytes=1)
    await read_again(folds, tasks)
    assert await read_again(folds, tasks) == []
    folds.drop("task-0")
    assert await read_again(folds, tasks) == [("task-0", 0)]


async def test_dropped_folds_take_no_room() -> None:
    tasks = with_text(3)
    folds = folds_of(tasks, limit_bytes=2500)
    for _ in range(10):
        await folds.fold("task-0", 2)
        folds.drop("task-0")
    for task_id in ("task-1", "task-2"):
        await folds.fold(task_id, 2)
    tasks.reads.clear()
    for task_id in ("task-1", "task-2"):
        await folds.fold(task_id, 2)
    assert tasks.reads == []


async def test_those_who_ask_for_a_long_task_at_once_share_its_fold() -> None:
    tasks = Tasks()
    tasks.write("long", created(), begin("a", TEXT), *(append("a", TEXT) for _ in range(20)))
    tasks.write("other", created(), begin("a", TEXT), *(append("a", TEXT) for _ in range(20)))

    def read_one(task_id: str, after: int) -> list[bytes]:
        return tasks.read(task_id, after)[:1]

    folds = FoldCache(head=tasks.head, read=read_one, find_stored=lambda _: None)
    async with asyncio.TaskGroup() as group:
        found = [
            group.create_task(folds.fold(task_id, tasks.head(task_id)))
            for task_id in ("long", "other") * 5
        ]
    assert {one.result() for one in found[::2]} == {found[0].result()}
    assert {one.result() for one in found[1::2]} == {found[1].result()}
    # Who waits has looked at the beginning, and no further.
    assert all(times == 1 for (_, after), times in Counter(tasks.reads).items() if after)
