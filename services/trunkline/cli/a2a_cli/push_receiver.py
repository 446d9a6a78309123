"""Receives the notifications of webhooks for `task push-config listen`."""

import asyncio
import hmac
import json
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.protocol import NOTIFICATION_TOKEN_HEADER
from trunkline.a2a_wire.response_reader import parse_stream_response
from trunkline.a2a_wire.v1_0.json_writer import stream_response_json
from trunkline.cli.a2a_cli.console import Console
from trunkline.embedded_http import serve_routes
from trunkline.settings import HostPort

_MAX_BODY_BYTES: Final = 16 * 1024 * 1024
_READ_TIMEOUT_S: Final = 30.0


async def receive_notifications(
    console: Console,
    address: HostPort,
    show: Callable[[Json], None],
    *,
    token: str,
    limit: int | None,
) -> None:
    """Listen at an address, and show each notification; stop after `limit`, or by SIGTERM.

    A post without the token is refused. Each notification is a StreamResponse, shown as it came;
    the notification of an agent of v0.3 is converted.

    Raises:
        ConfigurationError: the address can't be listened on.
        BrokenPipeError: the reader of the output has left.
    """
    receiver = _Receiver(console, show, token, limit)
    route = Route("/{path:path}", receiver.respond, methods=["POST"])
    async with serve_routes([route], address, where="--listen") as port:
        console.warn(f"listening at http://{HostPort(address.host, port)}/")
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGTERM, receiver.is_done.set)
        await receiver.is_done.wait()
    if receiver.failure is not None:
        raise receiver.failure


@dataclass(slots=True)
class _Receiver:
    """Answers the posts."""

    console: Console
    show: Callable[[Json], None]
    token: str
    remaining: int | None
    """The number of notifications that are still to come, if it is known."""
    is_done: asyncio.Event = field(default_factory=asyncio.Event)
    failure: BrokenPipeError | None = None

    async def respond(self, request: Request) -> Response:
        """Answer a post."""
        token = request.headers.get(NOTIFICATION_TOKEN_HEADER, "")
        if self.token and not hmac.compare_digest(token.encode(), self.token.encode()):
            self.console.warn("warning: refused a notification without the token")
            return Response(status_code=401)
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                body = await _read_body(request)
        except (TimeoutError, ClientDisconnect):
            return Response(status_code=408)
        if body is None:
            return Response(status_code=413)
        event = _parse_event(body)
        if event is None:
            return Response(status_code=400)
        try:
            self.show(event)
        except BrokenPipeError as error:
            self.failure = error
            self.is_done.set()
        if self.remaining is not None:
            self.remaining -= 1
            if self.remaining <= 0:
                self.is_done.set()
        return Response(status_code=204)


async def _read_body(request: Request) -> bytes | None:
    """Return the body, unless it is too large."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_BODY_BYTES:
            return None
    return bytes(body)


def _parse_event(body: bytes) -> Json | None:
    try:
        event = json.loads(body)
        if isinstance(event, dict) and "kind" in event:
            # Of an agent of v0.3, which posts the task itself.
            event = stream_response_json(parse_stream_response(event))
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None
