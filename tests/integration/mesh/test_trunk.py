"""Many calls on one stream: independent of each other, and fairly multiplexed."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from harness.agents.inline_agents import NOTHING, define, message, texts
from harness.journal.opening import open_journal
from harness.mesh.identity import mesh_credentials
from harness.mesh.nonsense_host import serving_nonsense
from harness.mesh.processes import free_address
from harness.polling import wait_for
from trunkline.errors import (
    JournalUnavailableError,
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from trunkline.journal.events import parse_header
from trunkline.mesh.client import BreakerSettings, ChannelPool, HostClient, MeshChannel
from trunkline.mesh.client.services import ToolClient
from trunkline.mesh.client.status import translate_errors
from trunkline.mesh.client.trunk import REQUEST_BYTES
from trunkline.mesh.client.trunk_connection import WINDOW_BYTES
from trunkline.mesh.server import CallInterceptor, MeshServer, MessageServicer, TaskServicer
from trunkline.mesh.server.authorization import admit_anybody
from trunkline.mesh.server.trunk_connection import MAX_MESSAGE_BYTES, STREAM_QUANTUM_BYTES
from trunkline.observe import telemetry
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.watch import TaskWatch
from trunkline.v1 import (
    message_service_pb2_grpc,
    snapshot_pb2,
    task_service_pb2,
    task_service_pb2_grpc,
    trunk_service_pb2,
    trunk_service_pb2_grpc,
)

LIMIT_S = 300.0
WATCH = "trunkline.v1.TaskService/WatchTask"
GET = "trunkline.v1.TaskService/GetTask"


class Script:
    """An agent that writes `write COUNT SIZE` pieces, or waits until the test lets it end."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.waits = asyncio.Event()

    async def __call__(self, task: TaskContext) -> None:
        match task.text.split():
            case ["write", count, size]:
                # Each status is a separate batch; texts written at the same time are one batch.
                for _ in range(int(count)):
                    await task.working("x" * int(size))
            case ["append", size]:
                await task.artifact("pieces").append("x" * int(size))
            case ["echo", *words]:
                await task.complete(" ".join(words)[:10])
            case _:
                await task.working("waiting")
                self.waits.set()
                await self.go_on.wait()


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def host(tmp_path: Path, script: Script) -> AsyncIterator[TaskHost]:
    journal = open_journal(tmp_path / "journal.db")

    async def run(task: TaskContext) -> None:
        await script(task)

    async with TaskHost(journal, [define(run)]) as host:
        yield host
    await journal.close()


class Served:
    """A host's server that a test can stop and restart."""

    def __init__(self, host: TaskHost) -> None:
        self._host = host
        # A reserved port: while the server is down, no other process may get it.
        self.address = free_address()

    async def start(self) -> None:
        self.server = MeshServer(mesh_credentials())
        self.server.add_message_service(self._host)
        self.server.add_task_service(self._host)
        (self.address,) = await self.server.start(self.address)


@pytest.fixture
async def served(host: TaskHost) -> AsyncIterator[Served]:
    served = Served(host)
    await served.start()
    yield served
    await served.server.stop(0)


@pytest.fixture
async def channel(served: Served) -> AsyncIterator[MeshChannel]:
    async with ChannelPool(mesh_credentials()) as channels:
        yield channels.get(served.address)


@pytest.fixture
def client(channel: MeshChannel) -> HostClient:
    return HostClient(channel)


async def begin(client: HostClient, text: str) -> str:
    answer = await client.send_message(
        agent="tested", message=message(text), submission=NOTHING, return_immediately=True
    )
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    return answer.task.id


async def written(client: HostClient, host: TaskHost, text: str) -> snapshot_pb2.TaskSnapshot:
    return await host.wait_turn(await begin(client, text))


async def read(client: HostClient, task_id: str, *, until_head: bool = False) -> list[int]:
    found: list[int] = []
    async with client.watch_task(
        task_id, account="", after=0, with_snapshot=False, until_head=until_head
    ) as stream:
        async for batches in stream:
            for header in map(parse_header, batches):
                found += range(header.first_sequence, header.first_sequence + header.count)
    return found


