"""Events of a child over a trunk: text is forwarded at once, and invalid events never are."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from harness.agents.inline_agents import NOTHING, OpenHost, define, message, texts
from trunkline.agents.calls.agent_call import AgentCall, AgentCalls, ChildLimits
from trunkline.errors import PeerProtocolError, PeerUnavailableError
from trunkline.journal.events import build_draft, delta_event, seal
from trunkline.mesh.client import Directory, TaskStream
from trunkline.mesh.client.trunk_connection import TrunkClientConnection, TrunkStreamCall
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.tasks.turn_runtime import get_turn_runtime
from trunkline.v1 import event_pb2, message_service_pb2, task_pb2, trunk_service_pb2

CHILD = "journal-child"


@pytest.fixture
async def call() -> AsyncIterator[TrunkStreamCall]:
    """Return a stream on a trunk without a connection: the test plays the peer."""
    connection = TrunkClientConnection(
        _never,  # type: ignore[arg-type]
        peer="peer",
        ping_s=60.0,
        connect_s=60.0,
        on_message=_nothing,
    )
    stream_call = TrunkStreamCall(connection)
    stream_call.call_id = connection.start_call(stream_call, trunk_service_pb2.TrunkCall())
    yield stream_call
    connection.close(PeerUnavailableError("peer", "the test is over"))


class Child:
    """Takes the place of the mesh: the child's host has accepted the message."""

    def __init__(self, call: TrunkStreamCall) -> None:
        self._call = call

    @asynccontextmanager
    async def submit(self, _agent: str, **_fields: object) -> AsyncIterator[TaskStream]:
        response = message_service_pb2.StreamMessageResponse()
        response.snapshot.sequence = response.snapshot.epoch = 1
        response.snapshot.task.status.state = task_pb2.TASK_STATE_WORKING
        yield TaskStream(response, self._call, self._call)

    def client_for_task(self, task_id: str) -> "Child":
        assert task_id == CHILD
        return self

    async def cancel_task(self, task_id: str, *, account: str, reason: str) -> None:
        assert (task_id, account, reason) == (CHILD, "anonymous", "its parent task ended")


class Parent:
    """An agent that calls one child and keeps the outcome."""

    def __init__(self, call: TrunkStreamCall) -> None:
        self.error: Exception | None = None
        self._directory = cast("Directory", Child(call))

    async def run(self, task: TaskContext) -> None:
        turn = get_turn_runtime(task)
        started = event_pb2.ChildStarted(task_id=CHILD, agent="kid", step_id="step-1")
        await turn.record(event_pb2.Event(child_started=started))
        calls = AgentCalls(turn, self._directory, ChildLimits())
        outcome = await calls.make(AgentCall("kid", CHILD, message("hello")))
        self.error = outcome.error


def frame(*events: event_pb2.Event, at: int) -> trunk_service_pb2.TrunkFrame:
    """Return one batch as the child's host sends it."""
    sealed = seal(
        build_draft(events), task_id=CHILD, epoch=1, first_sequence=at, time_ns=time.time_ns()
    )
    return trunk_service_pb2.TrunkFrame(batches=[sealed])


FIRST_DELTA = delta_event("answer", ["one "], start=event_pb2.ArtifactStart())


def completed() -> event_pb2.Event:
    event = event_pb2.Event()
    event.status.status.state = task_pb2.TASK_STATE_COMPLETED
    return event


async def start_parent(host: TaskHost, call: TrunkStreamCall) -> str:
    """Make the parent forward the child's first text; then it waits for more."""
    accepted = await host.submit("tested", message("go"), NOTHING)
    assert isinstance(accepted, SubmitResult)
    call.deliver(frame(FIRST_DELTA, at=2))
    async with asyncio.timeout(30):
        async for batches in await host.watch(accepted.task_id, account="", after=0):
            if any(b"one " in batch for batch in batches):
                break
    return accepted.task_id


async def test_text_is_forwarded_on_delivery_and_the_end_by_the_reader(
    call: TrunkStreamCall, open_host: OpenHost
) -> None:
    parent = Parent(call)
    host = await open_host(define(parent.run))
    task_id = await start_parent(host, call)
    call.deliver(frame(delta_event("answer", ["two ", "three "]), at=3))
    call.deliver(frame(delta_event("answer", ["four"], last=True), at=5))
    # Every batch was forwarded on delivery, so the reader of the stream has none to read.
    assert not call._batches
    call.deliver(frame(completed(), at=6))
    snapshot = await host.wait_turn(task_id)
    assert snapshot.task.status.state == State.TASK_STATE_COMPLETED
    assert texts(snapshot) == ["one two three four"]
    assert parent.error is None


@pytest.mark.parametrize(
    ("invalid", "at", "problem"),
    [
        pytest.param(delta_event("answer", ["lie"]), 4, "event 4 follows event 2", id="gap"),
        pytest.param(delta_event("else", ["lie"]), 3, "appended to before its create", id="append"),
    ],
)
async def test_an_invalid_event_is_refused_and_not_forwarded(
    call: TrunkStreamCall, open_host: OpenHost, invalid: event_pb2.Event, at: int, problem: str
) -> None:
    parent = Parent(call)
    host = await open_host(define(parent.run))
    task_id = await start_parent(host, call)
    call.deliver(frame(invalid, at=at))
    call.deliver(frame(delta_event("answer", ["behind it"]), at=3))
    snapshot = await host.wait_turn(task_id)
    assert isinstance(parent.error, PeerProtocolError)
    assert problem in parent.error.problem
    assert texts(snapshot) == ["one "]


def _never() -> None:
    raise AssertionError("no connection is expected")


def _nothing() -> None:
    pass
