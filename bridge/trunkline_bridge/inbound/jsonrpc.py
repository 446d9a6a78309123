"""A2A's JSON-RPC binding: one POST for each call, streams as server-sent events."""

import asyncio
import contextlib
import re
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from trunkline.client import Directory
from trunkline.errors import AgentNotFoundError, PeerUnavailableError
from trunkline_bridge.errors import VERSION_NOT_SUPPORTED, WireError, wire_error
from trunkline_bridge.inbound import params, tracing
from trunkline_bridge.inbound.cards import PROTOCOL_VERSION, RESUME_EXTENSION
from trunkline_bridge.inbound.envelope import (
    RequestId,
    failure,
    read_call,
    read_value,
    readable_id,
    success,
)
from trunkline_bridge.inbound.http import (
    HTTP_LEVEL,
    Body,
    Headers,
    check_content_type,
    send_json,
)
from trunkline_bridge.inbound.methods import OF_A_TASK, Methods, unknown_method
from trunkline_bridge.inbound.operations import Caller, Operations
from trunkline_bridge.inbound.streaming.heartbeats import Heartbeats
from trunkline_bridge.inbound.streaming.presence import Answers
from trunkline_bridge.inbound.streaming.sse import send_events
from trunkline_bridge.inbound.streaming.streams import WireEvents
from trunkline_bridge.render import EventRenderer
from trunkline_bridge.settings import BridgeSettings

# Patches of a version don't count.
_VERSION = re.compile(r"([0-9]{1,4}\.[0-9]{1,4})(?:\.[0-9]{1,9})?", re.ASCII)
_AGENTS = "/agents/"
_TIMEOUT = params.TIMEOUT_HEADER.lower().encode("ascii")
# Bodies up to here are read at once.
_READ_HERE_BYTES = 64 * 1024


class _Reply:
    """The response to one request: what goes on it, and whether it has begun."""

    __slots__ = ("_send", "has_begun", "headers", "is_over", "is_stream", "request_id")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.request_id: RequestId = None
        self.headers: dict[str, str] = {}
        self.has_begun = False
        self.is_stream = False
        self.is_over = False

    async def send(self, message: Message) -> None:
        if not self.has_begun:
            self.has_begun = True
        elif not message.get("more_body", False):
            self.is_over = True
        await self._send(message)


