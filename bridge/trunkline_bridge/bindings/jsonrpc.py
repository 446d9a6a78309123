"""Which version of A2A a JSON-RPC call is in: what it says, else what its method is."""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from trunkline_bridge.bindings.http_handler import (
    ErrorResponse,
    EventsContext,
    HttpRequest,
    HttpResponse,
)
from trunkline_bridge.bindings.jsonrpc_envelope import (
    JsonRpcRequest,
    RequestId,
    encode_error,
    encode_result,
    error_object,
    event_frame,
    find_request_id,
    parse_request,
)
from trunkline_bridge.bindings.jsonrpc_version import JsonRpcVersion
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.edge import tracing
from trunkline_bridge.edge.caller import (
    Caller,
    CallerFactory,
    Identity,
    agent_in_path,
    extension_headers,
    resolve_agent,
)
from trunkline_bridge.edge.http import (
    HTTP_LEVEL_KINDS,
    check_content_type,
    parse_json,
    parse_json_body,
)
from trunkline_bridge.edge.json_decoder import INLINE_PARSE_BYTES
from trunkline_bridge.edge.version_header import parse_version, version_required
from trunkline_bridge.errors import METHOD_NOT_FOUND, WireError, to_wire_error
from trunkline_bridge.protocol import V0_1, V0_3, V1_0
from trunkline_bridge.streams.event_renderer import EventRenderer, render_error_event
from trunkline_bridge.versions.json_values import Json
from trunkline_bridge.versions.v0_1.jsonrpc_methods import JsonRpcV01
from trunkline_bridge.versions.v0_1.task_aliases import TaskAliases
from trunkline_bridge.versions.v0_3.jsonrpc_methods import JsonRpcV03
from trunkline_bridge.versions.v1_0.jsonrpc_methods import JsonRpcV10

_SHOWN_LENGTH = 100
# What a method of one version is called in another.
_METHOD_NAMES = (
    ("SendMessage", "message/send", "tasks/send"),
    ("SendStreamingMessage", "message/stream", "tasks/sendSubscribe"),
    ("GetTask", "tasks/get", "tasks/get"),
    ("ListTasks", "tasks/list", ""),
    ("CancelTask", "tasks/cancel", "tasks/cancel"),
    ("SubscribeToTask", "tasks/resubscribe", "tasks/resubscribe"),
    (
        "CreateTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/set",
        "tasks/pushNotification/set",
    ),
    (
        "GetTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/get",
        "tasks/pushNotification/get",
    ),
    ("ListTaskPushNotificationConfigs", "tasks/pushNotificationConfig/list", ""),
    ("DeleteTaskPushNotificationConfig", "tasks/pushNotificationConfig/delete", ""),
    ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard", ""),
)


class JsonRpcVersions:
    """The versions that are served over JSON-RPC, the newest one first."""

    def __init__(self, *dialects: JsonRpcVersion, is_strict: bool) -> None:
        """`is_strict`: a call that names no version is in v0.3, as the specification has it."""
        self.by_version = {one.version: one for one in dialects}
        self._is_strict = is_strict
        # Of two that have a method the later one counts.
        self._by_method = {
            method: dialect
            for dialect in sorted(dialects, key=lambda one: one.version)
            for method in (*dialect.unary, *dialect.streams)
        }

    def choose(self, version: str, method: str) -> JsonRpcVersion:
        """Return the version of a call; `version` is what it says, if anything.

        Raises:
            WireError: no version has the method, or not the one that the call is in.
        """
        dialect = self._by_method.get(method)
        if version:
            named = self.by_version[version]
            if not _has(named, method):
                raise _unknown_method(method, version, dialect)
            return named
        if dialect is None:
            raise _unknown_method(method, "", None)
        if self._is_strict and dialect.version != V0_3:
            raise version_required(self.by_version)
        return dialect

    def may_be_original(self, version: str, method: str) -> bool:
        """Whether a call of one task is of v0.1, or names no version and may be of v0.1 or v0.3."""
        is_open = version == V0_1 or not (version or self._is_strict)
        return is_open and _has(self.by_version[V0_1], method)


def _has(dialect: JsonRpcVersion, method: str) -> bool:
    return method in dialect.unary or method in dialect.streams


def _unknown_method(method: str, version: str, owner: JsonRpcVersion | None) -> WireError:
    """The error for a method that isn't there, with the one to take instead."""
    method = method[:_SHOWN_LENGTH]
    heir = _name_in(version or V1_0, method)
    if owner is not None:
        text = f"method {method!r} is of A2A {owner.version}, and the request says {version}"
        text += f": send {heir}" if heir else f": send A2A-Version: {owner.version}"
    elif heir:
        text = f"no version of A2A has the method {method!r} over JSON-RPC: send {heir}"
    else:
        text = f"no method {method!r}; A2A 1.0 has SendMessage, SendStreamingMessage and others"
    return WireError(METHOD_NOT_FOUND, text, {"method": method})


def _name_in(version: str, method: str) -> str:
    place = (V1_0, V0_3, V0_1).index(version)
    return next((names[place] for names in _METHOD_NAMES if method in names), "")


logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Asked:
    """What errors need of a request: its id, how its version says them, and in what."""

    request_id: RequestId = None
    error: Callable[[WireError], Json] = error_object
    as_event: bool = False


class JsonRpcBinding:
    """JSON-RPC of all agents: the path says which one, or at the root a tenant."""

    def __init__(
        self,
        operations: Operations,
        callers: CallerFactory,
        aliases: TaskAliases,
        *,
        is_strict: bool,
    ) -> None:
        self._operations = operations
        self._callers = callers
        self._aliases = aliases
        self._dialects = JsonRpcVersions(
            JsonRpcV10(operations),
            JsonRpcV03(operations),
            JsonRpcV01(operations, aliases),
            is_strict=is_strict,
        )

    async def respond(self, call: HttpRequest, reply: HttpResponse) -> EventsContext | None:
        """Answer a call, or return the stream that is its answer."""
        asked = reply.note = _Asked()
        identity = await self._callers.authenticate(call.headers)
        _check_content_type(call, asked)
        value = await parse_json_body(call.body)
        asked.request_id = find_request_id(value)
        request = parse_request(value)
        if request.is_notification:
            await self._perform(call, identity, request, reply)
            return None
        dialect, caller = await self._route(call, identity, request, asked)
        reply.headers |= extension_headers(caller, call.headers)
        stream = dialect.streams.get(request.method)
        if stream is not None:
            shape, opening = stream(caller, request.params)
            reply.renderer = EventRenderer(
                shape, event_frame(request.request_id, dialect.error_object)
            )
            return opening
        result = await dialect.unary[request.method](caller, request.params)
        await reply.send_json(encode_result(request.request_id, result))
        return None

    def failure(self, error: WireError, reply: HttpResponse) -> ErrorResponse:
        """Return an error; most have HTTP's 200, as the JSON-RPC binding wants it.

        Clients of older versions that asked for events read nothing else: it is an event for them.
        """
        status = error.kind.http_status if error.kind in HTTP_LEVEL_KINDS else 200
        asked = reply.note if isinstance(reply.note, _Asked) else _Asked()
        body = encode_error(asked.request_id, asked.error(error))
        if asked.as_event and status == 200:
            return ErrorResponse(status, render_error_event(body), "text/event-stream")
        return ErrorResponse(status, body)

    async def _route(
        self, call: HttpRequest, identity: Identity, request: JsonRpcRequest, asked: _Asked
    ) -> tuple[JsonRpcVersion, Caller]:
        """Find out in which version a request is, and for which agent, who must be there."""
        scope, headers, _ = call
        version = parse_version(headers, scope["query_string"], served=self._dialects.by_version)
        dialect = self._dialects.choose(version, request.method)
        caller = self._callers.build_caller(
            identity,
            headers,
            agent=_agent(scope["path"], request, dialect),
            version=dialect.version,
        )
        task_id = dialect.find_task_id(request.method, request.params)
        if task_id and self._dialects.may_be_original(version, request.method):
            known = await self._aliases.find(caller, task_id)
            if known and known != task_id:
                # It goes by an id that only a client of v0.1 can have chosen.
                dialect = self._dialects.by_version[V0_1]
                caller, task_id = caller._replace(version=V0_1), known
        asked.error = dialect.error_object
        accepted = headers.get(b"accept") or ""
        is_older_stream = caller.is_older and request.method in dialect.streams
        asked.as_event = is_older_stream and "text/event-stream" in accepted
        tracing.name_request_span(request.method, caller.agent)
        # That an agent isn't there is said before its parameters are looked at.
        self._operations.check_agent(caller.agent, task_id)
        return dialect, caller

    async def _perform(
        self, call: HttpRequest, identity: Identity, request: JsonRpcRequest, reply: HttpResponse
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
                await dialect.unary[method](caller, request.params)
        except Exception as error:
            said = to_wire_error(error)
            if said.kind in HTTP_LEVEL_KINDS:
                raise
            tracing.record_failure(said.kind.reason)
            logger.info("notification.failed", extra={"reason": said.kind.reason})
        await reply.send_nothing()


def _agent(path: str, request: JsonRpcRequest, dialect: JsonRpcVersion) -> str:
    """Return the agent that a request names, empty for the default one. WireError: it names two."""
    agent, params = agent_in_path(path) or "", request.params
    # Older versions have no tenants.
    if dialect.version == V1_0 and isinstance(params, dict) and "tenant" in params:
        tenant = params["tenant"]
        return resolve_agent(agent, [tenant]) if isinstance(tenant, str) else agent
    return agent


def _check_content_type(call: HttpRequest, asked: _Asked) -> None:
    """Refuse what isn't declared as JSON, under its id if it is JSON all the same."""
    try:
        check_content_type(call.headers)
    except WireError:
        if len(call.body) <= INLINE_PARSE_BYTES:
            with contextlib.suppress(WireError):
                asked.request_id = find_request_id(parse_json(call.body))
        raise
