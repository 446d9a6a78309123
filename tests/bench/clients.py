"""Lightweight clients: raw HTTP on asyncio, which count events and parse none."""

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bench.workload import FIRST, Ask, age_us

TIMEOUT_S = 600.0
_END_BYTES = 4096
_EVENT = b"\ndata: "
_STAMP = re.compile(rb'"text": ?"(\d{9}) "')
_FIRST = re.compile(rb'"text": ?"' + FIRST.encode() + b'"')
_TASK_ID = re.compile(rb'"task": ?\{"id": ?"([^"]+)"')
_COMPLETED = b"TASK_STATE_COMPLETED"


@dataclass(slots=True)
class StreamResult:
    """Results of one stream."""

    events: int = 0
    first_event_ms: float = 0.0
    first_text_ms: float = 0.0
    ages_us: list[int] = field(default_factory=list)
    """The age of each stamped token on arrival, except those of the preload."""
    task_id: str = ""
    end: bytes = b""


class _Reader(asyncio.Protocol):
    """Sends one request and counts the events of the response."""

    def __init__(self, request: bytes, *, preload_s: float) -> None:
        self.result = StreamResult()
        loop = asyncio.get_running_loop()
        self.has_started: asyncio.Future[None] = loop.create_future()
        self.has_ended: asyncio.Future[None] = loop.create_future()
        self._request = request
        self._measure_from_s = time.monotonic() + preload_s
        self._started_s = 0.0
        self._tail = self._last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._started_s = time.perf_counter()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        result = self.result
        data = self._tail + data
        # The data after the last complete line is examined once its line is complete.
        cut = max(data.rfind(b"\n"), 0)
        self._tail, data = data[cut:], data[:cut]
        self._last = (self._last[-_END_BYTES:] + data)[-_END_BYTES:]
        result.events += data.count(_EVENT)
        if not result.first_event_ms and result.events:
            result.first_event_ms = (time.perf_counter() - self._started_s) * 1000
            if task := _TASK_ID.search(data):
                result.task_id = task[1].decode()
            self.has_started.set_result(None)
        if not result.first_text_ms and _FIRST.search(data):
            result.first_text_ms = (time.perf_counter() - self._started_s) * 1000
        now = time.monotonic_ns() // 1000
        if now >= self._measure_from_s * 1e6:
            result.ages_us += [age_us(stamp_, now) for stamp_ in _STAMP.findall(data)]

    def connection_lost(self, exc: Exception | None) -> None:
        self.result.end = self._last + self._tail
        for future in (self.has_started, self.has_ended):
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        """Abort the connection."""
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


async def stream(url: str, path: str, ask: Ask, *, preload_s: float = 0.0) -> StreamResult:
    """Send the question and read the stream to its end; the task must complete."""
    request = _post(url, path, "SendStreamingMessage", _message(ask.text), connection="close")
    reader = await _open(url, request, preload_s=preload_s)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await reader.has_ended
    finally:
        reader.close()
    result = reader.result
    assert _COMPLETED in result.end, f"{result.events} events, the last: {result.end[-600:]!r}"
    assert result.events > ask.tokens, f"{result.events} events of {ask.tokens} tokens"
    return result


async def streams(
    url: str, path: str, ask: Ask, count: int, *, spread_s: float = 0.0, preload_s: float = 0.0
) -> list[StreamResult]:
    """Run concurrent streams, their starts spread evenly; the preload is counted from now."""

    async def run_stream(number: int) -> StreamResult:
        await asyncio.sleep(spread_s * number / count)
        return await stream(url, path, ask, preload_s=preload_s - spread_s * number / count)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_stream(number)) for number in range(count)]
    return [task.result() for task in tasks]


async def unary(url: str, path: str, text: str, *, callers: int, calls: int) -> None:
    """Send messages and wait for each answer: concurrent callers with several calls each."""
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

    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())


class IdleReaders:
    """Streams without events: they are subscribed to a waiting task."""

    def __init__(self, url: str, path: str) -> None:
        self._url = url
        self._path = path
        self._readers: list[_Reader] = []
        self._task_id = ""

    async def begin(self, text: str) -> None:
        """Start the waiting task."""
        request = _post(
            self._url, self._path, "SendStreamingMessage", _message(text), connection="close"
        )
        reader = await self._add(request)
        self._task_id = reader.result.task_id
        assert self._task_id, reader.result

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
            await reader.has_started
        assert not reader.has_ended.done(), reader.result
        return reader

    def close(self) -> None:
        """Close all streams."""
        for reader in self._readers:
            reader.close()
