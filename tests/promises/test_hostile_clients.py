"""Promise 12: every malformed request gets a clear error, and other clients are still served."""

import asyncio
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc
import httpx2
from a2a.types import a2a_pb2

from harness.a2a.sse_client import request_bytes, send, sse, user_message
from harness.hostile.grpc_probe import GrpcProbe
from harness.hostile.http2_frames import OPENING, call_headers, header, long_call, reset_calls
from harness.hostile.http_probe import PATIENCE_S, HttpProbe, read_answer
from harness.hostile.http_requests import Hostile
from harness.hostile.valid_calls import V1, Targets
from harness.mesh.processes import MeshProcess, running_mesh
from harness.polling import wait_for
from harness.promise_scale import PromiseScale, percentiles

MIB = 1024 * 1024
ECHO = "/agents/echo"
# It ends slow clients, and is long enough for good ones on a busy machine.
REQUEST_TIMEOUT_S = 3.0
# The id of a task's first event.
BEGINNING = "1.1"
_RESET = struct.pack("ii", 1, 0)
# The wait of a good client takes milliseconds, and took minutes when one connection stopped a mesh.
MAX_WAIT_S = 10.0
LIST_TASKS = V1 + "ListTasks"
LONG_TEXTS = (
    *("and ", "then ", "please ", "hi ", "thanks ", "(", "1+", "1 and ", "x^", " ", "\n", "a", "7"),
    *("[", "`", "#", ",", "1, ", "a: b ", "a@b.c ", "http://a.b/ ", "2026-11-27 ", "- do it\n"),
)


class ProcessResources(NamedTuple):
    """The system resources of a process."""

    files: int
    threads: int
    rss_bytes: int


def measure(mesh: MeshProcess) -> ProcessResources:
    """Measure the mesh's process."""
    proc_folder = Path(f"/proc/{mesh.process.pid}")
    status = dict(line.split(":", 1) for line in (proc_folder / "status").read_text().splitlines())
    rss_bytes = int(status["VmRSS"].split()[0]) * 1024
    return ProcessResources(
        len(list((proc_folder / "fd").iterdir())), int(status["Threads"]), rss_bytes
    )


async def released(mesh: MeshProcess, before: ProcessResources, *, spare: int = 10) -> None:
    """Wait until the number of open files is back to that of `before`, plus a few spare ones."""
    await wait_for(lambda: measure(mesh).files <= before.files + spare)


async def new_targets(mesh: MeshProcess) -> Targets:
    """Create an ended task and one that waits for input."""
    task_ids = []
    for text in ("hello", "ask what?"):
        params = {"message": user_message(text)}
        _, _, body = await send(mesh.http_url, ECHO, "SendMessage", params)
        task_ids.append(str(body["result"]["task"]["id"]))
    return Targets(*task_ids)


