"""Measures the price of encryption of a journal, with both shapes side by side in one run.

Run it on a quiet machine: `.venv/bin/python tests/bench/at_rest.py [--rounds N]`. It prints the CPU
time of the process: medians with quartiles, and the median of the ratios of neighbouring rounds.
"""

import argparse
import asyncio
import base64
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from opentelemetry.proto.trace.v1 import trace_pb2

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.journal.builders import delta_event
from harness.journal.opening import open_journal
from trunkline.core.encryption import Keyring, KeySource
from trunkline.journal.artifacts import Reference
from trunkline.journal.artifacts.folder import FolderBlobStore, blob_folder
from trunkline.journal.events import build_draft
from trunkline.journal.journal import Journal
from trunkline.observe.traces import SpanStore
from trunkline.observe.traces.spans import read_records
from trunkline.v1 import event_pb2, message_pb2, part_pb2, task_pb2

SHAPES: Final = ("plain", "encrypted")
FILE: Final = os.urandom(8 * 1024 * 1024)

Work = Callable[[Journal], Awaitable[int]]


def created() -> event_pb2.Event:
    message = message_pb2.Message(message_id="m", parts=[part_pb2.Part(text="hello " * 20)])
    return event_pb2.Event(
        created=event_pb2.TaskCreated(
            context_id="bench", agent="echo", account="bench", message=message
        )
    )


def ended() -> event_pb2.Event:
    status = task_pb2.TaskStatus(state=task_pb2.TASK_STATE_COMPLETED)
    return event_pb2.Event(status=event_pb2.StatusChanged(status=status))


async def begin(journal: Journal) -> str:
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    start = event_pb2.ArtifactStart(name="answer")
    event = delta_event("artifact-1", ["token "], start=start)
    await journal.append(task_id, journal.epoch, [build_draft([event])])
    return task_id


async def one_commit_each(journal: Journal) -> int:
    """Commit one token of one task at a time, the most expensive way to write."""
    task_id = await begin(journal)
    draft = build_draft([delta_event("artifact-1", ["token "])])
    for _ in range(1000):
        await journal.append(task_id, journal.epoch, [draft])
    return 1000


async def groups_of_64(journal: Journal) -> int:
    """Commit a batch of four tokens of each of 64 tasks at a time."""
    task_ids = [await begin(journal) for _ in range(64)]
    draft = build_draft([delta_event("artifact-1", ["token "] * 4)])
    for _ in range(50):
        for task_id in task_ids:
            appended = journal.append(task_id, journal.epoch, [draft])
        await appended
    return 50 * 64 * 4


async def short_tasks(journal: Journal) -> int:
    """Create 32 tasks at a time, and end them: unary calls."""
    for _ in range(10):
        task_ids = [journal.new_task_id() for _ in range(32)]
        for task_id in task_ids:
            future = journal.create(task_id, created())
        await future
        for task_id in task_ids:
            appended = journal.append(task_id, journal.epoch, [build_draft([ended()])])
        await appended
    return 320


async def files(journal: Journal) -> int:
    """Write a file of 8 MB and read it."""
    assert journal.path is not None
    blobs = FolderBlobStore(blob_folder(journal.path), keyring=journal.keyring)
    reference = Reference.new(journal.new_task_id())
    await blobs.put(reference, FILE)
    size_bytes = 0
    async for chunk in blobs.read(reference):
        size_bytes += len(chunk)
    assert size_bytes == len(FILE)
    return 8


async def spans(journal: Journal) -> int:
    """Store 20 batches of 50 spans, each batch of 10 traces."""
    assert journal.path is not None
    assert journal.keyring is not None
    keyring = journal.keyring if journal.keyring.is_encrypting else None
    with SpanStore(journal.path.with_name("traces.db"), keyring=keyring) as store:
        for _ in range(20):
            resource = trace_pb2.ResourceSpans()
            scope = resource.scope_spans.add()
            for trace_id in [os.urandom(16) for _ in range(10)]:
                for number in range(5):
                    span = scope.spans.add(trace_id=trace_id, span_id=os.urandom(8), name="call")
                    span.parent_span_id = os.urandom(8) if number else b""
                    span.start_time_unix_nano = time.time_ns()
            store.add(read_records([resource]))
    return 1000


WORKS: Final[dict[str, tuple[Work, str]]] = {
    "one task, one token a commit": (one_commit_each, "commit"),
    "64 tasks, four tokens each a commit": (groups_of_64, "token"),
    "short tasks, 32 at once": (short_tasks, "task"),
    "file, written and read": (files, "MB"),
    "traces, 50 spans a batch": (spans, "span"),
}


def open_shape(folder: Path, shape: str) -> Journal:
    key = base64.b64encode(os.urandom(32)).decode() if shape == "encrypted" else ""
    keyring = Keyring.open(folder / shape, KeySource(keys=key))
    return open_journal(folder / shape / "journal.db", keyring=keyring)


async def run_round(work: Work, journal: Journal) -> float:
    """Return the CPU time of a unit of work in microseconds."""
    started_ns = time.process_time_ns()
    count = await work(journal)
    return (time.process_time_ns() - started_ns) / count / 1000


def spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


async def main(rounds: int) -> None:
    print("| work | CPU µs per | plain | encrypted | encrypted |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        journals = {shape: open_shape(Path(name), shape) for shape in SHAPES}
        for label, (work, unit) in WORKS.items():
            costs: dict[str, list[float]] = {shape: [] for shape in SHAPES}
            for number in range(rounds + 1):
                for shape in SHAPES:
                    cost = await run_round(work, journals[shape])
                    if number:  # The first round warms up.
                        costs[shape].append(cost)
            ratio = statistics.median(
                encrypted / plain
                for plain, encrypted in zip(costs["plain"], costs["encrypted"], strict=True)
            )
            cells = [*(spread(costs[shape]) for shape in SHAPES), f"{ratio:.2f}x"]
            print(f"| {label} | {unit} | {' | '.join(cells)} |")
        for journal in journals.values():
            await journal.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    asyncio.run(main(parser.parse_args().rounds))
