"""Event streams wait for slow clients; one timer keeps silent streams alive."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import nullcontext

import pytest
from starlette.types import Message

from harness.a2a.bridged_mesh import v1_renderer
from trunkline.a2a.v1 import a2a_pb2
from trunkline_bridge.a2a.projection import FullEvent, WireEvent
from trunkline_bridge.http.messages import ResponseSender
from trunkline_bridge.http.sse import EventStream, EventStreamResponse, Heartbeats

EVENT = FullEvent(1, 0, a2a_pb2.StreamResponse())


class Client:
    """A client that accepts data while it has buffer space."""

    def __init__(self) -> None:
        self.has_space = asyncio.Event()
        self.has_space.set()
        self.received = asyncio.Event()
        self.bodies: list[bytes] = []

    async def send(self, message: Message) -> None:
        await self.has_space.wait()
        if message.get("body"):
            self.bodies.append(message["body"])
            self.received.set()

    async def wait_for_bodies(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.bodies) < count:
                self.received.clear()
                await self.received.wait()


async def test_no_events_are_read_while_the_client_is_stalled() -> None:
    client = Client()
    produced: list[int] = []

    async def events() -> AsyncGenerator[list[WireEvent], None]:
        for number in range(100):
            produced.append(number)
            if number == 3:
                client.has_space.clear()
            yield [EVENT]

    response = EventStreamResponse(nullcontext(events()), v1_renderer(1))
    send_all = response.send(ResponseSender(client.send), Heartbeats(60))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(send_all)
        await client.wait_for_bodies(3)
        for _ in range(50):
            await asyncio.sleep(0)
        assert produced == [0, 1, 2, 3]
        client.has_space.set()
        await task
    assert len(client.bodies) == len(produced) == 100


async def test_a_stalled_client_gets_no_heartbeat_and_delays_no_other() -> None:
    heartbeats = Heartbeats(0.02)
    stalled, other = Client(), Client()
    stalled.has_space.clear()
    for client in (stalled, other):
        heartbeats.add(EventStream(client.send, heartbeats))
    await other.wait_for_bodies(3)
    assert stalled.bodies == []
    stalled.has_space.set()
    await stalled.wait_for_bodies(1)


async def test_a_failed_heartbeat_is_logged_and_the_others_continue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heartbeats = Heartbeats(0.02)

    async def broken(_message: Message) -> None:
        raise RuntimeError("broken")

    other = Client()
    for send in (broken, other.send):
        heartbeats.add(EventStream(send, heartbeats))
    await other.wait_for_bodies(2)
    assert "heartbeat.failed" in {record.message for record in caplog.records}


async def test_a_heartbeat_never_interrupts_a_write() -> None:
    heartbeats = Heartbeats(60)
    client = Client()
    stream = EventStream(client.send, heartbeats)
    heartbeats.add(stream)
    client.has_space.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(stream.write(b"data: 1\n\n"))
        await asyncio.sleep(0)
        client.has_space.set()
        stream.write_heartbeat()
    assert client.bodies == [b"data: 1\n\n"]
