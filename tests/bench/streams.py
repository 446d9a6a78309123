"""What an event costs from the agent to the A2A client, with the whole mesh in one process.

`.venv/bin/python tests/bench/streams.py` runs streams at once, each `count EVENTS` by echo, asked
directly (one hop) and through the supervisor (two hops), alternating. CPU is that of the mesh's
process, from the operating system; the client is not counted. Journal and tracing are on.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.processes import MeshProcess, running_mesh

SHAPES = {"one hop": "/agents/echo", "two hops": "/"}


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def stream(url: str, path: str, events: int) -> tuple[int, float]:
    """Run one stream to its end; return how many events came, and when the first text did."""
    parts = urlsplit(url)
    message = {
        "messageId": "m-1",
        "role": "ROLE_USER",
        "parts": [{"text": f"count {events}"}],
    }
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage"}
    body = json.dumps({**call, "params": {"message": message}}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nA2A-Version: 1.0\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 20)
    writer.write(head.encode() + body)
    count, first_s, tail = 0, 0.0, b""
    while data := await reader.read(1 << 16):
        if not first_s and b'"text":"1 "' in data:
            first_s = time.perf_counter() - started
        data = tail + data
        count += data.count(b"\ndata: ")
        tail = data[-6:] if not data.endswith(b"\ndata: ") else b""
    writer.close()
    return count, first_s


async def run(
    mesh: MeshProcess, path: str, streams: int, events: int
) -> tuple[float, float, float]:
    """Return CPU µs an event, events a second, and the median time to the first text in ms."""
    before_s, started = cpu_s(mesh.process.pid), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(stream(mesh.http_url, path, events)) for _ in range(streams)]
    took_s = time.perf_counter() - started
    used_s = cpu_s(mesh.process.pid) - before_s
    results = [task.result() for task in tasks]
    total = sum(count for count, _ in results)
    assert total >= streams * events, f"{total} events came of {streams * events}"
    first_ms = statistics.median(first for _, first in results) * 1000
    return used_s / total * 1e6, total / took_s, first_ms


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--events", type=int, default=600)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    figures: dict[str, list[tuple[float, float, float]]] = {shape: [] for shape in SHAPES}
    with tempfile.TemporaryDirectory() as folder:
        async with running_mesh(Path(folder)) as mesh:
            for path in SHAPES.values():
                await run(mesh, path, 1, 10)
            for _ in range(options.repetitions):
                for shape, path in SHAPES.items():
                    figures[shape].append(await run(mesh, path, options.streams, options.events))
    print(
        f"Python {platform.python_version()}, grpcio {version('grpcio')}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
        f"{options.streams} streams of {options.events} events, {options.repetitions} repetitions"
    )
    for shape, found in figures.items():
        for name, values in zip(
            ("CPU µs an event", "events a second", "first text, ms"),
            zip(*found, strict=True),
            strict=True,
        ):
            low, high = min(values), max(values)
            print(
                f"{shape:9} {name:16} {statistics.median(values):9.1f}  ({low:.1f} to {high:.1f})"
            )


if __name__ == "__main__":
    asyncio.run(main())
