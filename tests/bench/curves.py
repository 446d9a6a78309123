"""Measures how the cost grows with the number of streams and with the length of a task."""

import time
from collections.abc import Mapping, Sequence

from bench.clients import stream, streams
from bench.processes import System, used_s
from bench.systems import ONE_HOP, PEER, PEER_TRACED, TWO_HOPS
from bench.workload import Ask

_STREAMS = (1, 10, 100, 1000)
_EVENTS = (100, 500, 1000, 5000, 10_000, 50_000)
# Beyond these the peer takes minutes for each point.
_PEER_STREAMS, _PEER_EVENTS = 100, 5000
# The minimum number of events at each point.
_MIN_EVENTS = 5000
_PEERS = (PEER, PEER_TRACED)


async def curves(systems: Mapping[str, System]) -> str:
    """Measure each system along both axes; return two tables in Markdown."""
    by_streams = [
        [await _by_streams(systems[name], count) for name in systems] for count in _STREAMS
    ]
    by_events = [[await _by_events(systems[name], count) for name in systems] for count in _EVENTS]
    return "\n\n".join(
        (
            "CPU µs an event and events a second, two hops, streams of 550 events at once:",
            _table("streams", _STREAMS, list(systems), by_streams),
            "CPU µs an event, one hop, one task at a time:",
            _table("events a task", _EVENTS, list(systems), by_events),
        )
    )


async def _by_streams(system: System, count: int) -> str:
    if system.name in _PEERS and count > _PEER_STREAMS:
        return "not run"
    rounds = 1 if system.name in _PEERS else max(1, _MIN_EVENTS // (count * 500))
    events, before, started_s = 0, system.cpu_s(), time.perf_counter()
    for _ in range(rounds):
        results = await streams(system.url, TWO_HOPS, Ask(), count)
        events += sum(result.events for result in results)
    elapsed_s = time.perf_counter() - started_s
    return f"{used_s(system, before) / events * 1e6:.1f}, {events / elapsed_s:,.0f}/s"


async def _by_events(system: System, count: int) -> str:
    if system.name in _PEERS and count > _PEER_EVENTS:
        return "not run"
    tasks = 1 if system.name in _PEERS else max(1, _MIN_EVENTS // count)
    events, before = 0, system.cpu_s()
    for _ in range(tasks):
        events += (await stream(system.url, ONE_HOP, Ask(tokens=count))).events
    return f"{used_s(system, before) / events * 1e6:.1f}"


def _table(
    heading: str, points: Sequence[int], names: Sequence[str], cells: Sequence[Sequence[str]]
) -> str:
    lines = [f"| {heading} | " + " | ".join(names) + " |", "|" + "---|" * (len(names) + 1)]
    lines += [
        f"| {point:,} | " + " | ".join(row) + " |" for point, row in zip(points, cells, strict=True)
    ]
    return "\n".join(lines)
