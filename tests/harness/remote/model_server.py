"""A scripted model provider on a real socket, which records its requests.

It speaks the protocols of OpenAI, Anthropic, Google and Ollama (see model_protocols). It runs in
its own thread, so fixtures of any scope, and tests with or without an event loop, can use it:

    with model_server() as server:
        server.script(call("math__calculate", expression="2+2"), say("It is ", "4."))
        ... TRUNKLINE_MODEL=openai:any, OPENAI_API_KEY=any, OPENAI_BASE_URL=server.openai_url
"""

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from harness.remote import model_protocols as model_wires
from harness.remote.model_protocols import Call, Cut, ModelProtocol, Reply
from harness.remote.web_server import serving

__all__ = [
    "Call",
    "ModelRequest",
    "ModelServer",
    "Pause",
    "Reply",
    "call",
    "model_server",
    "refuse",
    "say",
]

PATIENCE_S = 300.0


class Pause:
    """A pause among the pieces of a reply, which the test ends."""

    def __init__(self) -> None:
        self._is_reached: Future[None] = Future()
        self._go_on: Future[None] = Future()

    async def reached(self) -> None:
        """Wait until every earlier piece has been sent."""
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.shield(asyncio.wrap_future(self._is_reached))

    def end(self) -> None:
        """End the pause."""
        if not self._go_on.done():
            self._go_on.set_result(None)

    async def wait(self) -> None:
        """Wait for the end of the pause; called by the server."""
        if not self._is_reached.done():
            self._is_reached.set_result(None)
        await asyncio.shield(asyncio.wrap_future(self._go_on))


def say(*pieces: str | Pause, **fields: Any) -> Reply:
    """Return a text as a reply. A single piece is streamed word by word."""
    if len(pieces) == 1 and isinstance(pieces[0], str):
        words = pieces[0].split(" ")
        pieces = (*(f"{word} " for word in words[:-1]), words[-1])
    return Reply(pieces=pieces, **fields)


def call(name: str, /, **arguments: object) -> Reply:
    """Return a reply that calls one tool; for several write `Reply(calls=(Call(…), …))`."""
    return Reply(calls=(Call(name, arguments),))


def refuse(status: int, *, retry_after_s: int | None = None, text: str = "no") -> Reply:
    """Return an HTTP error as a reply."""
    headers = {} if retry_after_s is None else {"retry-after": str(retry_after_s)}
    return Reply(pieces=(text,), status=status, headers=headers)


@dataclass(slots=True)
class ModelRequest:
    """A request."""

    path: str
    headers: Mapping[str, str]
    json: dict[str, Any]
    ended: threading.Event = field(default_factory=threading.Event)
    """Set once its answer has ended."""
    is_hung_up: bool = False
    """True if the client left before the end."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Its messages, in the provider's format."""
        messages_found: list[dict[str, Any]] = self.json.get("messages") or self.json["contents"]
        return messages_found

    @property
    def last(self) -> str:
        """The content of the last message, if it is text."""
        return str(self.messages[-1].get("content"))

    @property
    def tools(self) -> list[str]:
        """Names of the tools it offers."""
        offered = self.json.get("tools") or []
        if offered and "functionDeclarations" in offered[0]:
            offered = offered[0]["functionDeclarations"]
        return [tool.get("function", tool).get("name", "") for tool in offered]


Decide: TypeAlias = Callable[[ModelRequest], Reply]


class ModelServer:
    """The script of the server, and its record of requests."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[ModelRequest] = []
        """Every request, in the order in which they came."""
        self.decide: Decide = self._next
        """Chooses the reply to a request; by default the next one of the script."""
        self.pauses: list[Pause] = []
        self._script: deque[Reply] = deque()

    @property
    def openai_url(self) -> str:
        """The value for OPENAI_BASE_URL."""
        return f"{self.url}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that direct each provider's client to this server."""
        return {
            "OPENAI_BASE_URL": self.openai_url,
            "OPENAI_API_KEY": "test-key",
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "test-key",
            "GOOGLE_API_KEY": "test-key",
            "OLLAMA_HOST": self.url,
        }

    def script(self, *replies: Reply) -> None:
        """Replace the script by these replies, and clear the record of requests."""
        self.decide = self._next
        self.requests.clear()
        self._script = deque(replies)

    @property
    def remaining(self) -> int:
        """The number of replies that remain in the script."""
        return len(self._script)

    async def until_ended(self, request_record: ModelRequest) -> None:
        """Wait until the answer to a request has ended."""
        await _until(request_record.ended.is_set, "the answer has not ended")

    def _next(self, request_record: ModelRequest) -> Reply:
        if not self._script:
            return refuse(
                500, text=f"the script has ended; the request: {request_record.last[:200]}"
            )
        return self._script.popleft()

    async def answer(self, request: Request, wire: ModelProtocol) -> Response:
        """Answer a request as a provider would."""
        body = json.loads(await request.body())
        request_record = ModelRequest(request.url.path, dict(request.headers), body)
        self.requests.append(request_record)
        if problem := wire.problem(body):
            request_record.ended.set()
            return JSONResponse(wire.error(400, problem), 400)
        reply = self.decide(request_record)
        pieces = [
            *reply.pieces,
            *(piece for tool_call in reply.calls for piece in tool_call.pieces),
        ]
        self.pauses += [piece for piece in pieces if isinstance(piece, Pause)]
        if reply.status != 200:
            request_record.ended.set()
            text = "".join(piece for piece in reply.pieces if isinstance(piece, str))
            return JSONResponse(wire.error(reply.status, text), reply.status, dict(reply.headers))
        if not wire.is_streaming(request.url.path, body):
            whole = "".join([piece async for piece in _texts(reply)])
            request_record.ended.set()
            return JSONResponse(wire.whole(reply, whole))
        return StreamingResponse(
            self._stream(request_record, reply, wire), media_type=wire.media_type
        )

    async def _stream(
        self, request_record: ModelRequest, reply: Reply, wire: ModelProtocol
    ) -> AsyncIterator[bytes]:
        try:
            async for line in wire.stream(reply, _texts(reply)):
                yield line.encode()
        except (asyncio.CancelledError, GeneratorExit):
            request_record.is_hung_up = True
            raise
        finally:
            request_record.ended.set()


async def _texts(reply: Reply) -> AsyncIterator[str]:
    for piece in reply.pieces:
        if isinstance(piece, str):
            yield piece
        else:
            await piece.wait()
    if reply.is_cut:
        raise Cut


def _is_no_cut(record: logging.LogRecord) -> bool:
    # A cut answer is an intended exception of the app.
    return not (record.exc_info and isinstance(record.exc_info[1], Cut))


async def _until(predicate: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not predicate():
        assert time.monotonic() < end, otherwise
        await asyncio.sleep(0.005)


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """Serve for the length of a block, at any port."""
    server = ModelServer()

    def route(wire: ModelProtocol) -> Route:
        async def endpoint(request: Request) -> Response:
            response = await server.answer(request, wire)
            # Clients would keep their connections after the end of a test's event loop.
            response.headers["connection"] = "close"
            return response

        return Route(wire.path, endpoint, methods=["POST"])

    app = Starlette(routes=[route(wire) for wire in model_wires.WIRES])
    log = logging.getLogger("uvicorn.error")
    log.addFilter(_is_no_cut)
    try:
        with serving(app, "model-server") as port:
            server.url = f"http://127.0.0.1:{port}"
            try:
                yield server
            finally:
                for pause in server.pauses:
                    with contextlib.suppress(RuntimeError):
                        pause.end()
    finally:
        log.removeFilter(_is_no_cut)
