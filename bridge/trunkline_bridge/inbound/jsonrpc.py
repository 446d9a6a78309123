"""A2A's JSON-RPC binding: one POST for each call, streams as server-sent events."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from trunkline.client import Directory
from trunkline_bridge.errors import VERSION_NOT_SUPPORTED, WireError, wire_error
from trunkline_bridge.inbound import params, tracing
from trunkline_bridge.inbound.cards import PROTOCOL_VERSION, RESUME_EXTENSION
from trunkline_bridge.inbound.envelope import (
    Call,
    RequestId,
    error_object,
    failure,
    read_call,
    read_value,
    readable_id,
    success,
)
from trunkline_bridge.inbound.http import (
    HTTP_LEVEL,
    Body,
    check_content_type,
    send_json,
    while_connected,
)
from trunkline_bridge.inbound.methods import Methods, unknown_method
from trunkline_bridge.inbound.operations import Caller, Operations, WireEvents
from trunkline_bridge.inbound.sse import send_events
from trunkline_bridge.render import EventRenderer
from trunkline_bridge.settings import BridgeSettings

# Patches of a version don't count.
_VERSION = re.compile(r"([0-9]{1,4}\.[0-9]{1,4})(?:\.[0-9]{1,9})?", re.ASCII)
# A write is cut where it passes this: rendered, a frame of the mesh is up to thirty times its size.
_WRITE_LENGTH = 64 * 1024
# Bodies up to here are read at once.
_READ_HERE_BYTES = 64 * 1024


class _Reply:
    """The response to one request: what goes on it, and whether it has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.request_id: RequestId = None
        self.headers: dict[str, str] = {}
        self.has_begun = False

    async def send(self, message: Message) -> None:
        self.has_begun = True
        await self._send(message)


class JsonRpc:
    """The ASGI endpoint of all agents: the path says which one, the root is the default agent's."""

    def __init__(
        self, directory: Directory, operations: Operations, settings: BridgeSettings
    ) -> None:
        self._directory = directory
        self._methods = Methods(operations)
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST."""
        request = Request(scope, receive)
        reply = _Reply(send)
        body = Body(request, limit_bytes=self._settings.body_limit_bytes)
        try:
            content = await body.read()
        except WireError as error:
            await self._refuse(body, reply, error)
        except ClientDisconnect:
            return
        else:
            await while_connected(receive, self._serve(request, content, reply))

    async def _refuse(self, body: Body, reply: _Reply, error: WireError) -> None:
        """Answer before the body is read, and close the connection."""
        reply.headers["connection"] = "close"
        await _fail(reply, error, is_open=True)
        # Closed at once, the connection would be reset, and the client might never read this.
        await body.drain()
        await reply.send({"type": "http.response.body", "body": b""})

    async def _serve(self, request: Request, body: bytes, reply: _Reply) -> None:
        try:
            _check_content_type(request, body, reply)
            value = await _read(body)
            reply.request_id = readable_id(value)
            call = read_call(value)
            _check_version(request)
            await self._answer(self._caller(request, reply), call, reply)
        except Exception as error:
            if reply.has_begun:
                raise
            await _fail(reply, error)

    def _caller(self, request: Request, reply: _Reply) -> Caller:
        extensions = _extensions(request)
        if RESUME_EXTENSION in extensions:
            reply.headers["a2a-extensions"] = RESUME_EXTENSION
        return Caller(
            agent=request.path_params.get("agent", self._settings.default_agent),
            extensions=extensions,
            deadline=params.read_deadline(request.headers.get(params.TIMEOUT_HEADER)),
            last_event_id=request.headers.get("last-event-id"),
        )

    async def _answer(self, caller: Caller, call: Call, reply: _Reply) -> None:
        answer = self._methods.answers.get(call.method)
        stream = self._methods.streams.get(call.method)
        if answer is None and stream is None:
            raise unknown_method(call.method)
        tracing.name_request(call.method, caller.agent)
        # That an agent isn't there is said before its parameters are looked at.
        self._directory.agent(caller.agent)
        if answer is not None:
            body = success(reply.request_id, await answer(caller, call.params))
            await send_json(reply.send, body, headers=reply.headers)
        elif stream is not None:
            async with stream(caller, call.params) as events:
                await self._stream(events, reply)

    async def _stream(self, events: WireEvents, reply: _Reply) -> None:
        async with aclosing(_writes(events, EventRenderer(reply.request_id))) as writes:
            await send_events(
                reply.send, writes, heartbeat_s=self._settings.heartbeat_s, headers=reply.headers
            )


async def _writes(events: WireEvents, renderer: EventRenderer) -> AsyncGenerator[bytes, None]:
    """Render a stream; what goes wrong on the way is its last event."""
    try:
        async for ready in events:
            pieces: list[str] = []
            length = 0
            for event in ready:
                pieces.append(renderer.render(event))
                length += len(pieces[-1])
                if length >= _WRITE_LENGTH:
                    yield "".join(pieces).encode("utf-8")
                    pieces, length = [], 0
            if pieces:
                yield "".join(pieces).encode("utf-8")
    except Exception as error:  # noqa: BLE001  the response has begun: an event is all that is left
        said = wire_error(error)
        tracing.mark_failed(said.row.reason)
        yield renderer.render_error(error_object(said)).encode("utf-8")


async def _fail(reply: _Reply, error: Exception, *, is_open: bool = False) -> None:
    """Answer with an error; most have HTTP's 200, as the JSON-RPC binding wants it."""
    said = wire_error(error)
    tracing.mark_failed(said.row.reason)
    headers = dict(reply.headers)
    if said.retry_after_s:
        headers["retry-after"] = said.retry_after_s
    await send_json(
        reply.send,
        failure(reply.request_id, said),
        status=said.row.http_status if said.row in HTTP_LEVEL else 200,
        headers=headers,
        is_open=is_open,
    )


async def _read(body: bytes) -> Any:  # noqa: ANN401  any JSON value
    """Read a large body in a thread: it may take a second, and others are being served."""
    if len(body) <= _READ_HERE_BYTES:
        return read_value(body)
    return await asyncio.to_thread(read_value, body)


def _check_content_type(request: Request, body: bytes, reply: _Reply) -> None:
    """Refuse what isn't declared as JSON, under its id if it is JSON all the same."""
    try:
        check_content_type(request)
    except WireError:
        if len(body) <= _READ_HERE_BYTES:
            with contextlib.suppress(WireError):
                reply.request_id = readable_id(read_value(body))
        raise


def _check_version(request: Request) -> None:
    """Refuse versions that aren't served; a request that names none is told by its method."""
    given = request.headers.get("a2a-version") or request.query_params.get("A2A-Version") or ""
    if not given.strip():
        return
    read = _VERSION.fullmatch(given.strip())
    if read is None or read[1] != PROTOCOL_VERSION:
        text = f"A2A version {given[:20]!r} is not supported here; send A2A-Version: 1.0"
        raise WireError(VERSION_NOT_SUPPORTED, text, {"supportedVersions": PROTOCOL_VERSION})


def _extensions(request: Request) -> frozenset[str]:
    fields = request.headers.getlist("a2a-extensions") + request.headers.getlist("x-a2a-extensions")
    return frozenset(uri.strip() for field in fields for uri in field.split(",") if uri.strip())
