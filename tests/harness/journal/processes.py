"""Processes that use journals: one that owns a journal, one that writes without end."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

# Opens a journal, writes a task of three events, prints its id, and waits for the end of stdin.
OWNER = """
import asyncio, os, sys
from pathlib import Path
from harness.journal.builders import begin, created
from trunkline.journal.events import build_draft
from harness.journal.opening import open_journal

async def main():
    journal = open_journal(Path(sys.argv[1]))
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    await journal.append(task_id, journal.epoch, [build_draft([begin("a", "x", "y")])])
    print(task_id, journal.epoch, flush=True)

asyncio.run(main())
sys.stdin.read()
os._exit(9)
"""

# Writes numbers into one task without end, and prints each once it is committed. With a third
# argument it writes one for each line that it reads.
WRITER = """
import asyncio, itertools, sys
from pathlib import Path
from harness.journal.builders import append, begin, created
from trunkline.journal.events import build_draft
from harness.journal.opening import open_journal

async def main():
    journal = open_journal(Path(sys.argv[1]), synchronous=sys.argv[2])
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    await journal.append(task_id, journal.epoch, [build_draft([begin("a", "0 ")])])
    print(task_id, flush=True)
    for number in itertools.count(1):
        if sys.argv[3:]:
            sys.stdin.readline()
        await journal.append(task_id, journal.epoch, [build_draft([append("a", f"{number} ")])])
        print(number, flush=True)

asyncio.run(main())
"""


def start(program: str, *arguments: str | Path) -> "subprocess.Popen[str]":
    """Run a program that may use the harness."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


def start_owner(path: Path) -> tuple["subprocess.Popen[str]", str, int]:
    """Start a process that owns a journal; return it with the task's id and the epoch."""
    process = start(OWNER, path)
    assert process.stdout is not None
    task_id, epoch = process.stdout.readline().split()
    return process, task_id, int(epoch)


def read_rest(process: "subprocess.Popen[str]") -> str:
    """Return the rest of the output of a process that is ending, buffered output included."""
    assert process.stdout is not None
    with process:
        return process.stdout.read()


def end(process: "subprocess.Popen[str]") -> None:
    process.communicate(timeout=60)


def freeze(process: "subprocess.Popen[str]") -> None:
    """Stop a process as a debugger does, and wait until it is stopped."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def end_lease(path: Path, *, before_s: float = 1.0) -> None:
    """Move the end of a journal owner's lease into the past."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("UPDATE meta SET lease_until_s = ?", (time.monotonic() - before_s,))
    connection.close()
