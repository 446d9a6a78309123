"""Event streams through a real bridge: complete, resumable after any cut, and isolated."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from urllib.parse import urlsplit

import pytest
from starlette.types import Receive, Scope, Send

from harness.a2a.bridged_mesh import BridgedMesh, Caller, Event
from harness.agents.stepped_agent import SteppedAgent
from harness.mesh.small_mesh import PATIENCE_S
from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.v1_0.json_writer import V1EventWriter
from trunkline_bridge.a2a.projection import FullEvent, WireEvent
from trunkline_bridge.a2a.streams.event_renderer import EventRenderer
from trunkline_bridge.a2a.versions.jsonrpc_envelope import event_frame
from trunkline_bridge.http.in_flight import InFlightRequests, watch_connection
from trunkline_bridge.http.messages import ResponseSender
from trunkline_bridge.http.server import serve_http
from trunkline_bridge.http.sse import EventStreamResponse, Heartbeats

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def join_gate(bridged: BridgedMesh) -> tuple[SteppedAgent, Caller]:
    gate = SteppedAgent()
    await bridged.mesh.join(gate.agent())
    return gate, bridged.at("/agents/tested")


def comparable(events: list[Event]) -> list[tuple[str, object]]:
    """Events in the form that resume compares: each stream has another request id."""
    return [(event.id, event.result) for event in events]


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events)


async def test_a_subscriber_gets_a_snapshot_and_then_what_follows(bridged: BridgedMesh) -> None:
    gate, caller = await join_gate(bridged)
    gate.write("one ")
    async with caller.streamed("go") as first:
        async for event in first:
            if event.text:
                break
        assert first.headers["cache-control"] == "no-store"
        assert first.headers["x-accel-buffering"] == "no"
        task_id = event.result["artifactUpdate"]["taskId"]
        async with caller.stream("SubscribeToTask", {"id": task_id}) as second:
            snapshot = await anext(second)
            assert snapshot.result["task"]["artifacts"][0]["parts"] == [{"text": "one "}]
            assert snapshot.id == event.id
            gate.write("two ", "")
            later = await second.rest()
            rest = await first.rest()
    assert comparable(later) == comparable(rest)
    assert text(later) == "two "
    assert later[-1].state == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("last", ["", "x", "99999.0", "1." + "9" * 40])
async def test_an_unknown_event_id_is_refused(caller: Caller, last: str) -> None:
    task = await caller.send("echo hi")
    error = await caller.error("SubscribeToTask", {"id": task["id"]}, {"Last-Event-ID": last})
    assert error["code"] == -32602
    assert error["data"][1]["fieldViolations"][0]["field"] == "Last-Event-ID"


async def test_many_streams_at_once_each_get_their_own(caller: Caller) -> None:
    async def count_to(number: int) -> str:
        async with caller.streamed(f"count {number}") as stream:
            return text(await stream.rest())

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(count_to(number)) for number in range(1, 40)]
    expected = ["".join(f"{n} " for n in range(1, number + 1)) for number in range(1, 40)]
    assert [task.result() for task in tasks] == expected


async def test_nothing_is_written_to_a_disconnected_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    burst = asyncio.Event()
    over = asyncio.Event()

    async def events() -> AsyncGenerator[list[WireEvent], None]:
        reply = FullEvent(0, 0, a2a_pb2.StreamResponse())
        yield [reply]
        await burst.wait()
        for _ in range(1000):
            yield [reply]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        async with (
            watch_connection(receive) as connection,
            InFlightRequests().track(connection, send_abort=no_request),
        ):
            renderer = EventRenderer(V1EventWriter(), event_frame(1))
            response = EventStreamResponse(nullcontext(events()), renderer)
            await response.send(ResponseSender(send), Heartbeats(60))
        over.set()

    async def no_request(_error: Exception | None) -> None:
        raise AssertionError("nobody cut it")

    async with (
        asyncio.timeout(PATIENCE_S),
        serve_http(app, host="127.0.0.1", port=0, grace_s=1) as url,
    ):
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\n\n")
        # The client is killed while much output is pending: only a write detects the closed
        # connection.
        client = writer.get_extra_info("socket")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        asyncio.get_running_loop().call_soon(burst.set)
        await over.wait()
    # Asyncio's log records of this connection, without those of others.
    assert not [record.message for record in caplog.records if "socket.send()" in record.message]
