"""Profiles the CPU time of a row of the table: `.venv/bin/python tests/bench/sampled.py DIR`.

Runs rows on one system with a sampler in each of its processes (sampling/sitecustomize.py), and
writes DIR/profile-<row>.txt: the figures of the row, then for each process its CPU by thread, by
package, by function and by line. The sampler costs one or two percent.
"""

import argparse
import asyncio
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.processes import System
from bench.rows import FULL, QUICK, ROWS, Row, Size
from bench.systems import OPENERS, SERVICES, TESTS, run
from bench.table import warm

_WRITE_TIMEOUT_S = 20.0


async def main() -> None:
    """Sample and write."""
    options = _options()
    size = QUICK if options.quick else FULL
    rows = [row for row in ROWS if any(word in row.name for word in options.rows or [""])]
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        samples = Path(folder) / "samples"
        samples.mkdir()
        paths = (*options.path, str(TESTS / "bench" / "sampling"))
        environment = {"BENCH_PROFILE": str(samples), "PYTHONPATH": os.pathsep.join(paths)}
        async with OPENERS[options.system](Path(folder) / "data", environment) as system:
            await warm(system)
            for row in rows:
                if options.system in row.runs:
                    text = await _sample(row, system, size, samples)
                    name = re.sub(r"\W+", "-", row.name)
                    (options.folder / f"profile-{name}.txt").write_text(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--system", choices=list(OPENERS), default=SERVICES)
    parser.add_argument("--rows", nargs="*", help="rows whose names hold one of these words")
    parser.add_argument("--path", nargs="*", default=[], help="folders of another version's code")
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args()


async def _sample(row: Row, system: System, size: Size, samples: Path) -> str:
    before = system.cpu_s()
    _signal(system, signal.SIGUSR1)
    figures = await row.measure(system, size)
    _signal(system, signal.SIGUSR2)
    used = {role: round(current - before[role], 2) for role, current in system.cpu_s().items()}
    rounded = {figure: round(value, 2) for figure, value in figures.items()}
    head = f"{row.name}, {system.name}: {rounded}; CPU-s by process: {used}"
    print(head, file=sys.stderr)
    texts = [head]
    for role in system.pids:
        profile = await asyncio.to_thread(_take_file, samples / f"{role}.txt")
        texts += [f"=========== {role}", profile]
    return "\n\n".join(texts)


def _signal(system: System, number: signal.Signals) -> None:
    for pid in system.pids.values():
        os.kill(pid, number)


def _take_file(path: Path) -> str:
    """Wait for the file of a process, return its text and delete it."""
    deadline = time.monotonic() + _WRITE_TIMEOUT_S
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)
    text = path.read_text()
    path.unlink()
    return text


if __name__ == "__main__":
    run(main())
