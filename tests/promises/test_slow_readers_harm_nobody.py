"""Promise 7: one stalled reader does not affect the others, and receives everything later."""

import asyncio
import random
import socket
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from harness.a2a.sse_client import PATIENCE_S, ClientFold, sse, subscription, user_message
from harness.mesh.process_sizes import resident_bytes
from harness.mesh.processes import MeshProcess, running_mesh
from harness.promise_scale import PromiseScale

MIB = 1024 * 1024


@asynccontextmanager
async def stalled(mesh: MeshProcess, task_id: str, last_event_id: str) -> AsyncIterator[None]:
    """Open a stream, and read nothing from it."""
    at = urlsplit(mesh.http_url)
    with socket.socket() as connection:
        # A small receive buffer: unread data stays with the server.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (at.hostname, at.port))
        request = subscription(mesh.http_url, "/agents/echo", task_id, last_event_id)
        await loop.sock_sendall(connection, request)
        yield


async def count_all(mesh: MeshProcess, task_id: str, last_event_id: str) -> int:
    """Follow a task to its end as cheaply as possible; return the number of events."""
    at = urlsplit(mesh.http_url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port, limit=MIB)
    writer.write(subscription(mesh.http_url, "/agents/echo", task_id, last_event_id))
    count, tail = 0, b""
    try:
        while piece := await asyncio.wait_for(reader.read(256 * 1024), PATIENCE_S):
            piece = tail + piece
            count += piece.count(b"\ndata: ")
            tail = piece[-6:] if not piece.endswith(b"\ndata: ") else b""
    finally:
        writer.transport.abort()
    return count


async def run(
    mesh: MeshProcess, *, readers: int, events: int, is_one_stalled: bool
) -> tuple[float, int]:
    """Let readers follow a task; return the duration in seconds and the mesh's memory growth."""
    params = {"message": user_message(f"count {events}")}
    before_bytes = resident_bytes(Path(f"/proc/{mesh.process.pid}"))
    started = time.perf_counter()
    async with sse(mesh.http_url, "/agents/echo", "SendStreamingMessage", params) as answer:
        first = await anext(answer.events())
        task_id = first.result["task"]["id"]
        async with asyncio.TaskGroup() as group:
            counters = [
                group.create_task(count_all(mesh, task_id, first.id)) for _ in range(readers)
            ]
            if is_one_stalled:
                async with stalled(mesh, task_id, first.id):
                    await asyncio.wait(counters)
                    growth_bytes = resident_bytes(Path(f"/proc/{mesh.process.pid}")) - before_bytes
            else:
                await asyncio.wait(counters)
                growth_bytes = resident_bytes(Path(f"/proc/{mesh.process.pid}")) - before_bytes
    duration_s = time.perf_counter() - started
    # Working, each number, completed: all of them after the first event.
    assert {task.result() for task in counters} == {events + 2}
    fold = ClientFold()
    fold.apply(first)
    async with sse(
        mesh.http_url, "/agents/echo", "SubscribeToTask", {"id": task_id},
        {"Last-Event-ID": first.id},
    ) as answer:  # fmt: skip
        async for event in answer.events():
            fold.apply(event)
    assert fold.state == "TASK_STATE_COMPLETED"
    assert list(fold.texts.values()) == ["".join(f"{n} " for n in range(1, events + 1))]
    return duration_s, growth_bytes


async def test_slow_readers_harm_nobody(
    tmp_path: Path, scale: PromiseScale, rng: random.Random
) -> None:
    """Readers of a long task with a stalled one among them, and without it, in alternation."""
    readers = scale.pick(ci=9, prove=99)
    events = scale.pick(ci=3000, prove=50_000)
    repetitions = scale.pick(ci=1, prove=5)
    times_s: dict[bool, list[float]] = {True: [], False: []}
    growth_bytes: dict[bool, list[int]] = {True: [], False: []}
    async with running_mesh(tmp_path) as mesh:
        # The first run allocates memory that later runs reuse.
        await run(mesh, readers=readers, events=events, is_one_stalled=False)
        for _ in range(repetitions):
            for is_one_stalled in rng.sample([True, False], 2):
                duration_s, more = await run(
                    mesh, readers=readers, events=events, is_one_stalled=is_one_stalled
                )
                times_s[is_one_stalled].append(duration_s)
                growth_bytes[is_one_stalled].append(more)
    if scale.is_proof:
        stalled, free = times_s[True], times_s[False]
        stalled_s, free_s = statistics.median(stalled), statistics.median(free)
        assert min(free) * 0.95 <= stalled_s <= max(free) * 1.05
        assert max(growth_bytes[True]) <= 16 * MIB + max(0, max(growth_bytes[False]))
        scale.report(
            readers=readers,
            events=events,
            with_stalled_s=f"{stalled_s:.2f} ({min(stalled):.2f} to {max(stalled):.2f})",
            without_s=f"{free_s:.2f} ({min(free):.2f} to {max(free):.2f})",
            gained_mib=[round(growth / MIB, 1) for growth in growth_bytes[True]],
        )
