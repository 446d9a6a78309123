"""Server-sent events: what is ready together in one write, comments while nothing is."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping

from starlette.types import Send

from trunkline_bridge.inbound.http import raw
from trunkline_bridge.render import HEARTBEAT

_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    # Some proxies hold a response back until it is large or done.
    "x-accel-buffering": "no",
}


async def send_events(
    send: Send,
    writes: AsyncIterator[bytes],
    *,
    heartbeat_s: float,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send a stream to its end.

    Each write waits until the client has room for it, so a slow one slows its own stream and
    nothing else. Comments keep a silent connection open.
    """
    stream = _EventStream(send, heartbeat_s)
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": raw({**_HEADERS, **(headers or {})}),
        }
    )
    async with asyncio.TaskGroup() as group:
        beating = group.create_task(stream.beat())
        async for body in writes:
            await stream.write(body)
        beating.cancel()
    await send({"type": "http.response.body", "body": b""})


class _EventStream:
    """Lets events and comments take turns."""

    def __init__(self, send: Send, heartbeat_s: float) -> None:
        self._send = send
        self._heartbeat_s = heartbeat_s
        self._turn = asyncio.Lock()
        self._written_at = time.monotonic()

    async def write(self, body: bytes) -> None:
        async with self._turn:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
            self._written_at = time.monotonic()
        # A write that finds the client gone has the loop tell us; without this turn of the loop, a
        # burst would all be written first, and nobody else be served meanwhile.
        await asyncio.sleep(0)

    async def beat(self) -> None:
        while True:
            silent_s = time.monotonic() - self._written_at
            if silent_s >= self._heartbeat_s:
                await self.write(HEARTBEAT)
            else:
                await asyncio.sleep(self._heartbeat_s - silent_s)
