"""Clients that cost next to nothing: raw HTTP on asyncio, events counted and not parsed."""

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bench.workload import FIRST, Ask, age_us

PATIENCE_S = 600.0
_END_BYTES = 4096
_EVENT = b"\ndata: "
_STAMP = re.compile(rb'"text": ?"(\d{9}) "')
_FIRST = re.compile(rb'"text": ?"' + FIRST.encode() + b'"')
_TASK_ID = re.compile(rb'"task": ?\{"id": ?"([^"]+)"')
_COMPLETED = b"TASK_STATE_COMPLETED"


@dataclass(slots=True)
class Streamed:
    """What came of one stream."""

    events: int = 0
    first_event_ms: float = 0.0
    first_text_ms: float = 0.0
    ages_us: list[int] = field(default_factory=list)
    """How old each stamped token was when it came, but for those of the preload."""
    task_id: str = ""
    end: bytes = b""


class _Reader(asyncio.Protocol):
    """Sends one request and counts the events that come."""

    def __init__(self, request: bytes, *, preload_s: float) -> None:
        self.seen = Streamed()
        loop = asyncio.get_running_loop()
        self.has_begun: asyncio.Future[None] = loop.create_future()
        self.is_over: asyncio.Future[None] = loop.create_future()
        self._request = request
        self._measure_from = time.monotonic() + preload_s
        self._began = 0.0
        self._tail = self._last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._began = time.perf_counter()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        seen = self.seen
        data = self._tail + data
        # What is behind the last whole line is looked at once it is whole, too.
        cut = max(data.rfind(b"\n"), 0)
        self._tail, data = data[cut:], data[:cut]
        self._last = (self._last[-_END_BYTES:] + data)[-_END_BYTES:]
        seen.events += data.count(_EVENT)
        if not seen.first_event_ms and seen.events:
            seen.first_event_ms = (time.perf_counter() - self._began) * 1000
            if task := _TASK_ID.search(data):
                seen.task_id = task[1].decode()
            self.has_begun.set_result(None)
        if not seen.first_text_ms and _FIRST.search(data):
            seen.first_text_ms = (time.perf_counter() - self._began) * 1000
        now = time.monotonic_ns() // 1000
        if now >= self._measure_from * 1e6:
            seen.ages_us += [age_us(said, now) for said in _STAMP.findall(data)]

    def connection_lost(self, exc: Exception | None) -> None:
        self.seen.end = self._last + self._tail
        for one in (self.has_begun, self.is_over):
            if not one.done():
                one.set_result(None)

    def close(self) -> None:
        """Leave."""
        self._transport.abort()


def _post(url: str, path: str, method: str, params: object, *, connection: str) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nA2A-Version: 1.0\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"Connection: {connection}\r\n\r\n"
    )
    return head.encode() + body


def _message(text: str) -> dict[str, object]:
    return {"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]}}


async def _open(url: str, request: bytes, *, preload_s: float = 0.0) -> _Reader:
    host, _, port = urlsplit(url).netloc.partition(":")
    _, reader = await asyncio.get_running_loop().create_connection(
        lambda: _Reader(request, preload_s=preload_s), host, int(port)
    )
    return reader


async def stream(url: str, path: str, ask: Ask, *, preload_s: float = 0.0) -> Streamed:
    """Ask, and read to the end, which must be that of a completed task."""
    request = _post(url, path, "SendStreamingMessage", _message(ask.text), connection="close")
    reader = await _open(url, request, preload_s=preload_s)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await reader.is_over
    finally:
        reader.close()
    seen = reader.seen
    assert _COMPLETED in seen.end, f"{seen.events} events, the last: {seen.end[-600:]!r}"
    assert seen.events > ask.tokens, f"{seen.events} events of {ask.tokens} tokens"
    return seen


async def streams(
    url: str, path: str, ask: Ask, count: int, *, spread_s: float = 0.0, preload_s: float = 0.0
) -> list[Streamed]:
    """Run streams at once, their starts spread evenly; the preload is counted from now."""

    async def one(number: int) -> Streamed:
        await asyncio.sleep(spread_s * number / count)
        return await stream(url, path, ask, preload_s=preload_s - spread_s * number / count)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(number)) for number in range(count)]
    return [task.result() for task in tasks]


async def unary(url: str, path: str, text: str, *, callers: int, calls: int) -> None:
    """Send messages and wait for each answer: callers at once, calls by each."""
    parts = urlsplit(url)
    request = _post(url, path, "SendMessage", _message(text), connection="keep-alive")

    async def caller() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        for _ in range(calls):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            assert length is not None, head
            body = await reader.readexactly(int(length[1]))
            assert text.split()[-1].encode() in body, body
            assert b'"error"' not in body, body
        writer.close()

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())


class IdleReaders:
    """Streams on which nothing happens: they are subscribed to tasks that wait."""

    def __init__(self, url: str, path: str) -> None:
        self._url = url
        self._path = path
        self._readers: list[_Reader] = []
        self._task_id = ""

    async def begin(self, text: str) -> None:
        """Begin the task that waits."""
        request = _post(
            self._url, self._path, "SendStreamingMessage", _message(text), connection="close"
        )
        reader = await self._add(request)
        self._task_id = reader.seen.task_id
        assert self._task_id, reader.seen

    async def add(self, count: int) -> None:
        """Open more streams."""
        request = _post(
            self._url, self._path, "SubscribeToTask", {"id": self._task_id}, connection="close"
        )
        for _ in range(count):
            await self._add(request)

    async def _add(self, request: bytes) -> _Reader:
        reader = await _open(self._url, request)
        self._readers.append(reader)
        async with asyncio.timeout(30):
            await reader.has_begun
        assert not reader.is_over.done(), reader.seen
        return reader

    def close(self) -> None:
        """Leave them all."""
        for reader in self._readers:
            reader.close()
