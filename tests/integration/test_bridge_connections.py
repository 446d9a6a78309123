"""Clients on raw sockets that stall, close half, vanish at any point, or come back late."""

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.a2a.sse_client import (
    ClientFold,
    RefusedError,
    SseResponse,
    WireEvent,
    call,
    request_bytes,
    send,
    sse,
    user_message,
)
from harness.mesh.small_mesh import PATIENCE_S, open_small_mesh
from trunkline.tasks.lifecycle import State
from trunkline_agents.echo.agent import echo
from trunkline_bridge.app import Bridge
from trunkline_bridge.edge.http_server import serve_http

ECHO = "/agents/echo"


@pytest.fixture
async def bridged(tmp_path: Path) -> AsyncIterator[BridgedMesh]:
    async with open_bridged_mesh(tmp_path) as mesh:
        await mesh.mesh.join(echo)
        yield mesh


def streaming(text: str) -> dict[str, object]:
    return {"message": user_message(text)}


async def read(answer: SseResponse) -> list[WireEvent]:
    return [event async for event in answer.events()]


async def first(answer: SseResponse) -> WireEvent:
    return await anext(answer.events())


def shown(events: list[WireEvent]) -> list[tuple[str, object]]:
    return [(event.id, event.result) for event in events]


async def whole(url: str, text: str) -> list[WireEvent]:
    async with sse(url, ECHO, "SendStreamingMessage", streaming(text)) as answer:
        return await read(answer)


async def all_answers_are_over(mesh: BridgedMesh) -> None:
    """Wait until nobody is answered any more."""
    await until(lambda: not mesh.bridge.in_flight_count)


async def test_a_thousand_events_cut_anywhere_are_the_uncut_ones(bridged: BridgedMesh) -> None:
    rng = random.Random(3)
    uncut = await whole(bridged.url, "count 1000 0 5")
    task = {"id": uncut[0].result["task"]["id"]}
    for seen in (0, len(uncut) - 2, *rng.sample(range(len(uncut) - 1), 30)):
        headers = {"Last-Event-ID": uncut[seen].id}
        async with sse(bridged.url, ECHO, "SubscribeToTask", task, headers) as answer:
            assert shown(await read(answer)) == shown(uncut[seen + 1 :])


async def test_a_reader_that_is_cut_again_and_again_while_the_task_runs_misses_nothing(
    bridged: BridgedMesh,
) -> None:
    rng = random.Random(4)
    fold, ids = ClientFold(), []
    params, method = streaming("count 300 2"), "SendStreamingMessage"
    headers: dict[str, str] = {}
    while not fold.has_ended:
        async with sse(bridged.url, ECHO, method, params, headers) as answer:
            left = rng.randint(1, 25)
            async for event in answer.events():
                fold.apply(event)
                ids.append(event.id)
                left -= 1
                if not left:
                    answer.cut()
                    break
        method, params = "SubscribeToTask", {"id": fold.task_id}
        headers = {"Last-Event-ID": fold.last_event_id}
    assert list(fold.texts.values()) == ["".join(f"{n} " for n in range(1, 301))]
    assert len(set(ids)) == len(ids)


async def test_a_reader_that_comes_back_after_the_end_gets_the_rest_and_the_end(
    bridged: BridgedMesh,
) -> None:
    uncut = await whole(bridged.url, "count 5")
    task = {"id": uncut[0].result["task"]["id"]}
    headers = {"Last-Event-ID": uncut[-1].id}
    async with sse(bridged.url, ECHO, "SubscribeToTask", task, headers) as answer:
        assert await read(answer) == []
    headers = {"Last-Event-ID": uncut[-2].id}
    async with sse(bridged.url, ECHO, "SubscribeToTask", task, headers) as answer:
        assert shown(await read(answer)) == shown(uncut[-1:])


