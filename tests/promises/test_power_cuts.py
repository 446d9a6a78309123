"""A journal after a power cut: the disk has lost any writes that were not synced.

With `full`, everything that was acknowledged is there. With `normal`, what is there is whole: the
commits up to some point, and none after it.
"""

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from harness.journal.builders import append, begin, completed, created, group, row, stored
from harness.journal.recorded_disk import RecordedDisk, record_disk
from harness.promise_scale import PromiseScale
from trunkline.core.database import Synchronous
from trunkline.journal.sqlite import SqliteStore
from trunkline.journal.store import CommitGroup

LIMIT = 2**30
NAME = "journal.db"


class Workload:
    """Commits of a journal, in order, and what the disk had seen when each was acknowledged."""

    def __init__(self, disk: RecordedDisk) -> None:
        self.bodies: list[tuple[str, int, bytes]] = []
        """The task, the last sequence and the body of each commit."""
        self.acknowledged: list[int] = []
        """The steps of the disk before the acknowledgement of each commit."""
        self.first = 0
        """The steps before the journal is open."""
        self._disk = disk

    async def run(self, path: Path, synchronous: Synchronous, commits: int, seed: int) -> None:
        """Create tasks and append to them, with checkpoints while commits run."""
        rng = random.Random(seed)
        store = SqliteStore.open(path, synchronous=synchronous)
        self.first = self._disk.length
        async with asyncio.TaskGroup() as tasks:
            for number in range(commits):
                await store.commit(self._next(rng))
                self.acknowledged.append(self._disk.length)
                if number % 12 == 5:
                    tasks.create_task(store.checkpoint())
                    await asyncio.sleep(0)
                if number % 12 == 11:
                    # Nothing is written meanwhile, so the log begins anew after it.
                    assert await store.checkpoint()
                if number % 10 == 9:
                    await store.renew_lease(10.0)
        await store.close()

    def _next(self, rng: random.Random) -> CommitGroup:
        task = f"journal1-{len(self.bodies) // 5:016d}"
        sequence = len(self.bodies) % 5 + 1
        text = rng.choice(("x", "y")) * rng.choice((10, 200, 9_000))
        event = {1: created(), 2: begin("a", text), 5: completed()}.get(sequence, append("a", text))
        batch = stored([event], sequence, task_id=task)
        self.bodies.append((task, sequence, batch.sealed))
        return group(batch, made=[row(task)] if sequence == 1 else ())


async def read(path: Path, tasks: Sequence[str]) -> list[tuple[str, bytes]]:
    """Open a journal and return the batches of these tasks."""
    store = SqliteStore.open(path)
    found = [
        (task, body) for task in tasks for body in await store.read(task, 0, limit_bytes=LIMIT)
    ]
    rows = await store.find_rows(tasks)
    assert set(rows) == {task for task, _ in found}
    await store.close()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return found


@pytest.mark.parametrize("synchronous", ["full", "normal"])
async def test_a_journal_keeps_what_it_promises_after_a_power_cut(
    tmp_path: Path, scale: PromiseScale, rng: random.Random, synchronous: Synchronous
) -> None:
    cuts = scale.pick(ci=80, prove=scale.rounds(5_000))
    folder = tmp_path / "recorded"
    folder.mkdir()
    with record_disk(folder) as disk:
        workload = Workload(disk)
        await workload.run(folder / NAME, synchronous, 60, rng.getrandbits(32))
    tasks = sorted({task for task, _, _ in workload.bodies})
    expected = [(task, body) for task, _, body in workload.bodies]
    lost = 0
    for number in range(cuts):
        after = rng.randrange(workload.first, workload.acknowledged[-1] + 1)
        cut = tmp_path / f"cut-{number}"
        cut.mkdir()
        disk.cut_power(after, rng, cut)
        found = await read(cut / NAME, tasks)
        shutil.rmtree(cut)
        assert found == expected[: len(found)], f"after step {after}"
        acknowledged = sum(before <= after for before in workload.acknowledged)
        lost += acknowledged > len(found)
        if synchronous == "full":
            assert len(found) >= acknowledged, f"after step {after}"
    # The cuts are hard enough to show what `full` is for.
    assert bool(lost) == (synchronous == "normal")
    scale.report(synchronous=synchronous, cuts=cuts, steps=disk.length, lost=lost)
