"""A2A's JSON-RPC binding: one POST for each call, streams as server-sent events."""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from trunkline_bridge.errors import WireError, wire_error
from trunkline_bridge.inbound import tracing
from trunkline_bridge.inbound.caller import (
    Caller,
    Callers,
    Identity,
    activated,
    agent_at,
    agent_named,
)
from trunkline_bridge.inbound.exchange import Failure, HttpCall, Opening, Reply
from trunkline_bridge.inbound.http import (
    HTTP_LEVEL,
    check_content_type,
    read_json,
    read_value,
)
from trunkline_bridge.inbound.jsonrpc.dialects.aliases import Aliases
from trunkline_bridge.inbound.jsonrpc.dialects.choice import Dialects
from trunkline_bridge.inbound.jsonrpc.dialects.dialect import Dialect
from trunkline_bridge.inbound.jsonrpc.dialects.v0_1 import V01
from trunkline_bridge.inbound.jsonrpc.dialects.v0_3 import V03
from trunkline_bridge.inbound.jsonrpc.dialects.v1_0 import V10
from trunkline_bridge.inbound.jsonrpc.envelope import (
    Call,
    RequestId,
    error_object,
    failure,
    frame,
    read_call,
    readable_id,
    success,
)
from trunkline_bridge.inbound.operations import Operations
from trunkline_bridge.inbound.reading.limits import READ_HERE_BYTES
from trunkline_bridge.inbound.versions import read_version
from trunkline_bridge.rendering import EventRenderer, error_event
from trunkline_bridge.wire.json_values import Json
from trunkline_bridge.wire.versions import V0_1, V1_0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Asked:
    """What errors need of a request: its id, how its version says them, and in what."""

    request_id: RequestId = None
    error: Callable[[WireError], Json] = error_object
    as_event: bool = False


class JsonRpc:
    """JSON-RPC of all agents: the path says which one, or at the root a tenant."""

    def __init__(
        self, operations: Operations, callers: Callers, aliases: Aliases, *, is_strict: bool
    ) -> None:
        self._operations = operations
        self._callers = callers
        self._aliases = aliases
        self._dialects = Dialects(
            V10(operations), V03(operations), V01(operations, aliases), is_strict=is_strict
        )

    async def answer(self, call: HttpCall, reply: Reply) -> Opening | None:
        """Answer a call, or return the stream that is its answer."""
        asked = reply.note = _Asked()
        identity = await self._callers.identify(call.headers)
        _check_content_type(call, asked)
        value = await read_json(call.body)
        asked.request_id = readable_id(value)
        request = read_call(value)
        if request.is_notification:
            await self._perform(call, identity, request, reply)
            return None
        dialect, caller = await self._route(call, identity, request, asked)
        reply.headers |= activated(caller, call.headers)
        stream = dialect.streams.get(request.method)
        if stream is not None:
            shape, opening = stream(caller, request.params)
            reply.renderer = EventRenderer(shape, frame(request.request_id, dialect.error))
            return opening
        result = await dialect.answers[request.method](caller, request.params)
        await reply.send_json(success(request.request_id, result))
        return None

    def failure(self, error: WireError, reply: Reply) -> Failure:
        """Return an error; most have HTTP's 200, as the JSON-RPC binding wants it.

        Clients of older versions that asked for events read nothing else: it is an event for them.
        """
        status = error.row.http_status if error.row in HTTP_LEVEL else 200
        asked = reply.note if isinstance(reply.note, _Asked) else _Asked()
        body = failure(asked.request_id, asked.error(error))
        if asked.as_event and status == 200:
            return Failure(status, error_event(body), "text/event-stream")
        return Failure(status, body)

    async def _route(
        self, call: HttpCall, identity: Identity, request: Call, asked: _Asked
    ) -> tuple[Dialect, Caller]:
        """Find out in which version a request is, and for which agent, who must be there."""
        scope, headers, _ = call
        version = read_version(headers, scope["query_string"], served=self._dialects.by_version)
        dialect = self._dialects.choose(version, request.method)
        caller = self._callers.caller(
            identity,
            headers,
            agent=_agent(scope["path"], request, dialect),
            version=dialect.version,
        )
        task_id = dialect.task_of(request.method, request.params)
        if task_id and self._dialects.may_be_original(version, request.method):
            known = await self._aliases.find(caller, task_id)
            if known and known != task_id:
                # It goes by an id that only a client of v0.1 can have chosen.
                dialect = self._dialects.by_version[V0_1]
                caller, task_id = caller._replace(version=V0_1), known
        asked.error = dialect.error
        accepted = headers.get(b"accept") or ""
        is_older_stream = caller.is_older and request.method in dialect.streams
        asked.as_event = is_older_stream and "text/event-stream" in accepted
        tracing.name_request(request.method, caller.agent)
        # That an agent isn't there is said before its parameters are looked at.
        self._operations.check_agent(caller.agent, task_id)
        return dialect, caller

    async def _perform(
        self, call: HttpCall, identity: Identity, request: Call, reply: Reply
    ) -> None:
        """Do what a notification asks for; nobody wants to know what comes of it.

        A message is given, and its turn goes on by itself. Only errors of HTTP itself are answered.
        """
        try:
            dialect, caller = await self._route(call, identity, request, _Asked())
            method = dialect.sends.get(request.method, request.method)
            if method in dialect.streams:
                _, opening = dialect.streams[method](caller, request.params)
                async with opening:
                    pass
            else:
                await dialect.answers[method](caller, request.params)
        except Exception as error:
            said = wire_error(error)
            if said.row in HTTP_LEVEL:
                raise
            tracing.mark_failed(said.row.reason)
            logger.info("notification.failed", extra={"reason": said.row.reason})
        await reply.send_nothing()


def _agent(path: str, request: Call, dialect: Dialect) -> str:
    """Return the agent that a request names, empty for the default one. WireError: it names two."""
    agent, params = agent_at(path) or "", request.params
    # Older versions have no tenants.
    if dialect.version == V1_0 and isinstance(params, dict) and "tenant" in params:
        tenant = params["tenant"]
        return agent_named(agent, [tenant]) if isinstance(tenant, str) else agent
    return agent


def _check_content_type(call: HttpCall, asked: _Asked) -> None:
    """Refuse what isn't declared as JSON, under its id if it is JSON all the same."""
    try:
        check_content_type(call.headers)
    except WireError:
        if len(call.body) <= READ_HERE_BYTES:
            with contextlib.suppress(WireError):
                asked.request_id = readable_id(read_value(call.body))
        raise