class JsonRpc:
    """The ASGI endpoint of all agents: the path says which one, the root is the default agent's."""

    def __init__(
        self, directory: Directory, operations: Operations, settings: BridgeSettings
    ) -> None:
        self._directory = directory
        self._methods = Methods(operations)
        self._settings = settings
        self._answers = Answers()
        self._beats = Heartbeats(settings.heartbeat_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST."""
        reply = _Reply(send)
        headers = Headers(scope)
        body = Body(headers, receive, limit_bytes=self._settings.body_limit_bytes)
        try:
            content = await body.read()
        except WireError as error:
            await self._refuse(body, reply, error)
        except ClientDisconnect:
            return
        else:
            work = self._serve(scope, headers, content, reply)
            del headers, body, content
            await self._answers.give(scope, receive, work, say_cut=partial(_say_cut, reply))

    @property
    def open_answers(self) -> int:
        """How many calls are being answered."""
        return len(self._answers)

    def cut(self) -> None:
        """End all answers that are under way, each with an error that says how to go on."""
        self._answers.cut()

    async def _refuse(self, body: Body, reply: _Reply, error: WireError) -> None:
        """Answer before the body is read, and close the connection."""
        reply.headers["connection"] = "close"
        await _fail(reply, error, is_open=True)
        # Closed at once, the connection would be reset, and the client might never read this.
        await body.drain()
        await reply.send({"type": "http.response.body", "body": b""})

    async def _serve(self, scope: Scope, headers: Headers, body: bytes, reply: _Reply) -> None:
        try:
            opening = await self._answer(scope, headers, body, reply)
            # A stream may last for days: what it was asked with is not kept so long.
            del scope, headers, body
            if opening is not None:
                async with opening as events:
                    reply.is_stream = True
                    await send_events(
                        reply.send,
                        events,
                        EventRenderer(reply.request_id),
                        beats=self._beats,
                        headers=reply.headers,
                    )
        except Exception as error:
            if reply.has_begun:
                raise
            await _fail(reply, error)

    async def _answer(
        self, scope: Scope, headers: Headers, body: bytes, reply: _Reply
    ) -> AbstractAsyncContextManager[WireEvents] | None:
        """Answer a call, or return the stream that is its answer."""
        _check_content_type(headers, body, reply)
        value = await _read(body)
        reply.request_id = readable_id(value)
        call = read_call(value)
        _check_version(scope, headers)
        caller = self._caller(scope, headers, reply)
        answer = self._methods.answers.get(call.method)
        stream = self._methods.streams.get(call.method)
        if answer is None and stream is None:
            raise unknown_method(call.method)
        tracing.name_request(call.method, caller.agent)
        # That an agent isn't there is said before its parameters are looked at.
        self._check_agent(caller.agent, call.method, call.params)
        if stream is not None:
            return stream(caller, call.params)
        if answer is not None:
            said = success(reply.request_id, await answer(caller, call.params))
            await send_json(reply.send, said, headers=reply.headers)
        return None

    def _check_agent(self, agent: str, method: str, given: object) -> None:
        """See that the agent is there; tasks outlive it, on whatever host took them over."""
        try:
            self._directory.agent(agent)
        except AgentNotFoundError:
            task_id = params.task_of(given) if method in OF_A_TASK else ""
            if not self._directory.knows_host_of(task_id):
                raise

    def _caller(self, scope: Scope, headers: Headers, reply: _Reply) -> Caller:
        extensions = _extensions(headers)
        if RESUME_EXTENSION in extensions:
            reply.headers["a2a-extensions"] = RESUME_EXTENSION
        return Caller(
            agent=agent_at(scope["path"]) or self._settings.default_agent,
            extensions=extensions,
            deadline=params.read_deadline(headers.get(_TIMEOUT)),
            last_event_id=headers.get(b"last-event-id"),
        )


def agent_at(path: str) -> str | None:
    """Return the agent whose address a path is: empty for the default one's, None for no agent's.

    `/agents/NAME` and `/`; a slash more at the end changes nothing.
    """
    if path == "/":
        return ""
    if not path.startswith(_AGENTS):
        return None
    name = path[len(_AGENTS) :].removesuffix("/")
    return name if name and "/" not in name else None


async def _say_cut(reply: _Reply) -> None:
    """Say that this process stops, in the place of the answer or as the last event of a stream."""
    problem = "it is shutting down; ask again, a stream with the Last-Event-ID that came last"
    error = PeerUnavailableError("the bridge", problem)
    if not reply.has_begun:
        await _fail(reply, error)
    elif reply.is_stream and not reply.is_over:
        said = wire_error(error)
        tracing.mark_failed(said.row.reason)
        last = EventRenderer(reply.request_id).render_error(said)
        await reply.send({"type": "http.response.body", "body": last})


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


def _check_content_type(headers: Headers, body: bytes, reply: _Reply) -> None:
    """Refuse what isn't declared as JSON, under its id if it is JSON all the same."""
    try:
        check_content_type(headers)
    except WireError:
        if len(body) <= _READ_HERE_BYTES:
            with contextlib.suppress(WireError):
                reply.request_id = readable_id(read_value(body))
        raise


def _check_version(scope: Scope, headers: Headers) -> None:
    """Refuse versions that aren't served; a request that names none is told by its method."""
    given = headers.get(b"a2a-version") or _queried_version(scope["query_string"])
    if given == PROTOCOL_VERSION or not given.strip():
        return
    read = _VERSION.fullmatch(given.strip())
    if read is None or read[1] != PROTOCOL_VERSION:
        text = f"A2A version {given[:20]!r} is not supported here; send A2A-Version: 1.0"
        raise WireError(VERSION_NOT_SUPPORTED, text, {"supportedVersions": PROTOCOL_VERSION})


def _queried_version(query: bytes) -> str:
    return parse_qs(query.decode("latin-1")).get("A2A-Version", [""])[-1] if query else ""


def _extensions(headers: Headers) -> frozenset[str]:
    fields = (headers.get(b"a2a-extensions"), headers.get(b"x-a2a-extensions"))
    if fields == (None, None):
        return frozenset()
    uris = ",".join(field for field in fields if field).split(",")
    return frozenset(uri.strip() for uri in uris if uri.strip())
