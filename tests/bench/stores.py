"""Measures what PostgreSQL costs beside SQLite, in one run: `python tests/bench/stores.py`.

    --rows paced unary hop     three rows of the table, on SQLite and on PostgreSQL in turns
    --callers 1 4 16 64        unary calls by so many callers at once, on both in turns
    --replicas 1 2 4 8         unary calls to so many replicas of one agent on one PostgreSQL
    --journals 1 4 16 32       commits a second of so many journals in one process

The server is started for the run, with the settings of a new cluster (`fsync = on`,
`synchronous_commit = on`). CPU is the sum of our processes, and that of the server's processes.
Clients count for neither.
"""

import argparse
import asyncio
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.clients import unary
from bench.journal_append import begin, tokens
from bench.processes import System, used_s
from bench.report import describe_environment
from bench.rows import (
    CPU_CALL,
    CPU_EVENT,
    FULL,
    QUICK,
    ROWS,
    Figures,
    Measure,
    Row,
    Size,
    load,
)
from bench.systems import ECHO, OPENERS, SERVICES, run, trunkline_services
from bench.table import warm
from harness.journal.opening import open_journal
from harness.journal.postgres_server import PostgresServer
from trunkline.core.postgres import PostgresDatabase
from trunkline.journal.journal import Journal
from trunkline.journal.postgres import PostgresCatalog

SQLITE: Final = "SQLite"
POSTGRES: Final = "PostgreSQL"
_SERVER_CPU: Final = "the server's CPU"
_COMMITS: Final = "commits a second"
_COUNT: Final = re.compile(r"^trunkline_journal_commit_duration_seconds_count (\d+)", re.MULTILINE)
_COMMITS_OF_JOURNAL: Final = 400

_Runs = Mapping[str, Sequence[Figures]]


async def main() -> None:
    """Measure and print."""
    options = _options()
    size = QUICK if options.quick else FULL
    load_before = load()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        rows = [row for row in ROWS if any(word in row.name for word in options.rows)]
        rows = [row for row in rows if not row.switched]
        if rows:
            for name, runs in (await _compare(rows, folder / "rows", size, options)).items():
                print(_table(name, runs), flush=True)
        if options.callers:
            rows = [Row(f"unary, {count} callers", _unary(count), {}) for count in options.callers]
            for row, runs in (await _compare(rows, folder / "callers", size, options)).items():
                print(_table(row, runs), flush=True)
        for replicas in options.replicas:
            async with _new_server() as server:
                runs = await _grow(
                    server, folder / f"{replicas}", replicas, size, options.repetitions
                )
            print(_table(f"unary, {replicas} replicas", runs), flush=True)
        for count in options.journals:
            runs = await _commit(folder, count, options.repetitions)
            print(_table(f"{count} journals, one event a commit", runs), flush=True)
    print(f"\n{describe_environment(load_before)}, repetitions {options.repetitions}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repetitions", type=int, default=4)
    parser.add_argument("--rows", nargs="*", default=[])
    parser.add_argument("--callers", nargs="*", type=int, default=[])
    parser.add_argument("--replicas", nargs="*", type=int, default=[])
    parser.add_argument("--journals", nargs="*", type=int, default=[])
    return parser.parse_args()


@asynccontextmanager
async def _new_server() -> AsyncIterator[PostgresServer]:
    server = await asyncio.to_thread(PostgresServer)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.remove)


async def _compare(
    rows: Sequence[Row], folder: Path, size: Size, options: argparse.Namespace
) -> Mapping[str, _Runs]:
    """Measure rows on both stores in turns; return the runs by row."""
    runs: dict[str, dict[str, list[Figures]]] = {
        row.name: {SQLITE: [], POSTGRES: []} for row in rows
    }
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(_new_server())
        stores = {SQLITE: {}, POSTGRES: {"TRUNKLINE_STORE": server.url}}
        systems = {
            name: await stack.enter_async_context(_open(folder / name, environment))
            for name, environment in stores.items()
        }
        for row in rows:
            for _ in range(options.repetitions):
                for name, system in systems.items():
                    measured = await _measure(row, system, server, size)
                    print(f"{row.name}: {name}: {_rounded(measured)}", file=sys.stderr)
                    runs[row.name][name].append(measured)
    return runs


