"""Idle connections: how long the HTTP server keeps them open."""

import asyncio
from urllib.parse import urlsplit

import pytest
from starlette.responses import PlainTextResponse

from trunkline_bridge.http import server as http_server
from trunkline_bridge.http.connection_limits import ConnectionLimits
from trunkline_bridge.http.server import serve_http

LIMIT_S = 300.0


class Clock:
    """The clock of an event loop, which a test can put forward."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._real = loop.time
        self.offset_s = 0.0

    def time(self) -> float:
        return self._real() + self.offset_s


@pytest.mark.parametrize("parser", ["h11", "httptools"])
async def test_an_idle_connection_stays_open_longer_than_clients_reuse_it(
    monkeypatch: pytest.MonkeyPatch, parser: str
) -> None:
    monkeypatch.setattr(http_server, "_PARSER", parser)
    loop = asyncio.get_running_loop()
    clock = Clock(loop)
    monkeypatch.setattr(loop, "time", clock.time)
    serving = serve_http(
        PlainTextResponse("hello"),
        host="127.0.0.1",
        port=0,
        grace_s=0,
        limits=ConnectionLimits(request_timeout_s=1),
    )
    # The limit is by the same clock, so it is above all that the clock is put forward.
    async with asyncio.timeout(LIMIT_S), serving as url:
        place = urlsplit(url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        for idle_s in (0, 31, 61):
            clock.offset_s += idle_s
            # It runs after all timers that are due earlier.
            timers_are_done = asyncio.Event()
            loop.call_at(loop.time(), timers_are_done.set)
            await timers_are_done.wait()
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert await reader.readuntil(b"hello")
        clock.offset_s += 76
        assert await reader.read() == b""
        writer.close()
