"""Clients on raw sockets that half-close, vanish at any point, or reconnect late."""

import asyncio
import socket
import struct
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
from harness.polling import wait_for
from trunkline.tasks.lifecycle import State
from trunkline_agents.echo.agent import echo
from trunkline_bridge.app import Bridge
from trunkline_bridge.http.server import serve_http

pytestmark = pytest.mark.asyncio(loop_scope="module")

ECHO = "/agents/echo"


def streaming(text: str, **fields: str) -> dict[str, object]:
    return {"message": user_message(text, **fields)}


async def read(answer: SseResponse) -> list[WireEvent]:
    return [event async for event in answer.events()]


async def first(answer: SseResponse) -> WireEvent:
    return await anext(answer.events())


async def whole(url: str, text: str) -> list[WireEvent]:
    async with sse(url, ECHO, "SendStreamingMessage", streaming(text)) as answer:
        return await read(answer)


async def wait_until_all_answered(mesh: BridgedMesh) -> None:
    """Wait until the bridge answers no more requests."""
    await wait_for(lambda: not mesh.bridge.in_flight_count)


async def test_a_reader_that_reconnects_after_its_events_expired_gets_an_error_at_once(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(PATIENCE_S), open_bridged_mesh(tmp_path) as bridged:
        # Later than the read of the last event.
        await bridged.mesh.join(echo, compact_after_s=1.0, lease_s=1.0)
        complete = await whole(bridged.url, "count 50")
        task = {"id": complete[0].result["task"]["id"]}
        head = complete[-1].id.partition(".")[0]
        error = await read_expiry_error(bridged.url, task, complete[20].id)
        assert error["code"] == -32602
        assert error["data"][0]["metadata"]["snapshotSequence"] == head
        assert "GetTask" in error["message"]
        # A reader that has received every event has missed nothing.
        headers = {"Last-Event-ID": complete[-1].id}
        async with sse(bridged.url, ECHO, "SubscribeToTask", task, headers) as answer:
            assert await read(answer) == []
        fold = ClientFold()
        for event in complete:
            fold.apply(event)
        whole_task = (await call(bridged.url, ECHO, "GetTask", task))["result"]
        again = ClientFold()
        again.take_task(whole_task)
        assert again.texts == fold.texts


async def read_expiry_error(url: str, task: dict[str, str], last_event_id: str) -> dict[str, Any]:
    """Resume after an event until the bridge refuses, and return the error."""
    headers = {"Last-Event-ID": last_event_id}
    while True:
        try:
            async with sse(url, ECHO, "SubscribeToTask", task, headers) as answer:
                await read(answer)
        except RefusedError as refused:
            return refused.error


async def test_a_client_that_vanishes_at_any_point_leaves_nothing_open(
    bridged: BridgedMesh,
) -> None:
    address = urlsplit(bridged.url)
    async with sse(bridged.url, ECHO, "SendStreamingMessage", streaming("wait 3600")) as answer:
        task_id = (await first(answer)).result["task"]["id"]
    request = request_bytes(address.netloc, ECHO, "SubscribeToTask", {"id": task_id}, None)
    cuts = (0, 1, 40, len(request) // 2, len(request) - 1, len(request))
    for sent in cuts:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(request[:sent])
        await writer.drain()
        if sent == len(request):
            await reader.readuntil(b"data: ")
        reset(writer)
    await wait_until_all_answered(bridged)
    await bridged.mesh.until(task_id, lambda now: now.task.status.state == State.TASK_STATE_WORKING)
    task = await call(bridged.url, ECHO, "CancelTask", {"id": task_id})
    assert task["result"]["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_half_closed_connection_is_closed_completely(bridged: BridgedMesh) -> None:
    address = urlsplit(bridged.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    wait = streaming("wait 3600")
    writer.write(request_bytes(address.netloc, ECHO, "SendStreamingMessage", wait, None))
    await reader.readuntil(b"data: ")
    writer.write_eof()
    await reader.read()
    await wait_until_all_answered(bridged)
    assert reader.at_eof()
    writer.close()


async def test_the_streams_of_a_stopping_bridge_resume_at_another(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        open_small_mesh(tmp_path) as mesh,
        asyncio.TaskGroup() as group,
    ):
        await mesh.join(echo)
        bridge = Bridge(mesh.directory)
        async with AsyncExitStack() as clients:
            async with serve_http(
                bridge.http,
                host="127.0.0.1",
                port=0,
                grace_s=0.2,
                abort_requests=bridge.abort_requests,
            ) as url:
                wait = streaming("wait 3600")
                answer = await clients.enter_async_context(
                    sse(url, ECHO, "SendStreamingMessage", wait)
                )
                first_event = await first(answer)
                waiting = group.create_task(send(url, ECHO, "SendMessage", wait))
                await wait_for(lambda: bridge.in_flight_count == 2)
            events_before = [first_event, *await read(answer)]
        error = events_before[-1].response["error"]
        assert (error["code"], error["data"][0]["reason"]) == (-32000, "UNAVAILABLE")
        assert "Last-Event-ID" in error["message"]
        status, headers, body = await waiting
        assert (status, headers["retry-after"]) == (503, "1")
        assert body["error"]["code"] == -32000
        task = {"id": first_event.result["task"]["id"]}
        resume = {"Last-Event-ID": events_before[-2].id}
        bridge = Bridge(mesh.directory)
        async with (
            serve_http(bridge.http, host="127.0.0.1", port=0, grace_s=0) as url,
            sse(url, ECHO, "SubscribeToTask", task, resume) as again,
        ):
            await call(url, ECHO, "CancelTask", task)
            last = (await read(again))[-1]
        assert last.result["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"


def reset(writer: asyncio.StreamWriter) -> None:
    """Reset the connection, as a dying process does."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
