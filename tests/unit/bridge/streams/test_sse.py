"""Event streams wait for slow clients; one timer keeps silent streams alive."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from harness.a2a.bridged_mesh import v1_renderer
from trunkline.a2a.v1 import a2a_pb2
from trunkline_bridge.edge.http import ResponseSender
from trunkline_bridge.projection import FullEvent, WireEvent
from trunkline_bridge.streams.event_renderer import HEARTBEAT
from trunkline_bridge.streams.sse import EventStream, Heartbeats, send_events

EVENT = FullEvent(1, 0, a2a_pb2.StreamResponse())


class Client:
    """A client that accepts data while it has room."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.room.set()
        self.news = asyncio.Event()
        self.bodies: list[bytes] = []

    async def send(self, message: Message) -> None:
        await self.room.wait()
        if message.get("body"):
            self.bodies.append(message["body"])
            self.news.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.bodies) < count:
                self.news.clear()
                await self.news.wait()


async def test_nothing_is_asked_of_the_mesh_while_the_client_has_no_room() -> None:
    client = Client()
    taken: list[int] = []

    async def events() -> AsyncGenerator[list[WireEvent], None]:
        for number in range(100):
            taken.append(number)
            if number == 3:
                client.room.clear()
            yield [EVENT]

    sending = send_events(
        ResponseSender(client.send), events(), v1_renderer(1), heartbeats=Heartbeats(60)
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(sending)
        await client.until(3)
        for _ in range(50):
            await asyncio.sleep(0)
        assert taken == [0, 1, 2, 3]
        client.room.set()
        await task
    assert len(client.bodies) == len(taken) == 100


async def test_one_timer_beats_for_every_silent_stream() -> None:
    beats = Heartbeats(0.02)
    silent, busy = Client(), Client()
    streams = [EventStream(client.send, beats) for client in (silent, busy)]
    for stream in streams:
        beats.add(stream)
    await silent.until(3)
    assert silent.bodies == [HEARTBEAT] * len(silent.bodies)
    for stream in streams:
        beats.remove(stream)
    assert beats._timer is None


async def test_a_client_without_room_gets_no_heartbeat_and_holds_up_nobody() -> None:
    beats = Heartbeats(0.02)
    stalled, other = Client(), Client()
    stalled.room.clear()
    for client in (stalled, other):
        beats.add(EventStream(client.send, beats))
    await other.until(3)
    assert stalled.bodies == []
    stalled.room.set()
    await stalled.until(1)


async def test_a_heartbeat_that_fails_is_logged_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    beats = Heartbeats(0.02)

    async def broken(_message: Message) -> None:
        raise RuntimeError("broken")

    other = Client()
    for send in (broken, other.send):
        beats.add(EventStream(send, beats))
    await other.until(2)
    assert "heartbeat.failed" in {record.message for record in caplog.records}


async def test_a_comment_never_comes_between_the_halves_of_a_write() -> None:
    beats = Heartbeats(60)
    client = Client()
    stream = EventStream(client.send, beats)
    beats.add(stream)
    client.room.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(stream.write(b"data: 1\n\n"))
        await asyncio.sleep(0)
        client.room.set()
        stream.write_heartbeat()
    assert client.bodies == [b"data: 1\n\n"]
