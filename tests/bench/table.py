"""The speed table: Trunkline, an a2a-sdk pair and the floor, compared in one run.

`.venv/bin/python tests/bench/table.py` starts all of them, runs them in turns, and prints medians
(lowest to highest). CPU is the sum of all server processes of a system, from the operating system;
clients are not counted. Journal and tracing are on. See README.md in this folder.
"""

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.clients import streams, unary
from bench.curves import curves
from bench.processes import System
from bench.report import Results, describe_environment, table
from bench.rows import FULL, QUICK, ROWS, Figures, Row, Size, load
from bench.systems import ECHO, ONE_HOP, OPENERS, PEER, PEER_TRACED, TWO_HOPS, UNARY_ONLY, run
from bench.workload import Ask

_TIMEOUT_S = 300.0


async def main() -> None:
    """Measure and print."""
    options = _options()
    size = QUICK if options.quick else FULL
    repetitions = options.repetitions or (2 if options.quick else 5)
    rows = [row for row in ROWS if any(word in row.name for word in options.rows or [""])]
    usual = [name for name in OPENERS if name not in UNARY_ONLY]
    selected = [name for name in OPENERS if name in (options.systems or usual)]
    needed = {name for row in rows for name in row.runs}
    load_before = load()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        environment = {"PYTHONPATH": os.pathsep.join(options.path)} if options.path else {}
        systems = Systems(folder, environment)
        for name in selected:
            if name in needed or options.curves:
                systems.running[name] = await stack.enter_async_context(systems.start(name))
        # Exclude the client's existing objects from garbage collection, which would show as
        # latency.
        gc.collect()
        gc.freeze()
        if options.curves:
            print(await curves(systems.running))
        else:
            results = [(row, await _row(row, systems, repetitions, size)) for row in rows]
            print(table(results, list(systems.running)))
    print(
        f"\n{describe_environment(load_before)}, repetitions {1 if options.curves else repetitions}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything, twice")
    parser.add_argument("--repetitions", type=int, default=0)
    parser.add_argument("--rows", nargs="*", help="rows whose names hold one of these words")
    parser.add_argument("--systems", nargs="*", choices=list(OPENERS), metavar="SYSTEM")
    parser.add_argument("--path", nargs="*", default=[], help="folders of another version's code")
    parser.add_argument("--curves", action="store_true", help="by streams and by events instead")
    return parser.parse_args()


class Systems:
    """The running systems."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.running: dict[str, System] = {}
        self._folder = folder
        self._environment = environment
        self._started = 0

    @asynccontextmanager
    async def start(self, name: str) -> AsyncIterator[System]:
        """Start a system and warm it up."""
        self._started += 1
        folder = self._folder / str(self._started)
        async with OPENERS[name](folder, self._environment) as system:
            await warm(system)
            yield system

    @asynccontextmanager
    async def borrow(self, name: str, row: Row) -> AsyncIterator[System]:
        """Yield the running system, or a new one for a row that needs it."""
        if row.is_fresh:
            async with self.start(name) as system:
                yield system
        else:
            yield self.running[name]


async def warm(system: System) -> None:
    """Run a sample of the workload, so that later tasks load nothing."""
    for path in () if system.name in UNARY_ONLY else (ONE_HOP, TWO_HOPS):
        for _ in range(1 if system.name in (PEER, PEER_TRACED) else 4):
            await streams(system.url, path, Ask(), 8)
    await unary(system.url, ECHO, "echo hello", callers=8, calls=10)


async def _row(row: Row, systems: Systems, repetitions: int, size: Size) -> Results:
    """Measure a row on all systems in turns."""
    results: dict[str, list[Figures]] = {}
    for _ in range(min(repetitions, row.repetitions or repetitions)):
        for name in (name for name in row.runs if name in systems.running):
            started_s = time.monotonic()
            try:
                async with asyncio.timeout(_TIMEOUT_S), systems.borrow(name, row) as system:
                    figures = await row.measure(system, size)
            # A failing system is left out of this row and reported.
            except (AssertionError, OSError, TimeoutError, ExceptionGroup) as error:
                print(f"{row.name}: {name} failed: {_first(error)!r:.300}", file=sys.stderr)
                continue
            results.setdefault(name, []).append(figures)
            elapsed_s = time.monotonic() - started_s
            rounded = {figure: round(value, 2) for figure, value in figures.items()}
            print(f"{row.name}: {name}: {rounded} in {elapsed_s:.1f} s", file=sys.stderr)
    return results


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    run(main())
