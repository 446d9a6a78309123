"""The rows of the table: the work that each one measures, and its figures."""

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from bench.clients import IdleReaders, StreamResult, stream, streams, unary
from bench.processes import System, used_s
from bench.systems import (
    ECHO,
    ENCRYPTED,
    FLOOR,
    NO_AUDIT,
    NO_JOURNAL,
    NO_POLICY,
    NO_TLS,
    NO_TRACING,
    ONE_HOP,
    PEER,
    PEER_TRACED,
    POLICY,
    SERVICES,
    TOGETHER,
    TWO_HOPS,
    UNARY_ONLY,
)
from bench.workload import Ask

Figures: TypeAlias = Mapping[str, float]

CPU_EVENT = "CPU µs an event"
RATE = "events a second"
FIRST_EVENT = "first event, ms"
FIRST_TEXT = "first text, ms"
TASKS = "tasks"
P50, P99 = "latency p50, ms", "latency p99, ms"
BUSY = "machine busy, %"
CPU_CALL, CALLS = "CPU ms a call", "calls a second"
SHORT, LONG = "early in a task, µs", "late in a long task, µs"
READER_KB, IDLE_CPU = "KB a reader", "CPU-s per 20 s"

CONCURRENT_STREAMS = 16
_IDLE_S = 20.0
_PEER_PACED_TASKS = 6


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work in one repetition."""

    rounds: int = 6
    """Rounds of concurrent streams; the peer, which takes a hundred times as long, gets one."""
    paced_tasks: int = 128
    paced_s: int = 8
    preload_s: int = 3
    calls: int = 40
    single_tasks: int = 30
    long_events: int = 50_000
    readers: int = 1000


FULL = Size()
QUICK = Size(
    rounds=2, paced_s=5, preload_s=2, calls=15, single_tasks=15, long_events=10_000, readers=300
)

Measure: TypeAlias = Callable[[System, Size], Awaitable[Figures]]


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of work."""

    name: str
    measure: Measure
    aims: Mapping[str, str]
    systems: Sequence[str] = (SERVICES, TOGETHER, PEER, FLOOR)
    repetitions: int = 0
    """The maximum for a long row; 0: as many as requested."""
    switched: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The pairs of systems, on and off, that a column compares, instead of `systems`."""
    is_fresh: bool = False
    """Each repetition runs on new processes."""

    @property
    def runs(self) -> Sequence[str]:
        """The systems that the row runs on."""
        switched = [name for pair in self.switched.values() for name in pair]
        return list(dict.fromkeys(switched)) or self.systems


def _is_peer(system: System) -> bool:
    return system.name in (PEER, PEER_TRACED)


def _rounds(system: System, size: Size) -> int:
    return 1 if _is_peer(system) else size.rounds


def _unpaced(path: str) -> Measure:
    async def measure(system: System, size: Size) -> Figures:
        before, started_s = system.cpu_s(), time.perf_counter()
        results: list[StreamResult] = []
        for _ in range(_rounds(system, size)):
            results += await streams(system.url, path, Ask(), CONCURRENT_STREAMS)
        elapsed_s = time.perf_counter() - started_s
        events = sum(result.events for result in results)
        return {
            CPU_EVENT: used_s(system, before) / events * 1e6,
            RATE: events / elapsed_s,
            FIRST_EVENT: statistics.median(result.first_event_ms for result in results),
            FIRST_TEXT: statistics.median(result.first_text_ms for result in results),
        }

    return measure


async def _single(system: System, size: Size) -> Figures:
    results = [await stream(system.url, TWO_HOPS, Ask(tokens=50)) for _ in range(size.single_tasks)]
    return {
        FIRST_EVENT: statistics.median(result.first_event_ms for result in results),
        FIRST_TEXT: statistics.median(result.first_text_ms for result in results),
    }


async def _paced(system: System, size: Size) -> Figures:
    # More tasks than it can handle would only queue.
    tasks = _PEER_PACED_TASKS if _is_peer(system) else size.paced_tasks
    ask = Ask(tokens=size.paced_s * 50, gap_ms=20)
    before, busy = system.cpu_s(), _Busy()
    results = await streams(
        system.url, TWO_HOPS, ask, tasks, spread_s=1.0, preload_s=size.preload_s
    )
    events = sum(result.events for result in results)
    ages_ms = sorted(age / 1000 for result in results for age in result.ages_us)
    return {
        TASKS: tasks,
        CPU_EVENT: used_s(system, before) / events * 1e6,
        P50: ages_ms[len(ages_ms) // 2],
        P99: ages_ms[len(ages_ms) * 99 // 100],
        BUSY: busy.percent(),
    }


async def _unary(system: System, size: Size) -> Figures:
    callers, calls = 32, size.calls // 4 if _is_peer(system) else size.calls
    before, started_s = system.cpu_s(), time.perf_counter()
    await unary(system.url, ECHO, "echo hello", callers=callers, calls=calls)
    elapsed_s = time.perf_counter() - started_s
    return {
        CPU_CALL: used_s(system, before) / (callers * calls) * 1000,
        CALLS: callers * calls / elapsed_s,
    }


async def _marginal(system: System, size: Size) -> Figures:
    long = 5_000 if _is_peer(system) else size.long_events
    short = 5 if _is_peer(system) else 50
    return {
        SHORT: await _slope_us(system, 100, 500, tasks=short),
        LONG: await _slope_us(system, long // 2, long, tasks=1),
    }


async def _slope_us(system: System, low: int, high: int, *, tasks: int) -> float:
    """Return the cost of an event between the first `few` of a task and its last."""
    costs = []
    for tokens in (low, high):
        before = system.cpu_s()
        for _ in range(tasks):
            await stream(system.url, ONE_HOP, Ask(tokens))
        costs.append(used_s(system, before))
    return (costs[1] - costs[0]) / (tasks * (high - low)) * 1e6


async def _idle(system: System, size: Size) -> Figures:
    readers = IdleReaders(system.url, ECHO)
    await readers.begin("wait 3600")
    # The first readers load modules that later ones share.
    await readers.add(50)
    before = sum(system.rss_bytes().values())
    await readers.add(size.readers)
    growth_bytes = sum(system.rss_bytes().values()) - before
    # Opening the streams causes work that does not belong to idle readers.
    await asyncio.sleep(2)
    cpu_s = system.cpu_s()
    await asyncio.sleep(_IDLE_S)
    used_s_ = used_s(system, cpu_s)
    readers.close()
    return {READER_KB: growth_bytes / size.readers / 1000, IDLE_CPU: used_s_}


class _Busy:
    """Measures the CPU usage of the whole machine, including the clients and other processes."""

    def __init__(self) -> None:
        self._before = self._ticks()

    def percent(self) -> float:
        total, idle = (
            current - before for current, before in zip(self._ticks(), self._before, strict=True)
        )
        return 100.0 * (1 - idle / total)

    @staticmethod
    def _ticks() -> tuple[int, int]:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        ticks = [int(field) for field in fields]
        return sum(ticks), ticks[3] + ticks[4]


_JOURNAL = {SERVICES: (SERVICES, NO_JOURNAL)}
_ENCRYPTION = {SERVICES: (ENCRYPTED, SERVICES)}
_TRACING = {SERVICES: (SERVICES, NO_TRACING), PEER: (PEER_TRACED, PEER)}
_AUDIT = {SERVICES: (SERVICES, NO_AUDIT)}
_TLS = {SERVICES: (SERVICES, NO_TLS)}
_POLICY = {SERVICES: (POLICY, NO_POLICY)}
ROWS = (
    Row("one hop, 16 at once", _unpaced(ONE_HOP), {CPU_EVENT: "≤ 20", RATE: "≥ 25x"}),
    Row("two hops, 16 at once", _unpaced(TWO_HOPS), {
        CPU_EVENT: "≤ 30", RATE: "≥ 25x", FIRST_EVENT: "≤ 25",
    }),
    Row("two hops, alone", _single, {FIRST_EVENT: "≤ 5"}),
    Row("paced: two hops, 128 x 50/s", _paced, {CPU_EVENT: "≤ 130", P50: "≤ 6", P99: "≤ 15"}),
    Row("unary echo, 32 at once", _unary, {CPU_CALL: "≤ 1", CALLS: "≥ 1,200"}, (
        SERVICES, TOGETHER, PEER, FLOOR, *UNARY_ONLY,
    )),
    Row("marginal cost of an event", _marginal, {LONG: "no higher"}, repetitions=3),
    Row("idle SSE readers", _idle, {
        READER_KB: "≤ 50", IDLE_CPU: "≤ 0.10",
    }, repetitions=2, is_fresh=True),
    Row("journal on and off: paced", _paced, {CPU_EVENT: "≤ 1.25x"}, switched=_JOURNAL),
    Row("encryption on and off: paced", _paced, {CPU_EVENT: "≤ 1.05x"}, switched=_ENCRYPTION),
    Row("encryption on and off: unary", _unary, {CPU_CALL: "≤ 1.05x"}, switched=_ENCRYPTION),
    Row("tracing on and off: one hop", _unpaced(ONE_HOP), {CPU_EVENT: "≤ 1.1x"}, switched=_TRACING),
    Row("tracing on and off: unary", _unary, {CPU_CALL: "≤ 1.6x"}, switched=_TRACING),
    Row("audit log on and off: unary", _unary, {CPU_CALL: "≤ 1.05x"}, switched=_AUDIT),
    Row("policy on and off: unary", _unary, {CPU_CALL: "≤ 1.05x"}, switched=_POLICY),
    Row("mTLS on and off: paced", _paced, {CPU_EVENT: "≤ 1.1x"}, switched=_TLS),
    Row("mTLS on and off: unary", _unary, {CPU_CALL: "≤ 1.15x"}, switched=_TLS),
)  # fmt: skip


def load() -> float:
    """Return the average number of runnable processes in the last minute."""
    return os.getloadavg()[0]