async def both(spans: InMemorySpanExporter, name: str) -> tuple[ReadableSpan, ReadableSpan]:
    """Return the client's and the server's span of a method, once both have ended."""
    kinds: dict[SpanKind, ReadableSpan] = {}

    def have_ended() -> bool:
        found = [span for span in spans.get_finished_spans() if span.name == name]
        kinds.update({span.kind: span for span in found})
        return len(kinds) == 2

    await wait_for(have_ended)
    return kinds[SpanKind.CLIENT], kinds[SpanKind.SERVER]


class RawTrunk:
    """A raw stream of the protocol: `send` and `read` single messages."""

    def __init__(self, channel: MeshChannel) -> None:
        self._call: Any = trunk_service_pb2_grpc.TrunkServiceStub(channel).Connect()

    async def send(self, **fields: Any) -> None:
        await self._call.write(trunk_service_pb2.ConnectRequest(**fields))

    async def read(self) -> trunk_service_pb2.ConnectResponse:
        response = await self._call.read()
        assert isinstance(response, trunk_service_pb2.ConnectResponse)
        return response

    async def watch(self, call_id: int, task_id: str, credit: int) -> None:
        request = task_service_pb2.WatchTaskRequest(task_id=task_id, after_sequence=0)
        call = trunk_service_pb2.TrunkCall(
            call_id=call_id,
            method=WATCH,
            request=request.SerializeToString(),
            credit_bytes=credit,
        )
        await self.send(calls=[call])

    def close(self) -> None:
        self._call.cancel()


@pytest.fixture
def raw(channel: MeshChannel) -> Iterator[RawTrunk]:
    trunk = RawTrunk(channel)
    yield trunk
    trunk.close()


def size_of(response: trunk_service_pb2.ConnectResponse) -> int:
    return sum(len(batch) for frame in response.frames for batch in frame.batches)


async def test_a_ping_is_answered_at_once(raw: RawTrunk) -> None:
    for _ in range(3):
        await raw.send()
        assert await raw.read() == trunk_service_pb2.ConnectResponse()


async def test_the_sender_never_exceeds_its_credit(
    raw: RawTrunk, client: HostClient, host: TaskHost
) -> None:
    whole = await written(client, host, "write 100 2000")
    await raw.watch(1, whole.task.id, 32_000)
    received_bytes = 0
    while received_bytes < 32_000:
        received_bytes += size_of(await raw.read())
    assert received_bytes < 32_000 + STREAM_QUANTUM_BYTES
    # The only next message is the answer to the ping.
    await raw.send()
    assert size_of(await raw.read()) == 0
    await raw.send(credits=[trunk_service_pb2.TrunkCredit(call_id=1, bytes=400_000)])
    while True:
        response = await raw.read()
        received_bytes += size_of(response)
        if any(frame.HasField("end") for frame in response.frames):
            break
    assert received_bytes > 200_000


async def test_watches_take_turns_in_messages_of_bounded_size(
    raw: RawTrunk, client: HostClient, host: TaskHost
) -> None:
    tasks = [await written(client, host, "write 60 2000") for _ in range(24)]
    for number, whole in enumerate(tasks, 1):
        await raw.watch(number, whole.task.id, 10_000_000)
    ended: list[int] = []
    while len(ended) < len(tasks):
        response = await raw.read()
        assert size_of(response) <= MAX_MESSAGE_BYTES
        sizes = [sum(map(len, frame.batches)) for frame in response.frames]
        assert max(sizes, default=0) <= STREAM_QUANTUM_BYTES
        ended += [frame.call_id for frame in response.frames if frame.HasField("end")]
    assert sorted(ended) == list(range(1, 25))