async def test_a_reader_that_comes_back_after_its_events_are_gone_is_told_at_once(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(PATIENCE_S), open_bridged_mesh(tmp_path) as bridged:
        # Later than the last event is read.
        await bridged.mesh.join(echo, compact_after_s=1.0, lease_s=1.0)
        uncut = await whole(bridged.url, "count 50")
        task = {"id": uncut[0].result["task"]["id"]}
        head = uncut[-1].id.partition(".")[0]
        error = await gone(bridged.url, task, uncut[20].id)
        assert error["code"] == -32602
        assert error["data"][0]["metadata"]["snapshotSequence"] == head
        assert "GetTask" in error["message"]
        # Who has seen all of it has missed nothing.
        headers = {"Last-Event-ID": uncut[-1].id}
        async with sse(bridged.url, ECHO, "SubscribeToTask", task, headers) as answer:
            assert await read(answer) == []
        fold = ClientFold()
        for event in uncut:
            fold.apply(event)
        whole_task = (await call(bridged.url, ECHO, "GetTask", task))["result"]
        again = ClientFold()
        again.take_task(whole_task)
        assert again.texts == fold.texts


async def gone(url: str, task: dict[str, str], last_event_id: str) -> dict[str, Any]:
    """Go on behind an event until that is refused, and return the error."""
    headers = {"Last-Event-ID": last_event_id}
    while True:
        try:
            async with sse(url, ECHO, "SubscribeToTask", task, headers) as answer:
                await read(answer)
        except RefusedError as refused:
            return refused.error


async def test_a_client_that_vanishes_anywhere_leaves_nothing_behind(bridged: BridgedMesh) -> None:
    place = urlsplit(bridged.url)
    async with sse(bridged.url, ECHO, "SendStreamingMessage", streaming("wait 3600")) as answer:
        task_id = (await first(answer)).result["task"]["id"]
    request = request_bytes(place.netloc, ECHO, "SubscribeToTask", {"id": task_id}, None)
    cuts = (0, 1, 40, len(request) // 2, len(request) - 1, len(request))
    for sent in cuts:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(request[:sent])
        await writer.drain()
        if sent == len(request):
            await reader.readuntil(b"data: ")
        reset(writer)
    await all_answers_are_over(bridged)
    await bridged.mesh.until(task_id, lambda now: now.task.status.state == State.TASK_STATE_WORKING)
    task = await call(bridged.url, ECHO, "CancelTask", {"id": task_id})
    assert task["result"]["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_client_that_gives_up_waiting_ends_its_call_and_not_its_task(
    bridged: BridgedMesh,
) -> None:
    place = urlsplit(bridged.url)
    _, writer = await asyncio.open_connection(place.hostname, place.port)
    wait = streaming("wait 3600")
    writer.write(request_bytes(place.netloc, ECHO, "SendMessage", wait, None))
    task_id = await the_only_task(bridged)
    reset(writer)
    await all_answers_are_over(bridged)
    task = await call(bridged.url, ECHO, "CancelTask", {"id": task_id})
    assert task["result"]["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_connection_that_is_closed_half_is_closed_whole(bridged: BridgedMesh) -> None:
    place = urlsplit(bridged.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    wait = streaming("wait 3600")
    writer.write(request_bytes(place.netloc, ECHO, "SendStreamingMessage", wait, None))
    await reader.readuntil(b"data: ")
    writer.write_eof()
    await reader.read()
    await all_answers_are_over(bridged)
    assert reader.at_eof()
    writer.close()


async def test_a_reader_that_stalls_is_waited_for_and_catches_up(bridged: BridgedMesh) -> None:
    place = urlsplit(bridged.url)
    stalled = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    stalled.setblocking(False)
    await asyncio.get_running_loop().sock_connect(stalled, (place.hostname, place.port))
    reader, writer = await asyncio.open_connection(sock=stalled, limit=4096)
    count = streaming("count 30000 0 9")
    writer.write(request_bytes(place.netloc, ECHO, "SendStreamingMessage", count, None))
    await reader.readuntil(b"data: ")
    # Its task ends, and others are served, while it takes nothing.
    task_id = await the_only_task(bridged)
    await bridged.mesh.until(
        task_id, lambda now: now.task.status.state == State.TASK_STATE_COMPLETED
    )
    for _ in range(20):
        assert len(await whole(bridged.url, "count 20")) > 20
    await until(lambda: bridged.bridge.in_flight_count == 1)
    size = 0
    while data := await reader.read(1 << 16):
        size += data.count(b"\ndata: ")
        if b"TASK_STATE_COMPLETED" in data:
            break
    assert size > 29_000
    writer.close()


async def test_a_bridge_that_stops_says_so_and_its_streams_go_on_elsewhere(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        open_small_mesh(tmp_path) as mesh,
        asyncio.TaskGroup() as group,
    ):
        await mesh.join(echo)
        bridge = Bridge(mesh.directory)
        async with AsyncExitStack() as clients:
            async with serve_http(
                bridge.app,
                host="127.0.0.1",
                port=0,
                grace_s=0.2,
                abort_requests=bridge.abort_requests,
            ) as url:
                wait = streaming("wait 3600")
                answer = await clients.enter_async_context(
                    sse(url, ECHO, "SendStreamingMessage", wait)
                )
                begun = await first(answer)
                waiting = group.create_task(send(url, ECHO, "SendMessage", wait))
                await until(lambda: bridge.in_flight_count == 2)
            told = [begun, *await read(answer)]
        error = told[-1].response["error"]
        assert (error["code"], error["data"][0]["reason"]) == (-32000, "UNAVAILABLE")
        assert "Last-Event-ID" in error["message"]
        status, headers, body = await waiting
        assert (status, headers["retry-after"]) == (503, "1")
        assert body["error"]["code"] == -32000
        task = {"id": begun.result["task"]["id"]}
        resume = {"Last-Event-ID": told[-2].id}
        bridge = Bridge(mesh.directory)
        async with (
            serve_http(bridge.app, host="127.0.0.1", port=0, grace_s=0) as url,
            sse(url, ECHO, "SubscribeToTask", task, resume) as again,
        ):
            await call(url, ECHO, "CancelTask", task)
            last = (await read(again))[-1]
        assert last.result["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"


async def the_only_task(bridged: BridgedMesh) -> str:
    """Wait until there is a task, and return its id."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            listed = (await call(bridged.url, ECHO, "ListTasks", {}))["result"]["tasks"]
            if listed:
                return str(listed[0]["id"])


async def until(predicate: Callable[[], bool]) -> None:
    """Wait for something that the bridge tells nobody."""
    async with asyncio.timeout(PATIENCE_S):
        while not predicate():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def reset(writer: asyncio.StreamWriter) -> None:
    """Vanish: the connection is reset, as a process that dies does."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
