"""An A2A client on a raw socket: cheap enough for thousands of streams, cut at any point."""

import asyncio
import contextlib
import itertools
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import urlsplit

Json: TypeAlias = dict[str, Any]

PATIENCE_S = 300.0
_LINE_BYTES = 16 * 1024 * 1024
_ids = itertools.count(1)
# With this option, closing sends a reset at once, as the death of a process does.
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class WireEvent:
    """A server-sent event: its id, and the JSON-RPC response in it."""

    id: str
    response: Json

    @property
    def result(self) -> Json:
        """The result in the response; assert that it is no error."""
        assert "error" not in self.response, self.response
        value: Json = self.response["result"]
        return value


class RefusedError(Exception):
    """The server answered with no stream."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(status, body)
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def error(self) -> Json:
        """The JSON-RPC error."""
        value: Json = json.loads(self.body)["error"]
        return value


class SseResponse:
    """The open response to one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}

    async def begin(self) -> None:
        """Read the head. If no stream follows, read the body and raise RefusedError."""
        async with asyncio.timeout(PATIENCE_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            self.status = int(head[0].split()[1])
            pairs = (line.partition(":") for line in head[1:] if line)
            self.headers = {name.lower(): value.strip() for name, _, value in pairs}
            if self.headers.get("content-type") != "text/event-stream":
                raise RefusedError(self.status, self.headers, await self._body())

    async def events(self) -> AsyncIterator[WireEvent]:
        """Yield events until the stream ends, cleanly or by a cut."""
        event_id, data = "", ""
        async for line in self._lines():
            if line.startswith("id: "):
                event_id = line[4:]
            elif line.startswith("data: "):
                data = line[6:]
            elif not line and data:
                yield WireEvent(event_id, json.loads(data))
                event_id, data = "", ""

    def cut(self) -> None:
        """Reset the connection."""
        connection = self._writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()

    async def _lines(self) -> AsyncIterator[str]:
        """Yield the lines of the chunked body, until it ends or the connection is cut."""
        buffer = b""
        while True:
            chunk = await self._chunk()
            if not chunk:
                return
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                yield line.decode()

    async def _chunk(self) -> bytes:
        try:
            async with asyncio.timeout(PATIENCE_S):
                size = int(await self._reader.readuntil(b"\r\n"), 16)
                chunk = await self._reader.readexactly(size + 2)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        return chunk[:-2]

    async def _body(self) -> bytes:
        if "content-length" in self.headers:
            return await self._reader.readexactly(int(self.headers["content-length"]))
        pieces = []
        while piece := await self._chunk():
            pieces.append(piece)
        return b"".join(pieces)


def user_message(text: str, **fields: str) -> Json:
    """A user's message with a new id."""
    message = {"messageId": f"m-{next(_ids)}", "role": "ROLE_USER", **fields}
    return {**message, "parts": [{"text": text}]}


@asynccontextmanager
async def sse(
    url: str, path: str, method: str, params: Json, headers: Mapping[str, str] | None = None
) -> AsyncIterator[SseResponse]:
    """Send a JSON-RPC request that opens a stream; leaving the block closes the connection."""
    async with _sent(url, path, method, params, headers) as answer:
        await answer.begin()
        yield answer


async def send(
    url: str, path: str, method: str, params: Json, headers: Mapping[str, str] | None = None
) -> tuple[int, Mapping[str, str], Json]:
    """Send a unary request; return status, headers and body of the response."""
    async with _sent(url, path, method, params, headers) as answer:
        try:
            await answer.begin()
        except RefusedError as refused:
            return refused.status, refused.headers, json.loads(refused.body)
    raise AssertionError(f"{method} was answered by a stream")


async def call(
    url: str, path: str, method: str, params: Json, headers: Mapping[str, str] | None = None
) -> Json:
    """Send a unary request; return the JSON-RPC response."""
    return (await send(url, path, method, params, headers))[2]


@asynccontextmanager
async def _sent(
    url: str, path: str, method: str, params: Json, headers: Mapping[str, str] | None
) -> AsyncIterator[SseResponse]:
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port, limit=_LINE_BYTES)
    try:
        writer.write(request_bytes(at.netloc, path, method, params, headers))
        yield SseResponse(reader, writer)
    finally:
        writer.transport.abort()


def subscription(url: str, path: str, task_id: str, last_event_id: str) -> bytes:
    """Encode a SubscribeToTask request that resumes after an event, for raw sockets."""
    headers = {"Last-Event-ID": last_event_id}
    return request_bytes(urlsplit(url).netloc, path, "SubscribeToTask", {"id": task_id}, headers)


def request_bytes(
    host: str, path: str, method: str, params: Json, headers: Mapping[str, str] | None
) -> bytes:
    """Encode a request, for clients that send it in pieces."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    message = {
        "Host": host,
        "A2A-Version": "1.0",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **(headers or {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in message.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


@dataclass(slots=True)
class ClientFold:
    """The state of a task and the joined text of each artifact, folded from a stream."""

    task_id: str = ""
    state: str = ""
    texts: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    last_event_id: str = ""

    def apply(self, event: WireEvent) -> None:
        """Apply the next event."""
        result = event.result
        self.last_event_id = event.id or self.last_event_id
        if "task" in result:
            self.take_task(result["task"])
        elif "statusUpdate" in result:
            self.state = result["statusUpdate"]["status"]["state"]
        elif "artifactUpdate" in result:
            update = result["artifactUpdate"]
            artifact = update["artifact"]
            name = artifact["artifactId"]
            before = self.texts.get(name, "") if update.get("append") else ""
            assert not update.get("append") or name in self.texts, f"{name}: append before create"
            self._put(artifact, before)

    def take_task(self, task: Json) -> None:
        """Start from a snapshot of the task."""
        self.task_id, self.state = task["id"], task["status"]["state"]
        self.texts, self.names = {}, {}
        for artifact in task.get("artifacts", ()):
            self._put(artifact, "")

    def _put(self, artifact: Json, before: str) -> None:
        self.texts[artifact["artifactId"]] = before + _text(artifact)
        self.names[artifact["artifactId"]] = artifact.get("name", "")

    @property
    def has_ended(self) -> bool:
        """True if the task's state is terminal."""
        return self.state.removeprefix("TASK_STATE_") in (
            "COMPLETED", "FAILED", "CANCELED", "REJECTED",
        )  # fmt: skip


def _text(artifact: Json) -> str:
    return "".join(part.get("text", "") for part in artifact.get("parts", ()))
