"""A scripted receiver of webhooks on a real socket, which records every post."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from harness.remote.socket_server import listening

PATIENCE_S = 300.0

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


@dataclass(frozen=True, slots=True)
class ReceivedPost:
    """A post."""

    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """Its body."""
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed

    @property
    def id(self) -> str:
        """Its id, which is the same in every attempt."""
        return self.headers["webhook-id"]


# The answer to a post, as bytes; None: the connection is closed without one.
Answer: TypeAlias = bytes | None
Decide: TypeAlias = Callable[[ReceivedPost], Awaitable[Answer]]


def status(code: int, *headers: str) -> bytes:
    """Return an answer without content."""
    lines = [f"HTTP/1.1 {code} Status", "content-length: 0", *headers, "", ""]
    return "\r\n".join(lines).encode("ascii")


async def accept(_received: ReceivedPost) -> Answer:
    """Take it."""
    return OK


async def hang(_received: ReceivedPost) -> Answer:
    """Never answer."""
    await asyncio.Event().wait()
    return None


class WebhookReceiver:
    """The posts so far, and the script of the answers. `decide` may be changed at any time."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.all: list[ReceivedPost] = []
        """Every post in the order of arrival, refused ones included."""
        self.accepted: list[ReceivedPost] = []
        """The posts that were answered with 2xx."""
        self.url = ""
        self.connections = 0
        self.most_at_once = 0
        self._at_once = 0
        self._news = asyncio.Event()

    async def until(
        self, predicate: Callable[["WebhookReceiver"], object], *, limit_s: float = PATIENCE_S
    ) -> None:
        """Wait until the predicate is true."""
        try:
            async with asyncio.timeout(limit_s):
                while not predicate(self):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            received = [(post.id, post.body[:200]) for post in self.all]
            raise AssertionError(f"it has only received {received}") from None

    def ids(self) -> list[str]:
        """Ids of the accepted posts, each once, in order."""
        return list(dict.fromkeys(post.id for post in self.accepted))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        self.connections += 1
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while await self._serve_one(reader, writer):
                    pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(": ") for line in head[1:] if line)
        headers = {name.lower(): value for name, _, value in pairs}
        body = await reader.readexactly(int(headers["content-length"]))
        received = ReceivedPost(head[0].split(" ")[1], headers, body)
        self.all.append(received)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self._news.set()
        try:
            answer = await self.decide(received)
        finally:
            self._at_once -= 1
        if answer is None:
            return False
        if answer[9:10] == b"2":
            self.accepted.append(received)
            self._news.set()
        writer.write(answer)
        await writer.drain()
        return True


@asynccontextmanager
async def open_receiver(
    decide: Decide = accept, *, context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[WebhookReceiver]:
    """Serve for the length of a block, at any port."""
    receiver = WebhookReceiver(decide)
    scheme = "http" if context is None else "https"
    async with listening(receiver.serve, host=host, context=context) as port:
        receiver.url = f"{scheme}://{host}:{port}/hook"
        yield receiver