async def test_a_batch_larger_than_a_message_arrives_whole(
    client: HostClient, host: TaskHost
) -> None:
    whole = await written(client, host, "append 700000")
    others = [await written(client, host, "write 60 2000") for _ in range(5)]
    async with asyncio.TaskGroup() as group:
        reads = [group.create_task(read(client, each.task.id)) for each in (whole, *others)]
    for each, found in zip((whole, *others), reads, strict=True):
        assert found.result() == list(range(1, each.sequence + 1))


async def test_a_stalled_reader_blocks_no_other_and_buffers_at_most_a_window(
    client: HostClient, host: TaskHost
) -> None:
    whole = await written(client, host, "write 2000 500")
    async with client.watch_task(
        whole.task.id, account="", after=0, with_snapshot=False
    ) as stalled:
        assert await read(client, whole.task.id) == list(range(1, whole.sequence + 1))
        batches = aiter(stalled)
        first = await anext(batches)
        assert sum(map(len, first)) <= WINDOW_BYTES + STREAM_QUANTUM_BYTES
        found = [parse_header(sealed) for sealed in first]
        async for more in batches:
            found += map(parse_header, more)
    assert sum(header.count for header in found) == whole.sequence


async def test_a_reader_that_waits_for_the_store_delays_no_other(
    client: HostClient, host: TaskHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its events do not fit into the tail in memory.
    slow = await written(client, host, "write 2000 500")
    is_read, go_on = asyncio.Event(), asyncio.Event()
    take = TaskWatch.take

    async def take_slowly(watch: TaskWatch, limit_bytes: int) -> list[bytes]:
        if watch.task_id == slow.task.id:
            is_read.set()
            await go_on.wait()
        return await take(watch, limit_bytes)

    monkeypatch.setattr(TaskWatch, "take", take_slowly)
    async with asyncio.TaskGroup() as group:
        behind = group.create_task(read(client, slow.task.id))
        async with asyncio.timeout(LIMIT_S):
            await is_read.wait()
            quick = await written(client, host, "write 3 1000")
            assert await read(client, quick.task.id) == list(range(1, quick.sequence + 1))
            # A reader that leaves meanwhile ends only its own stream.
            is_read.clear()
            leaving = group.create_task(read(client, slow.task.id))
            await is_read.wait()
            leaving.cancel()
            await asyncio.wait([leaving])
            assert await read(client, quick.task.id) == list(range(1, quick.sequence + 1))
        assert not behind.done()
        go_on.set()
    assert behind.result() == list(range(1, slow.sequence + 1))


async def test_a_request_that_would_block_others_uses_its_own_call(
    client: HostClient, host: TaskHost
) -> None:
    answer = await client.send_message(
        agent="tested", message=message("echo " + "x" * REQUEST_BYTES), submission=NOTHING
    )
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    assert texts(answer) == []


async def test_calls_are_spans_at_both_ends_below_their_caller_s_span(
    client: HostClient, host: TaskHost, spans: InMemorySpanExporter
) -> None:
    with telemetry.span("root"):
        trace_id = telemetry.current_trace_id()
        whole = await written(client, host, "write 1 1")
        await client.get_task(whole.task.id, account="")
        await read(client, whole.task.id)
        with pytest.raises(TaskNotFoundError):
            await client.cancel_task("nothing", account="")
    for name, code in ((GET, "OK"), (WATCH, "OK"), (GET.replace("Get", "Cancel"), "NOT_FOUND")):
        outer, inner = await both(spans, name)
        assert outer.context is not None
        assert inner.parent is not None
        assert inner.parent.span_id == outer.context.span_id
        assert trace.format_trace_id(outer.context.trace_id) == trace_id
        for span in (outer, inner):
            assert (span.attributes or {})[telemetry.RPC_STATUS_CODE] == code
    assert not [span for span in spans.get_finished_spans() if "Trunk" in span.name]


async def test_closing_a_stream_ends_it_at_both_ends_without_an_error(
    client: HostClient, spans: InMemorySpanExporter, script: Script
) -> None:
    task_id = await begin(client, "wait")
    async with client.watch_task(task_id, account=""):
        await script.waits.wait()
    for span in await both(spans, WATCH):
        assert (span.attributes or {})[telemetry.RPC_STATUS_CODE] == "CANCELLED"
        assert span.status.status_code is StatusCode.UNSET


async def test_a_caller_that_is_cancelled_ends_its_call_at_both_ends(
    client: HostClient, spans: InMemorySpanExporter, script: Script
) -> None:
    name = "trunkline.v1.MessageService/SendMessage"

    async def send() -> None:
        await client.send_message(agent="tested", message=message("wait"), submission=NOTHING)

    async with asyncio.TaskGroup() as group:
        sending = group.create_task(send())
        await script.waits.wait()
        sending.cancel()
    assert sending.cancelled()
    for span in await both(spans, name):
        assert (span.attributes or {})[telemetry.RPC_STATUS_CODE] == "CANCELLED"


async def test_a_watch_until_the_head_ends_while_the_task_continues(
    client: HostClient, script: Script
) -> None:
    task_id = await begin(client, "wait")
    await script.waits.wait()
    head = (await client.get_task(task_id, account="")).sequence
    async with asyncio.timeout(LIMIT_S):
        assert await read(client, task_id, until_head=True) == list(range(1, head + 1))


async def test_a_method_of_a_later_release_is_unsupported(channel: MeshChannel) -> None:
    later: Any = channel.unary_unary("/trunkline.v1.TaskService/ForeseeTask")
    with pytest.raises(UnsupportedOperationError), translate_errors(channel.address):
        await later(b"")


async def test_a_deadline_ends_the_call_and_not_the_task(
    client: HostClient, host: TaskHost, channel: MeshChannel, script: Script
) -> None:
    timeout_s = 0.2
    while not script.waits.is_set():
        with pytest.raises(PeerTimeoutError) as excinfo:
            await client.send_message(
                agent="tested", message=message("wait"), submission=NOTHING, timeout_s=timeout_s
            )
        assert excinfo.value.peer == channel.address
        # On a slow machine the deadline may pass before the task begins.
        timeout_s *= 2
    page = await client.tasks.ListTasks(task_service_pb2.ListTasksRequest())
    assert page.tasks
    script.go_on.set()
    for row in page.tasks:
        ended = await host.wait_turn(row.task_id)
        assert ended.task.status.state == State.TASK_STATE_COMPLETED


async def test_a_server_that_stops_lets_calls_end_and_refuses_new_ones(
    served: Served, client: HostClient, host: TaskHost, script: Script
) -> None:
    task_id = await begin(client, "wait")
    async with (
        client.watch_task(task_id, account="", with_snapshot=False) as stream,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(served.server.stop(LIMIT_S))
        async with asyncio.timeout(LIMIT_S):
            while True:
                try:
                    await client.get_task("nothing", account="")
                except TaskNotFoundError:
                    await asyncio.sleep(0)
                except PeerUnavailableError:
                    break
        script.go_on.set()
        headers = [parse_header(sealed) async for batches in stream for sealed in batches]
    end = headers[-1].first_sequence + headers[-1].count - 1
    assert end == (await host.snapshot(task_id, account="")).sequence


async def test_a_trunk_that_breaks_fails_every_call_and_the_next_one_connects_again(
    served: Served, client: HostClient, host: TaskHost, script: Script
) -> None:
    task_id = await begin(client, "wait")

    all_started = asyncio.Barrier(21)

    async def follow() -> str:
        async with client.watch_task(task_id, account="") as stream:
            await all_started.wait()
            with pytest.raises(PeerUnavailableError) as excinfo:
                async for _ in stream:
                    pass
            return excinfo.value.peer

    async with asyncio.TaskGroup() as group:
        watches = [group.create_task(follow()) for _ in range(20)]
        await all_started.wait()
        await served.server.stop(0)
    assert {watch.result() for watch in watches} == {served.address}
    await served.start()
    script.go_on.set()
    whole = await host.wait_turn(task_id)
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                assert (await client.get_task(task_id, account="")).sequence == whole.sequence
                return
            except PeerUnavailableError:
                # gRPC is still in its reconnect backoff.
                await asyncio.sleep(0.05)


async def test_a_peer_that_sends_garbage_gets_a_protocol_error() -> None:
    breakers = BreakerSettings(failures=3)
    async with (
        serving_nonsense() as address,
        ChannelPool(mesh_credentials(), breaker_settings=breakers) as channels,
    ):
        client = HostClient(channels.get(address))
        for _ in range(3):
            with pytest.raises(PeerProtocolError, match=f"{address} broke the protocol"):
                await client.get_task("a-1", account="")
        with pytest.raises(PeerUnavailableError, match="at last: it sent a message"):
            await client.get_task("a-1", account="")


async def test_a_watch_ends_when_another_process_takes_the_journal(
    client: HostClient, host: TaskHost
) -> None:
    task_id = await begin(client, "wait")
    async with client.watch_task(task_id, account="") as stream:
        host.journals.primary.lease.mark_lost()
        with pytest.raises((JournalUnavailableError, PeerUnavailableError)):
            async for _ in stream:
                pass


async def test_plain_calls_work_with_a_host_without_trunks(host: TaskHost) -> None:
    server = grpc.aio.server(interceptors=(CallInterceptor(admit_anybody),))
    message_service_pb2_grpc.add_MessageServiceServicer_to_server(MessageServicer(host), server)
    task_service_pb2_grpc.add_TaskServiceServicer_to_server(TaskServicer(host), server)
    port = server.add_secure_port("127.0.0.1:0", mesh_credentials().server_credentials())
    await server.start()
    async with asyncio.timeout(LIMIT_S), ChannelPool(mesh_credentials()) as channels:
        client = HostClient(channels.get(f"127.0.0.1:{port}"))
        whole = await written(client, host, "write 10 10")
        assert (await client.get_task(whole.task.id, account="")).sequence == whole.sequence
        assert await read(client, whole.task.id) == list(range(1, whole.sequence + 1))
    await server.stop(0)


STOPPABLE = """
import asyncio, sys
from pathlib import Path
from harness.mesh.identity import mesh_credentials
from trunkline_agents.echo.agent import echo
from harness.journal.opening import open_journal
from trunkline.mesh.server import MeshServer
from trunkline.tasks.host import TaskHost

async def main():
    journal = open_journal(Path(sys.argv[1]))
    async with TaskHost(journal, [echo]) as host:
        server = MeshServer(mesh_credentials())
        server.add_message_service(host)
        server.add_task_service(host)
        (address,) = await server.start("127.0.0.1:0")
        print(address, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_stopped_peer_is_detected_by_its_silence(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STOPPABLE, str(tmp_path / "j.db")),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(process.wait)
        stack.callback(process.kill)
        await stack.enter_async_context(asyncio.timeout(LIMIT_S))
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().strip()
        # It gets a third of that time to answer, so that a slow peer is not declared dead.
        channels = await stack.enter_async_context(ChannelPool(mesh_credentials(), ping_s=3))
        client = HostClient(channels.get(address))
        answer = await client.send_message(
            agent="echo",
            message=message("wait 3600"),
            submission=NOTHING,
            return_immediately=True,
        )
        assert isinstance(answer, snapshot_pb2.TaskSnapshot)
        async with client.watch_task(answer.task.id, account="") as stream:
            started = asyncio.get_running_loop().time()
            os.kill(process.pid, signal.SIGSTOP)
            with pytest.raises(PeerUnavailableError, match="silent"):
                async for _ in stream:
                    pass
            assert asyncio.get_running_loop().time() - started >= 0.3
        # The system accepts new connections for it. gRPC's own limit is 20 s.
        started = asyncio.get_running_loop().time()
        async with ChannelPool(mesh_credentials()) as others:
            with pytest.raises(PeerUnavailableError):
                await ToolClient(others.get(address)).list_tools()
        assert asyncio.get_running_loop().time() - started < 20
        os.kill(process.pid, signal.SIGCONT)
        assert (await client.get_task(answer.task.id, account="")).task.id == answer.task.id
