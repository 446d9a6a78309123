"""Scripted search engines, and an embedding model, on a real socket.

They speak the protocols of Tavily, SearXNG, arXiv and OpenAI's embeddings, each at its own path.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

from harness.remote.socket_server import listening

PAGES = [
    {
        "title": "Keepalive",
        "url": "https://a.example/keepalive",
        "content": "Pings keep it \x1b[31malive.",
    },
    {"title": "Bad link", "url": "javascript:alert(1)", "content": "No."},
    {"title": "No content", "url": "https://b.example/", "content": ""},
]
# The words of each topic. Two texts without a common word may have the same topic.
_MEANINGS = (
    {"leave", "vacation", "holiday", "holidays", "free"},
    {"train", "trains", "planes", "travel", "railway"},
    {"cache", "memory", "write"},
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to an engine."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True, slots=True)
class Reply:
    """An engine's reply."""

    content: bytes
    status: int = 200
    media_type: str = "application/json"
    headers: tuple[str, ...] = ()


# None: the connection is closed without an answer.
Script: TypeAlias = Callable[[Request], "Reply | None"]


def as_json(value: object, status: int = 200) -> Reply:
    """Return a reply in JSON."""
    return Reply(json.dumps(value).encode(), status)


def feed(*entries: tuple[str, str, str]) -> Reply:
    """Return an Atom feed of papers: id, title, abstract."""
    papers = "".join(
        f"<entry><id>http://arxiv.org/abs/{paper_id}</id><title>{escape(title)}</title>"
        f"<summary>{escape(text)}</summary><published>2017-06-12T17:57:34Z</published>"
        "<author><name>A. Author</name></author><author><name>B. Author</name></author></entry>"
        for paper_id, title, text in entries
    )
    head = '<?xml version="1.0" encoding="UTF-8"?><feed xmlns="http://www.w3.org/2005/Atom">'
    return Reply(
        f"{head}<title>q</title>{papers}</feed>".encode(), media_type="application/atom+xml"
    )


def vectors(request: Request) -> Reply:
    """Answer as OpenAI's embeddings do: one dimension for each topic of the text."""
    embeddings = []
    for index, text in enumerate(request.body["input"]):
        words = set(text.casefold().replace(".", " ").split())
        numbers = [float(len(words & about)) for about in _MEANINGS]
        embeddings.append({"object": "embedding", "index": index, "embedding": [*numbers, 0.01]})
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    model = request.body["model"]
    return as_json({"object": "list", "data": embeddings, "model": model, "usage": usage})


def _nobody(_request: Request) -> Reply:
    return as_json({}, status=404)


@dataclass(slots=True)
class Engines:
    """The scripts and the requests of all engines. `scripts` may be changed at any time."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    scripts: dict[str, Script] = field(default_factory=dict)

    @classmethod
    def usual(cls) -> "Engines":
        """Return engines with a few results each."""
        engines = cls()
        paper = ("1706.03762v7", "Attention Is All You Need", "We propose the Transformer.")
        engines.scripts = {
            "/tavily/search": lambda _: as_json({"results": PAGES}),
            "/searxng/search": lambda _: as_json({"results": PAGES[:1]}),
            "/arxiv/api/query": lambda _: feed(paper),
            "/v1/embeddings": vectors,
        }
        return engines


@asynccontextmanager
async def search_engines() -> AsyncIterator[Engines]:
    """Serve engines on a free port."""
    engines = Engines.usual()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            request = await _read(reader)
            engines.requests.append(request)
            script = engines.scripts.get(request.path, _nobody)
            if (reply := script(request)) is not None:
                writer.write(_written(reply))
                await writer.drain()

    async with listening(serve) as port:
        engines.url = f"http://127.0.0.1:{port}"
        yield engines


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
    }
    content = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    body = json.loads(content) if content else None
    return Request(method, parts.path, query, headers, body)


def _written(reply: Reply) -> bytes:
    lines = (
        f"HTTP/1.1 {reply.status} Status",
        f"content-type: {reply.media_type}",
        f"content-length: {len(reply.content)}",
        *reply.headers,
        "connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + reply.content
