"""Measures the cost of a paced token in a host without a network.

It includes agents, flush ticks, the journal and its commits. `.venv/bin/python
tests/bench/host_paced.py` runs tasks that each append `--rate` tokens a second, on one host and one
journal in this process, and the same pace without appending anything: the difference is the cost of
the host.
"""

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.agents.inline_agents import NOTHING, define, message
from harness.journal.opening import open_journal
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost


class Pace:
    """An agent that appends tokens at a fixed rate; the starts of tasks spread over one period."""

    def __init__(self, *, tasks: int, rate: float, seconds: float) -> None:
        self._period_s = 1 / rate
        self._tokens = int(rate * seconds)
        self._tasks = tasks
        self._started_count = 0

    async def run(self, task: TaskContext) -> None:
        """Append the tokens, or keep the same pace without appending."""
        loop = asyncio.get_running_loop()
        artifact = task.artifact()
        due_s = loop.time() + self._period_s * self._started_count / self._tasks
        self._started_count += 1
        for number in range(self._tokens):
            due_s += self._period_s
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            if task.text == "append":
                await artifact.append(f"{number} ")


async def measure(options: argparse.Namespace, text: str) -> float:
    """Return the CPU seconds of one round."""
    pace = Pace(tasks=options.tasks, rate=options.rate, seconds=options.seconds)
    with tempfile.TemporaryDirectory() as folder:
        journal = open_journal(Path(folder) / "journal.db")
        async with TaskHost(journal, [define(pace.run)]) as host:
            ids = []
            for _ in range(options.tasks):
                accepted = await host.submit("tested", message(text), NOTHING)
                ids.append(accepted.task_id)
            gc.collect()
            started_s = time.process_time()
            for task_id in ids:
                await host.wait_turn(task_id)
            used_s = time.process_time() - started_s
        await journal.close()
    return used_s


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=128)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    events = options.tasks * int(options.rate * options.seconds)
    for _ in range(options.repetitions):
        idle_s = await measure(options, "pause")
        used_s = await measure(options, "append")
        token_us = (used_s - idle_s) / events * 1e6
        print(
            f"{options.tasks} tasks of {options.rate:g} tokens/s: {token_us:.1f} µs CPU a token "
            f"(pacing alone {idle_s / events * 1e6:.1f}); load {os.getloadavg()[0]:.1f}"
        )


if __name__ == "__main__":
    asyncio.run(main())
