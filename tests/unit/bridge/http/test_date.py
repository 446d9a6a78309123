"""The Date header of a server that had no connections for a while."""

import asyncio

import pytest
from starlette.responses import PlainTextResponse

from trunkline_bridge.http import server


async def test_the_first_response_after_an_idle_time_has_the_current_date(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    date = "yesterday"
    monkeypatch.setattr(server, "formatdate", lambda **_: date)
    app = PlainTextResponse("ok")
    async with server.serve_http(app, host="127.0.0.1", port=0, grace_s=0.0) as url:
        assert await _read_date(url) == "yesterday"
        date = "today"
        assert await _read_date(url) == "today"


async def _read_date(url: str) -> str:
    """Return the date of a response on a connection of its own, after the server has closed it."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    lines = (await reader.read()).decode().splitlines()
    writer.close()
    (date,) = (line.partition(": ")[2] for line in lines if line.lower().startswith("date:"))
    return date