def _unary(callers: int) -> Measure:
    """Return the measurement of unary calls by so many callers at once."""

    async def measure(system: System, size: Size) -> Figures:
        calls = max(4, 32 * size.calls // callers // 2)
        before, started_s = system.cpu_s(), time.monotonic()
        await unary(system.url, ECHO, "echo hello", callers=callers, calls=calls)
        elapsed_s = time.monotonic() - started_s
        used_ms = used_s(system, before) * 1000
        return {
            CPU_CALL: used_ms / (callers * calls),
            "calls a second": callers * calls / elapsed_s,
            "ms a call": callers * elapsed_s / (callers * calls) * 1000,
        }

    return measure


@asynccontextmanager
async def _open(
    folder: Path, environment: Mapping[str, str], *, echoes: int = 1
) -> AsyncIterator[System]:
    environment = {**environment, "TRUNKLINE_METRICS_ADDRESS": "127.0.0.1:0"}
    opener = partial(trunkline_services, echoes=echoes) if echoes > 1 else OPENERS[SERVICES]
    async with opener(folder, environment) as system:
        await warm(system)
        yield system


async def _measure(row: Row, system: System, server: PostgresServer, size: Size) -> Figures:
    """Return the figures of a row, with the server's part and the commits."""
    database = System(POSTGRES, server.url, {POSTGRES: server.pid})
    ours, theirs, commits = system.cpu_s(), database.cpu_s(), await _count_commits(system)
    started_s = time.monotonic()
    figures = dict(await row.measure(system, size))
    elapsed_s = time.monotonic() - started_s
    cpu = CPU_EVENT if CPU_EVENT in figures else CPU_CALL
    share = used_s(database, theirs) / used_s(system, ours)
    figures[f"{_SERVER_CPU}, {cpu.removeprefix('CPU ')}"] = figures[cpu] * share
    figures[_COMMITS] = (await _count_commits(system) - commits) / elapsed_s
    return figures


async def _count_commits(system: System) -> int:
    pages = [await asyncio.to_thread(_fetch, address) for address in system.metrics]
    return sum(int(match[1]) for page in pages for match in _COUNT.finditer(page))


def _fetch(address: str) -> str:
    with urlopen(address, timeout=10) as response:  # noqa: S310  an address of this machine
        text: str = response.read().decode()
    return text


async def _grow(
    server: PostgresServer, folder: Path, replicas: int, size: Size, repetitions: int
) -> _Runs:
    """Measure unary calls to so many replicas of one agent."""
    row = next(row for row in ROWS if row.name.startswith("unary"))
    runs: list[Figures] = []
    async with _open(folder, {"TRUNKLINE_STORE": server.url}, echoes=replicas) as system:
        for _ in range(repetitions):
            before = system.cpu_s()
            figures = dict(await _measure(row, system, server, size))
            used = {role: now - before[role] for role, now in system.cpu_s().items()}
            hosts = sum(used_ for role, used_ in used.items() if role.startswith("echo"))
            figures["hosts' part of our CPU, %"] = 100 * hosts / sum(used.values())
            runs.append(figures)
            print(f"{replicas} replicas: {_rounded(runs[-1])}", file=sys.stderr)
    return {POSTGRES: runs}


async def _commit(folder: Path, count: int, repetitions: int) -> _Runs:
    """Measure commits of one event each, of so many journals of this process at once."""
    runs: dict[str, list[Figures]] = {SQLITE: [], POSTGRES: []}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(_new_server())
        catalog = PostgresCatalog(await stack.enter_async_context(PostgresDatabase(server.url)))
        journals: dict[str, list[Journal]] = {SQLITE: [], POSTGRES: []}
        for number in range(count):
            store = await catalog.open(f"bench-{number}")
            journals[SQLITE].append(open_journal(folder / f"{count}-{number}.db"))
            journals[POSTGRES].append(Journal(store, await store.list_unfinished()))
        for name in journals:
            for journal in journals[name]:
                await stack.enter_async_context(journal)
        database = System(POSTGRES, server.url, {POSTGRES: server.pid})
        for _ in range(repetitions):
            for name, opened in journals.items():
                tasks = [await begin(journal) for journal in opened]
                theirs, ours_s, started_s = (
                    database.cpu_s(), time.process_time(), time.monotonic(),
                )  # fmt: skip
                async with asyncio.TaskGroup() as group:
                    for journal, task_id in zip(opened, tasks, strict=True):
                        group.create_task(_append(journal, task_id))
                commits = count * _COMMITS_OF_JOURNAL
                runs[name].append({
                    _COMMITS: commits / (time.monotonic() - started_s),
                    "our CPU µs a commit": (time.process_time() - ours_s) / commits * 1e6,
                    f"{_SERVER_CPU} µs a commit": used_s(database, theirs) / commits * 1e6,
                })  # fmt: skip
    return runs


async def _append(journal: Journal, task_id: str) -> None:
    for _ in range(_COMMITS_OF_JOURNAL):
        await journal.append(task_id, journal.epoch, [tokens(1)])


def _rounded(figures: Figures) -> dict[str, float]:
    return {figure: round(value, 2) for figure, value in figures.items()}


def _table(name: str, runs: _Runs) -> str:
    """Return the figures as a table in Markdown: medians, and the ratio of neighbouring turns."""
    lines = [f"\n| {name} | {' | '.join(runs)} | ratio |", "|---|" + "---|" * (len(runs) + 1)]
    for figure in next(iter(runs.values()))[0]:
        cells = [
            f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"
            for values in ([run[figure] for run in of_store] for of_store in runs.values())
        ]
        ratio = "-"
        if POSTGRES in runs and SQLITE in runs and all(run[figure] for run in runs[SQLITE]):
            pairs = zip(runs[POSTGRES], runs[SQLITE], strict=True)
            ratio = f"{statistics.median(one[figure] / other[figure] for one, other in pairs):.2f}x"
        lines.append(f"| {figure} | {' | '.join(cells)} | {ratio} |")
    return "\n".join(lines)


if __name__ == "__main__":
    run(main())
