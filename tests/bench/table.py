"""The speed table: Trunkline, an a2a-sdk pair and the floor, side by side in one run.

`.venv/bin/python tests/bench/table.py` starts all of them, lets them take turns, and prints medians
(lowest to highest). CPU is that of all server processes of a system together, from the operating
system; clients are not counted. Journal and tracing are on. See README.md beside this.
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
from bench.report import Found, table, where
from bench.rows import FULL, QUICK, ROWS, Figures, Row, Size, load
from bench.systems import ECHO, ONE_HOP, OPENERS, PEER, PEER_TRACED, TWO_HOPS, run
from bench.workload import Ask

_PATIENCE_S = 300.0


async def main() -> None:
    """Measure and print."""
    options = _options()
    size = QUICK if options.quick else FULL
    repetitions = options.repetitions or (2 if options.quick else 5)
    rows = [row for row in ROWS if any(word in row.name for word in options.rows or [""])]
    wanted = [name for name in OPENERS if name in (options.systems or OPENERS)]
    needed = {name for row in rows for name in row.runs}
    load_before = load()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        environment = {"PYTHONPATH": os.pathsep.join(options.path)} if options.path else {}
        systems = Systems(folder, environment)
        for name in wanted:
            if name in needed or options.curves:
                systems.running[name] = await stack.enter_async_context(systems.started(name))
        # What the client has made so far stays; looking at it again would show as latency.
        gc.collect()
        gc.freeze()
        if options.curves:
            print(await curves(systems.running))
        else:
            found = [(row, await _row(row, systems, repetitions, size)) for row in rows]
            print(table(found, list(systems.running)))
    print(f"\n{where(load_before)}, repetitions {1 if options.curves else repetitions}")


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
    """What runs."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.running: dict[str, System] = {}
        self._folder = folder
        self._environment = environment
        self._started = 0

    @asynccontextmanager
    async def started(self, name: str) -> AsyncIterator[System]:
        """Start one, and let it do a little of everything."""
        self._started += 1
        folder = self._folder / str(self._started)
        async with OPENERS[name](folder, self._environment) as system:
            await warm(system)
            yield system

    @asynccontextmanager
    async def lent(self, name: str, row: Row) -> AsyncIterator[System]:
        """Give the one that runs, or a new one where a row wants that."""
        if row.is_fresh:
            async with self.started(name) as system:
                yield system
        else:
            yield self.running[name]


async def warm(system: System) -> None:
    """Let a system load what its first tasks load."""
    for path in (ONE_HOP, TWO_HOPS):
        for _ in range(1 if system.name in (PEER, PEER_TRACED) else 4):
            await streams(system.url, path, Ask(), 8)
    await unary(system.url, ECHO, "echo hello", callers=8, calls=10)


async def _row(row: Row, systems: Systems, repetitions: int, size: Size) -> Found:
    """Let the systems take turns."""
    found: dict[str, list[Figures]] = {}
    for _ in range(min(repetitions, row.repetitions or repetitions)):
        for name in (name for name in row.runs if name in systems.running):
            began = time.monotonic()
            try:
                async with asyncio.timeout(_PATIENCE_S), systems.lent(name, row) as system:
                    figures = await row.measure(system, size)
            # One that can't do it is left out of this row, and said to be.
            except (AssertionError, OSError, TimeoutError, ExceptionGroup) as error:
                print(f"{row.name}: {name} failed: {_first(error)!r:.300}", file=sys.stderr)
                continue
            found.setdefault(name, []).append(figures)
            took_s = time.monotonic() - began
            said = {what: round(value, 2) for what, value in figures.items()}
            print(f"{row.name}: {name}: {said} in {took_s:.1f} s", file=sys.stderr)
    return found


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    run(main())