async def test_mutated_requests(tmp_path: Path, scale: PromiseScale, rng: random.Random) -> None:
    """No internal error, no hang, no growth; a valid request succeeds after each batch."""
    batches = scale.pick(ci=4, prove=300)
    http_each, grpc_each = scale.pick(ci=(75, 25), prove=(80, 20))
    statuses: Counter[str] = Counter()
    samples: list[ProcessResources] = []
    async with (
        running_mesh(tmp_path, "--default", "echo") as mesh,
        grpc.aio.insecure_channel(mesh.a2a_grpc_address) as channel,
    ):
        over_http = HttpProbe(mesh.http_url)
        over_grpc = GrpcProbe(channel, mesh.a2a_grpc_address, rng)
        hostile = Hostile(rng, over_http.host)
        for _ in range(batches):
            targets = await new_targets(mesh)
            for _ in range(http_each):
                request = hostile.request(targets)
                try:
                    answer = await over_http.provoke(request)
                except Exception as error:
                    error.add_note(f"{request.render()[:3000]!r}")
                    raise
                statuses["http odd" if answer is None else f"http {answer.status}"] += 1
            for _ in range(grpc_each):
                statuses[f"grpc {await over_grpc.provoke(targets)}"] += 1
            await over_grpc.provoke_raw()
            await over_http.is_served()
            await over_grpc.is_served()
            samples.append(measure(mesh))
        await released(mesh, samples[0])
        samples.append(measure(mesh))
    assert max(sample.threads for sample in samples) <= samples[0].threads + 16
    if scale.is_proof:
        # By then every cache is full, for example that of the newest 10,000 traces.
        late_bytes = [sample.rss_bytes for sample in samples[len(samples) * 2 // 3 :]]
        assert max(late_bytes) - late_bytes[0] <= 24 * MIB
        rss = [
            sample.rss_bytes // MIB
            for sample in (samples[0], samples[len(samples) // 2], samples[-1])
        ]
        scale.report(rss_mib=rss, **{k.replace(" ", "_"): n for k, n in statuses.most_common()})


@asynccontextmanager
async def connected(mesh: MeshProcess, *, room_bytes: int = 0) -> AsyncIterator[socket.socket]:
    """Open a connection, and reset it as a dying client does."""
    address = urlsplit(mesh.http_url)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if room_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room_bytes)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (address.hostname, address.port))
        yield connection


async def ended_by_server(mesh: MeshProcess, request: bytes) -> bytes:
    """Send the beginning of a request; return the received bytes once the server closes."""
    loop = asyncio.get_running_loop()
    async with connected(mesh) as connection, asyncio.timeout(PATIENCE_S):
        await loop.sock_sendall(connection, request)
        pieces = []
        with suppress(ConnectionError):
            while piece := await loop.sock_recv(connection, 4096):
                pieces.append(piece)
        return b"".join(pieces)


async def vanish(mesh: MeshProcess, rng: random.Random) -> None:
    """Disconnect at a random byte of a request or its response."""
    loop = asyncio.get_running_loop()
    method = rng.choice(("SendMessage", "SendStreamingMessage"))
    params = {"message": user_message(rng.choice(("hello", "count 200", "wait 0.05")))}
    request = request_bytes(urlsplit(mesh.http_url).netloc, ECHO, method, params, None)
    async with connected(mesh) as connection, asyncio.timeout(PATIENCE_S):
        if rng.random() < 0.5:
            await loop.sock_sendall(connection, request[: rng.randrange(len(request))])
        else:
            await loop.sock_sendall(connection, request)
            remaining = rng.randrange(1, 3000)
            while remaining > 0 and (piece := await loop.sock_recv(connection, remaining)):
                remaining -= len(piece)


async def send_valid_requests(
    mesh: MeshProcess, durations_s: list[float], stop: asyncio.Event
) -> None:
    """Send valid requests until `until` is set; record the durations."""
    while not stop.is_set():
        began = time.perf_counter()
        params = {"message": user_message("hello")}
        status, _, body = await send(mesh.http_url, ECHO, "SendMessage", params)
        assert status == 200
        assert body["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        durations_s.append(time.perf_counter() - began)
        # Requests without pauses would take the processor from the slow clients.
        await asyncio.sleep(0.01)


async def test_slow_and_vanishing_clients(
    tmp_path: Path, scale: PromiseScale, rng: random.Random
) -> None:
    """Slow clients are disconnected, vanished ones leave nothing, a good one is served."""
    slow, vanishing = scale.pick(ci=15, prove=1000), scale.pick(ci=30, prove=5000)
    durations_s: list[float] = []
    is_over = asyncio.Event()
    environment = {"TRUNKLINE_REQUEST_TIMEOUT_S": str(REQUEST_TIMEOUT_S)}
    async with running_mesh(tmp_path, environment=environment) as mesh:
        await new_targets(mesh)
        before = measure(mesh)
        params = {"message": user_message("hello")}
        whole = request_bytes(urlsplit(mesh.http_url).netloc, ECHO, "SendMessage", params, None)
        async with asyncio.TaskGroup() as group:
            group.create_task(send_valid_requests(mesh, durations_s, is_over))
            waiting = [
                group.create_task(ended_by_server(mesh, whole[: rng.randrange(len(whole))]))
                for _ in range(slow)
            ]
            for _ in range(vanishing // 10):
                async with asyncio.TaskGroup() as batch:
                    for _ in range(10):
                        batch.create_task(vanish(mesh, rng))
            await asyncio.wait(waiting)
            is_over.set()
        answers = Counter(task.result().split(b"\r\n")[0].decode() for task in waiting)
        assert set(answers) <= {"", "HTTP/1.1 408 Request Timeout"}
        await released(mesh, before)
        after = measure(mesh)
    assert after.threads <= before.threads + 16
    growth_bytes = after.rss_bytes - before.rss_bytes
    assert growth_bytes <= 96 * MIB
    latencies = percentiles(durations_s)
    scale.report(
        slow=slow,
        vanished=vanishing,
        gained_mib=growth_bytes // MIB,
        good=latencies,
        **_named(answers),
    )


def _named(answers: Counter[str]) -> dict[str, int]:
    return {"timed_out": answers["HTTP/1.1 408 Request Timeout"], "closed": answers[""]}


async def stall(mesh: MeshProcess, task_id: str, readers: int, stack: AsyncExitStack) -> None:
    """Open streams of a task over HTTP and over gRPC, and stop reading after the beginning."""
    loop = asyncio.get_running_loop()
    host = urlsplit(mesh.http_url).netloc
    resume = {"Last-Event-ID": BEGINNING}
    request = request_bytes(host, ECHO, "SubscribeToTask", {"id": task_id}, resume)
    connections = []
    for _ in range(readers):
        connection = await stack.enter_async_context(connected(mesh, room_bytes=4096))
        await loop.sock_sendall(connection, request)
        connections.append(connection)
    subscription = a2a_pb2.SubscribeToTaskRequest(id=task_id).SerializeToString()
    for _ in range(readers):
        # Separate channels, because calls of one channel share a connection.
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.aio.insecure_channel(mesh.a2a_grpc_address, options=options)
        await stack.enter_async_context(channel)
        method: Any = channel.unary_stream(V1 + "SubscribeToTask")
        call = method(subscription, metadata=[("last-event-id", BEGINNING)])
        stack.callback(call.cancel)
        assert await call.read() is not grpc.aio.EOF
    for connection in connections:
        assert (await loop.sock_recv(connection, 15)).startswith(b"HTTP/1.1 200")


async def test_stalled_readers_hold_bounded_memory(tmp_path: Path, scale: PromiseScale) -> None:
    """Stalled streams of a task that is far larger than the buffer of each."""
    readers, events = scale.pick(ci=(10, 10_000), prove=(150, 40_000))
    async with running_mesh(tmp_path, "--default", "echo") as mesh:
        params = {"message": user_message(f"count {events} 0 100")}
        async with sse(mesh.http_url, ECHO, "SendStreamingMessage", params) as answer:
            task_id = (await anext(answer.events())).result["task"]["id"]
            async for _ in answer.events():
                pass
        fresh = measure(mesh)
        async with AsyncExitStack() as stack:
            # The first streams allocate memory that later ones reuse.
            await stall(mesh, task_id, readers, stack)
        await released(mesh, fresh)
        before = measure(mesh)
        async with AsyncExitStack() as stack:
            await stall(mesh, task_id, readers, stack)
            resume = {"Last-Event-ID": BEGINNING}
            subscription = {"id": task_id}
            # Other clients are served, and read the whole task.
            async with sse(mesh.http_url, ECHO, "SubscribeToTask", subscription, resume) as answer:
                assert sum([1 async for _ in answer.events()]) >= events
            growth_bytes = measure(mesh).rss_bytes - before.rss_bytes
        await released(mesh, before)
    # A flow-control window, a batch of events, a write, and the system's buffers.
    assert growth_bytes <= 32 * MIB + 2 * readers * MIB
    scale.report(
        readers=2 * readers,
        task=f"{events * 100 // MIB}MiB",
        gained=f"{growth_bytes // MIB}MiB",
        peak_before=f"{(before.rss_bytes - fresh.rss_bytes) // MIB}MiB",
    )


async def test_a_flood_of_connections(tmp_path: Path, scale: PromiseScale) -> None:
    """Connections up to the limit are served, others are refused; then service recovers."""
    limit = scale.pick(ci=100, prove=2000)
    environment = {"TRUNKLINE_CONNECTION_LIMIT": str(limit)}
    async with running_mesh(tmp_path, environment=environment) as mesh:
        probe = HttpProbe(mesh.http_url)
        await probe.is_served()
        before = measure(mesh)
        async with AsyncExitStack() as flood:
            for _ in range(limit):
                await flood.enter_async_context(connected(mesh))
            refused: Counter[int] = Counter()
            for _ in range(limit // 2):
                reader, writer = await asyncio.open_connection(*probe.place)
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    refused[(await read_answer(reader)).status] += 1
                writer.transport.abort()
            assert set(refused) == {503}
            growth_bytes = measure(mesh).rss_bytes - before.rss_bytes
        await released(mesh, before)
        await probe.is_served()
    assert growth_bytes <= 16 * MIB + limit * MIB // 32
    scale.report(limit=limit, refused=refused[503], gained_mib=growth_bytes // MIB)


@asynccontextmanager
async def other_client(mesh: MeshProcess) -> AsyncIterator[list[float]]:
    """Ask for the mesh's health during a block, once before it; yield the waits in seconds."""
    waits_s: list[float] = []
    has_begun = asyncio.Event()
    is_over = asyncio.Event()

    async def ask() -> None:
        async with httpx2.AsyncClient(
            base_url=mesh.http_url, trust_env=False, timeout=PATIENCE_S
        ) as client:
            while not is_over.is_set():
                began = time.perf_counter()
                assert (await client.get("/healthz")).status_code == 200
                waits_s.append(time.perf_counter() - began)
                has_begun.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(ask())
        await has_begun.wait()
        yield waits_s
        is_over.set()


async def send_until_closed(address: str, pieces: Iterable[bytes]) -> None:
    """Send bytes on a connection and end it; return when the server has ended it, too.

    What the server sends is read.
    """
    reader, writer = await asyncio.open_connection(*address.rsplit(":", 1))
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(_read_all(reader))
        with suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                # Otherwise the other client would wait for this one.
                await asyncio.sleep(0)
            writer.write_eof()
    writer.transport.abort()


async def _read_all(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass


async def test_headers_without_end_stop_nobody(tmp_path: Path, scale: PromiseScale) -> None:
    """A call has 4 MB of one header with many values, and does not end it."""
    connections = scale.pick(ci=1, prove=20)
    values = range(4_000_000 // 26)
    headers = call_headers(LIST_TASKS) + b"".join(header("x-a", f"{n:020}") for n in values)
    call = OPENING + long_call(headers, has_end=False)
    async with running_mesh(tmp_path) as mesh:
        probe = HttpProbe(mesh.http_url)
        async with other_client(mesh) as waits_s:
            for _ in range(connections):
                await send_until_closed(mesh.a2a_grpc_address, [call])
                await probe.is_served()
    assert max(waits_s) < MAX_WAIT_S
    scale.report(connections=connections, sent_mb=len(call) // 10**6, healthz=percentiles(waits_s))


async def test_a_flood_of_reset_calls_stops_nobody(tmp_path: Path, scale: PromiseScale) -> None:
    """One connection makes calls as fast as it can, and resets each at once."""
    batches = scale.pick(ci=4, prove=760)
    headers = call_headers(LIST_TASKS)
    flood = (reset_calls(headers, 500 * number, 500) for number in range(batches))
    async with running_mesh(tmp_path) as mesh, other_client(mesh) as waits_s:
        await send_until_closed(mesh.a2a_grpc_address, chain([OPENING], flood))
        await HttpProbe(mesh.http_url).is_served()
    assert max(waits_s) < MAX_WAIT_S
    scale.report(calls=500 * batches, healthz=percentiles(waits_s))


async def test_long_texts_stop_nobody(tmp_path: Path, scale: PromiseScale) -> None:
    """Reading a text of a caller takes no more than linear time, whatever is repeated in it."""
    agents = scale.pick(ci=("supervisor",), prove=("supervisor", "math", "currency", "echo"))
    async with running_mesh(tmp_path) as mesh, other_client(mesh) as waits_s:
        for agent, unit in product(agents, LONG_TEXTS):
            text = (unit * 250_000)[:250_000]
            params = {"message": user_message(text)}
            status, _, _ = await send(mesh.http_url, f"/agents/{agent}", "SendMessage", params)
            assert status == 200
            assert max(waits_s) < MAX_WAIT_S, unit
    scale.report(texts=len(agents) * len(LONG_TEXTS), healthz=percentiles(waits_s))
