"""A2A's JSON-RPC binding: one POST for each call, streams as server-sent events."""

import contextlib
import re
from urllib.parse import parse_qs

from starlette.types import Scope

from trunkline_bridge.errors import VERSION_NOT_SUPPORTED, WireError
from trunkline_bridge.inbound import params, tracing
from trunkline_bridge.inbound.caller import Caller, Callers, Identity, agent_at
from trunkline_bridge.inbound.cards import PROTOCOL_VERSION, RESUME_EXTENSION
from trunkline_bridge.inbound.envelope import (
    RequestId,
    failure,
    frame,
    read_call,
    readable_id,
    success,
)
from trunkline_bridge.inbound.exchange import Failure, HttpCall, Opening, Reply
from trunkline_bridge.inbound.http import (
    HTTP_LEVEL,
    READ_HERE_BYTES,
    Headers,
    check_content_type,
    read_json,
    read_value,
)
from trunkline_bridge.inbound.methods import OF_A_TASK, Methods, unknown_method
from trunkline_bridge.inbound.operations import Operations
from trunkline_bridge.rendering import EventRenderer
from trunkline_bridge.wire.v1_json import V1Shape

# Patches of a version don't count.
_VERSION = re.compile(r"([0-9]{1,4}\.[0-9]{1,4})(?:\.[0-9]{1,9})?", re.ASCII)


class JsonRpc:
    """JSON-RPC of all agents: the path says which one, the root is the default agent's."""

    def __init__(self, operations: Operations, callers: Callers) -> None:
        self._operations = operations
        self._methods = Methods(operations)
        self._callers = callers

    async def answer(self, call: HttpCall, reply: Reply) -> Opening | None:
        """Answer a call, or return the stream that is its answer."""
        scope, headers, body = call
        identity = await self._callers.identify(headers)
        _check_content_type(headers, body, reply)
        value = await read_json(body)
        request_id = reply.note = readable_id(value)
        request = read_call(value)
        _check_version(scope, headers)
        caller = self._caller(identity, scope, headers, reply)
        answer = self._methods.answers.get(request.method)
        stream = self._methods.streams.get(request.method)
        if answer is None and stream is None:
            raise unknown_method(request.method)
        tracing.name_request(request.method, caller.agent)
        # That an agent isn't there is said before its parameters are looked at.
        task_id = params.task_of(request.params) if request.method in OF_A_TASK else ""
        self._operations.check_agent(caller.agent, task_id)
        if stream is not None:
            reply.renderer = EventRenderer(V1Shape(), frame(request_id))
            return stream(caller, request.params)
        if answer is not None:
            await reply.send_json(success(request_id, await answer(caller, request.params)))
        return None

    def failure(self, error: WireError, reply: Reply) -> Failure:
        """Return an error; most have HTTP's 200, as the JSON-RPC binding wants it."""
        status = error.row.http_status if error.row in HTTP_LEVEL else 200
        request_id: RequestId = reply.note if isinstance(reply.note, str | int) else None
        return Failure(status, failure(request_id, error))

    def _caller(self, identity: Identity, scope: Scope, headers: Headers, reply: Reply) -> Caller:
        caller = self._callers.caller(
            identity, headers, agent=agent_at(scope["path"]) or "", version=PROTOCOL_VERSION
        )
        if RESUME_EXTENSION in caller.extensions:
            reply.headers["a2a-extensions"] = RESUME_EXTENSION
        return caller


def _check_content_type(headers: Headers, body: bytes, reply: Reply) -> None:
    """Refuse what isn't declared as JSON, under its id if it is JSON all the same."""
    try:
        check_content_type(headers)
    except WireError:
        if len(body) <= READ_HERE_BYTES:
            with contextlib.suppress(WireError):
                reply.note = readable_id(read_value(body))
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
