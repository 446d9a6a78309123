"""The order and the timing of a host's responses on a trunk."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from harness.agents.inline_agents import OpenHost, define, message
from harness.journal.builders import begin, completed, created
from trunkline.core.identity import Identity, Role
from trunkline.core.json_values import update_struct
from trunkline.core.runtime import run_in_background
from trunkline.journal.events import build_draft, parse_header
from trunkline.mesh.server.authorization import MeshAuthorizer, caller
from trunkline.mesh.server.message_servicer import SERVICE, MessageServicer
from trunkline.mesh.server.task_servicer import TaskServicer
from trunkline.mesh.server.trunk_servicer import TrunkServicer
from trunkline.tasks import execution
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.v1 import (
    message_service_pb2,
    message_service_pb2_grpc,
    task_service_pb2,
    task_service_pb2_grpc,
    trunk_service_pb2,
)

LIMIT_S = 300.0
# Streams don't use the context of their call.
CONTEXT: Any = None


@pytest.fixture(autouse=True)
def long_start_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    # Longer than any test: code that starts within a test was let start.
    monkeypatch.setattr(execution, "_START_TIMEOUT_S", 10 * LIMIT_S)


class Peer:
    """The gRPC context of a trunk with one request; the test releases its writes."""

    def __init__(self, method: str, request: bytes) -> None:
        self.call = trunk_service_pb2.TrunkCall(
            call_id=1, method=method, request=request, credit_bytes=1 << 20
        )
        self._is_read = False
        self.frames: list[trunk_service_pb2.TrunkFrame] = []
        self.is_writing = asyncio.Event()
        self.may_write = asyncio.Event()
        self.has_written = asyncio.Event()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def read(self) -> trunk_service_pb2.ConnectRequest:
        if self._is_read:
            await asyncio.Event().wait()
        self._is_read = True
        return trunk_service_pb2.ConnectRequest(calls=[self.call])

    async def write(self, response: trunk_service_pb2.ConnectResponse) -> None:
        self.is_writing.set()
        await self.may_write.wait()
        self.frames += response.frames
        self.has_written.set()


class Agent:
    """An agent that records the start of its code."""

    def __init__(self) -> None:
        self.runs = asyncio.Event()

    async def __call__(self, task: TaskContext) -> str:
        self.runs.set()
        return "done"


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture
async def host(agent: Agent, open_host: OpenHost) -> TaskHost:
    async def run(task: TaskContext) -> str:
        return await agent(task)

    return await open_host(define(run))


@pytest.fixture
async def connect(host: TaskHost) -> AsyncIterator[Callable[[Any], Awaitable[None]]]:
    trunks = TrunkServicer(MeshAuthorizer(None))
    server = cast(
        "grpc.aio.Server",
        SimpleNamespace(
            add_generic_rpc_handlers=lambda _: None,
            add_registered_method_handlers=trunks.add_methods,
        ),
    )
    message_service_pb2_grpc.add_MessageServiceServicer_to_server(MessageServicer(host), server)
    task_service_pb2_grpc.add_TaskServiceServicer_to_server(TaskServicer(host), server)
    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[None]] = []

        async def connect(peer: Any) -> None:
            caller.set(Identity("local", Role.MEMBER))
            tasks.append(group.create_task(trunks.Connect(None, peer)))

        yield connect
        for task in tasks:
            task.cancel()


def stream_request() -> message_service_pb2.StreamMessageRequest:
    return message_service_pb2.StreamMessageRequest(agent="tested", message=message())


def send_request() -> message_service_pb2.SendMessageRequest:
    return message_service_pb2.SendMessageRequest(
        agent="tested", message=message(), return_immediately=True
    )


@pytest.mark.parametrize(
    ("method", "request_bytes"),
    [
        ("StreamMessage", stream_request().SerializeToString()),
        ("SendMessage", send_request().SerializeToString()),
    ],
)
async def test_the_code_of_a_new_task_runs_after_the_response_is_written(
    connect: Callable[[Any], Awaitable[None]], agent: Agent, method: str, request_bytes: bytes
) -> None:
    peer = Peer(f"{SERVICE}/{method}", request_bytes)
    async with asyncio.timeout(LIMIT_S):
        await connect(peer)
        await peer.is_writing.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        assert not agent.runs.is_set()
        peer.may_write.set()
        await agent.runs.wait()
    assert peer.frames[0].response


async def test_a_peer_that_does_not_read_delays_the_code_for_a_limited_time(
    connect: Callable[[Any], Awaitable[None]], agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "_START_TIMEOUT_S", 0.01)
    peer = Peer(f"{SERVICE}/StreamMessage", stream_request().SerializeToString())
    async with asyncio.timeout(LIMIT_S):
        await connect(peer)
        await agent.runs.wait()
    assert not peer.frames


async def test_a_caller_that_leaves_before_the_commit_does_not_delay_the_code(
    host: TaskHost, agent: Agent
) -> None:
    submit = host.submit("tested", message(), message_service_pb2.Submission(), is_held=True)
    async with asyncio.timeout(LIMIT_S):
        async with asyncio.TaskGroup() as group:
            caller = group.create_task(submit)
            await asyncio.sleep(0)
            assert host.journals.primary.executions.all()
            caller.cancel()
        await agent.runs.wait()


async def test_a_plain_stream_lets_the_code_run_after_its_first_response(
    host: TaskHost, agent: Agent
) -> None:
    stream = await MessageServicer(host).StreamMessage(stream_request(), CONTEXT)
    responses = stream.encode(message_service_pb2.StreamMessageResponse.BATCHES_FIELD_NUMBER)
    first = message_service_pb2.StreamMessageResponse.FromString(await anext(responses))
    assert first.snapshot.sequence == 1
    for _ in range(50):
        await asyncio.sleep(0)
    assert not agent.runs.is_set()
    rest = [message_service_pb2.StreamMessageResponse.FromString(data) async for data in responses]
    assert agent.runs.is_set()
    headers = [
        parse_header(batch.SerializeToString()) for response in rest for batch in response.batches
    ]
    assert headers[0].first_sequence == 2


async def test_the_first_snapshot_of_a_new_task_is_that_of_its_journal(host: TaskHost) -> None:
    request = stream_request()
    request.submission.deadline.FromSeconds(4_000_000_000)
    update_struct(request.submission.metadata, {"key": "value"})
    request.submission.parent.task_id = "parent-1"
    request.submission.accepted_output_modes.append("text/plain")
    stream = await MessageServicer(host).StreamMessage(request, CONTEXT)
    assert isinstance(stream.first_response, message_service_pb2.StreamMessageResponse)
    first = stream.first_response.snapshot
    assert stream.on_sent is not None
    stream.on_sent()
    assert first == await host.journal.snapshot(first.task.id, at=1)
    assert first.create_time.seconds


async def test_an_impossible_timeout_of_a_call_is_the_caller_s_error(
    connect: Callable[[Any], Awaitable[None]], agent: Agent
) -> None:
    peer = Peer(f"{SERVICE}/StreamMessage", stream_request().SerializeToString())
    # A second has fewer nanoseconds.
    peer.call.timeout.nanos = 2_000_000_000
    peer.may_write.set()
    async with asyncio.timeout(LIMIT_S):
        await connect(peer)
        await peer.has_written.wait()
    end = peer.frames[0].end
    assert (end.reason, end.metadata["field"]) == ("INVALID_ARGUMENT", "timeout")
    assert not agent.runs.is_set()


async def test_an_end_that_comes_during_a_blocked_write_reaches_a_reader_of_the_store(
    connect: Callable[[Any], Awaitable[None]], host: TaskHost
) -> None:
    journal = host.journal
    task_id = journal.new_task_id()
    await journal.create(task_id, created())
    # The latest events of many other tasks take the room of this one in memory.
    for _ in range(300):
        other = journal.new_task_id()
        await journal.create(other, created())
        await journal.append(other, journal.epoch, [build_draft([begin("a", "x" * 60_000)])])
    request = task_service_pb2.WatchTaskRequest(task_id=task_id, after_sequence=0, account="acme")
    peer = Peer("trunkline.v1.TaskService/WatchTask", request.SerializeToString())
    async with asyncio.timeout(LIMIT_S):
        await connect(peer)
        await peer.is_writing.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        await journal.append(task_id, journal.epoch, [build_draft([completed()])])
        peer.may_write.set()
        while not any(frame.HasField("end") for frame in peer.frames):
            peer.has_written.clear()
            await peer.has_written.wait()
    batches = [batch for frame in peer.frames for batch in frame.batches]
    assert [parse_header(batch).first_sequence for batch in batches] == [1, 2]


@pytest.mark.parametrize(
    ("role", "statement", "reason"),
    [(Role.TOOLS, "", "PERMISSION_DENIED"), (Role.MEMBER, "forged", "USER_NOT_PROVEN")],
)
async def test_the_request_of_a_caller_that_is_refused_is_not_parsed(
    role: Role, statement: str, reason: str
) -> None:
    parsed: list[bytes] = []
    handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
        lambda _request, _context: None, request_deserializer=parsed.append
    )
    trunks = TrunkServicer(MeshAuthorizer(None))
    trunks.add_methods(SERVICE, {"SendMessage": handler})
    peer = Peer(f"{SERVICE}/SendMessage", b"request")
    peer.call.user_statement = statement
    peer.may_write.set()
    caller.set(Identity("local", role))
    context: Any = peer
    async with asyncio.timeout(LIMIT_S), run_in_background(trunks.Connect(None, context)):
        await peer.has_written.wait()
    assert peer.frames[0].end.reason == reason
    assert not parsed


class FloodingPeer(Peer):
    """A peer that sends many calls in one message."""

    async def read(self) -> trunk_service_pb2.ConnectRequest:
        request = await super().read()
        for number in range(2, 1001):
            request.calls.add(call_id=number, method="no/method")
        return request


async def test_others_run_between_the_calls_of_one_message(
    connect: Callable[[Any], Awaitable[None]],
) -> None:
    peer = FloodingPeer("no/method", b"")
    peer.may_write.set()
    counts: list[int] = []
    async with asyncio.timeout(LIMIT_S):
        await connect(peer)
        while len(peer.frames) < 1000:
            await asyncio.sleep(0)
            counts.append(len(peer.frames))
    assert max(after - before for before, after in itertools.pairwise([0, *counts])) <= 300
