"""Measures the cost of an append: per commit of one task, per event in groups, and late in a task.

Run it on a quiet machine: `.venv/bin/python tests/bench/journal_append.py [--synchronous full]`. It
prints medians with quartiles, and the CPU time of the whole process.
"""

import argparse
import asyncio
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from google.protobuf import __version__ as protobuf_version

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.journal.builders import delta_event
from harness.journal.opening import open_journal
from trunkline.journal.events import Draft, build_draft
from trunkline.journal.journal import Journal
from trunkline.v1 import event_pb2

TOKEN = "token "
ROUNDS = 9

Round = Callable[[Journal], Awaitable[int]]


def created() -> event_pb2.Event:
    return event_pb2.Event(
        created=event_pb2.TaskCreated(context_id="bench", agent="echo", account="bench")
    )


def tokens(count: int) -> Draft:
    return build_draft([delta_event("artifact-1", [TOKEN] * count)])


async def begin(journal: Journal) -> str:
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    start = event_pb2.ArtifactStart(name="answer")
    await journal.append(
        task_id, journal.epoch, [build_draft([delta_event("artifact-1", [TOKEN], start=start)])]
    )
    return task_id


async def one_task(journal: Journal) -> int:
    """Commit one event of one task at a time, the most expensive way to write."""
    task_id = await begin(journal)
    for _ in range(2000):
        await journal.append(task_id, journal.epoch, [tokens(1)])
    return 2000


async def many_tasks(journal: Journal) -> int:
    """Commit one event of each of 64 tasks at a time, with a new draft for each."""
    return await write_64(journal, lambda: tokens(1))


async def many_tasks_prepared(journal: Journal) -> int:
    """Commit like `many_tasks` with one prepared draft, which leaves the cost of the journal."""
    prepared = tokens(1)
    return await write_64(journal, lambda: prepared)


async def write_64(journal: Journal, make: Callable[[], Draft]) -> int:
    task_ids = [await begin(journal) for _ in range(64)]
    for _ in range(100):
        for task_id in task_ids:
            append_future = journal.append(task_id, journal.epoch, [make()])
        # All appends of a group commit together.
        await append_future
    return 6400


async def runs_of_16(journal: Journal) -> int:
    """Commit one event with sixteen texts of one task at a time."""
    task_id = await begin(journal)
    for _ in range(1000):
        await journal.append(task_id, journal.epoch, [tokens(16)])
    return 16000


async def measure(label: str, round_: Round, journal: Journal, per: str) -> None:
    wall_us, cpu_us = [], []
    await round_(journal)
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        count = await round_(journal)
        wall_us.append((time.perf_counter_ns() - wall) / count / 1000)
        cpu_us.append((time.process_time_ns() - cpu) / count / 1000)
    print(f"{label:<34} wall {spread(wall_us)}   cpu {spread(cpu_us)}   us per {per}")


async def measure_growth(journal: Journal) -> None:
    """Compare the 50,000th event of a task with its first."""
    task_id = await begin(journal)
    for label in ("first 1000 events of a task", "1000 events after 50,000"):
        costs = []
        for _ in range(1000):
            started_ns = time.process_time_ns()
            await journal.append(task_id, journal.epoch, [tokens(1)])
            costs.append((time.process_time_ns() - started_ns) / 1000)
        print(f"{label:<34} cpu  {spread(costs)}   us per commit")
        for _ in range(48):
            appends = [journal.append(task_id, journal.epoch, [tokens(1)]) for _ in range(1000)]
            await asyncio.wait(appends)
    started_ns = time.perf_counter_ns()
    await journal.snapshot(task_id)
    elapsed_ms = (time.perf_counter_ns() - started_ns) / 1e6
    print(f"fold of {await journal.head(task_id)} events, one a commit: {elapsed_ms:.1f} ms")


def spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:7.1f} ({low:.1f}..{high:.1f})"


async def main(synchronous: Literal["normal", "full"]) -> None:
    print(
        f"python {platform.python_version()}, sqlite {sqlite3.sqlite_version}, "
        f"protobuf {protobuf_version}, {platform.machine()} {sys.platform}, "
        f"synchronous={synchronous}"
    )
    with tempfile.TemporaryDirectory() as folder:
        journal = open_journal(Path(folder) / "journal.db", synchronous=synchronous)
        await measure("one task, one event a commit", one_task, journal, "commit")
        await measure("64 tasks, one event each a commit", many_tasks, journal, "event")
        await measure("the same, prepared drafts", many_tasks_prepared, journal, "event")
        await measure("one task, 16 texts a commit", runs_of_16, journal, "event")
        await measure_growth(journal)
        await journal.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--synchronous", choices=("normal", "full"), default="normal")
    asyncio.run(main(parser.parse_args().synchronous))
