"""A2A's JSON-RPC binding: one POST per call; streams are server-sent events."""

import contextlib
import logging

from trunkline.a2a_wire.errors import METHOD_NOT_FOUND, WireError, to_wire_error
from trunkline.a2a_wire.operations import OPERATIONS
from trunkline.a2a_wire.protocol import CARD_PATH, V0_1, V0_3, V1_0
from trunkline.errors import LimitExceededError
from trunkline_bridge.a2a.operations.operation_table import StreamMethod, UnaryMethod
from trunkline_bridge.a2a.operations.operations import Operations
from trunkline_bridge.a2a.streams.event_renderer import EventRenderer
from trunkline_bridge.a2a.versions.jsonrpc_envelope import (
    JsonRpcRequest,
    RequestId,
    encode_error,
    encode_result,
    error_object,
    event_frame,
    find_request_id,
    parse_envelope,
)
from trunkline_bridge.a2a.versions.jsonrpc_version import JsonRpcVersion
from trunkline_bridge.a2a.versions.v0_1 import jsonrpc_methods as v0_1
from trunkline_bridge.a2a.versions.v0_1.task_aliases import TaskAliases
from trunkline_bridge.a2a.versions.v0_3 import jsonrpc_methods as v0_3
from trunkline_bridge.a2a.versions.v1_0 import json_methods as v1_0
from trunkline_bridge.callers.caller import (
    Caller,
    CallerFactory,
    CallerIdentity,
    extension_headers,
    resolve_agent,
)
from trunkline_bridge.callers.version_header import parse_version, version_required
from trunkline_bridge.http import tracing
from trunkline_bridge.http.handler import (
    BufferedResponse,
    HttpRequest,
    Response,
)
from trunkline_bridge.http.json_decoder import INLINE_PARSE_BYTES, decode_json, parse_json_body
from trunkline_bridge.http.messages import (
    HTTP_LEVEL_KINDS,
    RequestHeaders,
    check_content_type,
)
from trunkline_bridge.http.sse import EventStreamResponse, render_error_event

logger = logging.getLogger(__name__)

_SHOWN_LENGTH = 100


class JsonRpcVersions:
    """The versions that are served over JSON-RPC, and the choice of one for each request."""

    def __init__(self, *versions: JsonRpcVersion, is_strict: bool) -> None:
        """With `is_strict`, a request without a version is in v0.3 (A2A v1.0, §3.6)."""
        self.by_version = {version.version: version for version in versions}
        self._is_strict = is_strict
        # If two versions share a method, the newer one wins.
        self._by_method = {
            method: version
            for version in sorted(versions, key=lambda version: version.version)
            for method in version.methods
        }

    def choose(self, version: str, method: str) -> JsonRpcVersion:
        """Return the version of a request; `version` is its version header, or empty.

        Without a header, it is the newest version that has the method.

        Raises:
            WireError: no version has the method, or the header's version lacks it.
        """
        newest = self._by_method.get(method)
        if version:
            requested = self.by_version[version]
            if method not in requested.methods:
                raise _unknown_method(method, version, newest)
            return requested
        if newest is None:
            raise _unknown_method(method, "", None)
        if self._is_strict and newest.version != V0_3:
            raise version_required(self.by_version)
        return newest

    def may_be_v0_1(self, version: str, method: str) -> bool:
        """Return whether v0.1 has the method and `version` is that or, unless strict, empty."""
        admits_v0_1 = version == V0_1 or not (version or self._is_strict)
        return admits_v0_1 and method in self.by_version[V0_1].methods


def _unknown_method(method: str, version: str, owner: JsonRpcVersion | None) -> WireError:
    """Return the error for an unknown method; it names the method to use instead."""
    method = method[:_SHOWN_LENGTH]
    replacement = _translate_method(version or V1_0, method)
    if owner is not None:
        text = f"method {method!r} is of A2A {owner.version}, but the request is A2A {version}"
        text += f": send {replacement or f'A2A-Version: {owner.version}'}"
    elif replacement:
        text = f"no version of A2A has the method {method!r} over JSON-RPC: send {replacement}"
    else:
        text = f"no method {method!r}; A2A 1.0 has SendMessage, SendStreamingMessage and others"
    return WireError(METHOD_NOT_FOUND, text, {"method": method})


def _translate_method(version: str, method: str) -> str:
    index = (V1_0, V0_3, V0_1).index(version)
    names = (operation.method_names for operation in OPERATIONS)
    return next((found[index] for found in names if method in found), "")


class JsonRpcBinding:
    """JSON-RPC for all agents. The path names the agent; at `/`, a tenant may name it."""

    methods: tuple[str, ...] = ("POST",)
    method_hint = f" with a JSON-RPC request; the agent's card is at {CARD_PATH} below this path"

    def __init__(
        self,
        operations: Operations,
        callers: CallerFactory,
        aliases: TaskAliases,
        *,
        is_strict: bool,
    ) -> None:
        self.operations = operations
        self.callers = callers
        self.aliases = aliases
        self.versions = JsonRpcVersions(
            v1_0.JSONRPC,
            v0_3.JSONRPC,
            v0_1.build_jsonrpc(aliases),
            is_strict=is_strict,
        )

    def new_call(self) -> "JsonRpcCall":
        """Return an object for one request."""
        return JsonRpcCall(self)


class JsonRpcCall:
    """One request over JSON-RPC.

    It stores the id, the version and the format of the request for the response to an error.
    """

    __slots__ = ("_as_event", "_binding", "_headers", "_request_id", "_version")

    def __init__(self, binding: JsonRpcBinding) -> None:
        self._binding = binding
        self._headers: dict[str, str] = {}
        self._request_id: RequestId = None
        self._version: JsonRpcVersion | None = None
        self._as_event = False

    async def respond(self, request: HttpRequest) -> Response:
        """Return the response."""
        try:
            identity = await self._binding.callers.authenticate(request.headers)
        except LimitExceededError:
            self._read_request_id(request)
            raise
        self._check_content_type(request)
        value = await parse_json_body(request.body)
        self._request_id = find_request_id(value)
        call = parse_envelope(value)
        if call.is_notification:
            return await self._notify(request, identity, call)
        version, method, caller = await self._resolve(request, identity, call)
        self._headers = extension_headers(caller, request.headers)
        operations = self._binding.operations
        if isinstance(method, UnaryMethod):
            result = await method.call(operations, caller, call.params)
            return BufferedResponse(encode_result(call.request_id, result), headers=self._headers)
        writer, events = method.open(operations, caller, call.params)
        # SDKs of v1.0 raise a generic exception for an error event in a stream of v0.3.
        error_event = "" if caller.is_older else "error"
        frame = event_frame(call.request_id, version.error_object, error_event=error_event)
        renderer = EventRenderer(writer, frame)
        return EventStreamResponse(events, renderer, self._headers)

    def error_response(self, error: WireError) -> BufferedResponse:
        """Return an error as JSON, with HTTP status 200 unless it is one of HTTP_LEVEL_KINDS.

        A client that reads only events gets an event, see `_reads_only_events`.
        """
        status = error.kind.http_status if error.kind in HTTP_LEVEL_KINDS else 200
        render = self._version.error_object if self._version else error_object
        body = encode_error(self._request_id, render(error))
        if self._as_event and status == 200:
            body = render_error_event(body, event_type="")
            return BufferedResponse(body, status, "text/event-stream", self._headers)
        return BufferedResponse(body, status, headers=self._headers)

    async def _resolve(
        self, request: HttpRequest, identity: CallerIdentity, call: JsonRpcRequest
    ) -> tuple[JsonRpcVersion, UnaryMethod | StreamMethod, Caller]:
        """Return the version, the method and the caller of a request that the caller may make.

        Raises:
            TrunklineError, WireError: the version or a service parameter is invalid, the agent does
                not exist, or the caller may not use the method.
        """
        binding, headers = self._binding, request.headers
        versions = binding.versions
        named = parse_version(headers, request.scope["query_string"], served=versions.by_version)
        version = versions.choose(named, call.method)
        agent = request.scope["path_params"].get("agent", "")
        caller = binding.callers.build_caller(
            identity, headers, agent=_find_agent(agent, call, version), version=version.version
        )
        method = version.methods[call.method]
        task_id = method.find_task_id(call.params)
        if task_id and versions.may_be_v0_1(named, call.method):
            mesh_id = await binding.aliases.find(caller, task_id)
            if mesh_id and mesh_id != task_id:
                # Only a client of v0.1 can have chosen this id.
                version = versions.by_version[V0_1]
                method = version.methods[call.method]
                caller, task_id = caller._replace(version=V0_1), mesh_id
        if not call.is_notification:
            self._version = version
            is_older_stream = caller.is_older and isinstance(method, StreamMethod)
            self._as_event = is_older_stream and not named and _reads_only_events(headers)
        tracing.name_request_span(call.method, caller.agent)
        # Report a missing permission or agent before any error in the parameters.
        await binding.operations.authorizer.check(caller, method.operation.permission, task_id)
        return version, method, caller

    async def _notify(
        self, request: HttpRequest, identity: CallerIdentity, call: JsonRpcRequest
    ) -> BufferedResponse:
        """Execute a request without an id, to which JSON-RPC has no response (JSON-RPC 2.0, 4.1).

        A message is submitted without waiting for its turn. Only HTTP_LEVEL_KINDS are raised.
        """
        try:
            version, method, caller = await self._resolve(request, identity, call)
            method = version.find_streaming(method)
            operations = self._binding.operations
            if isinstance(method, UnaryMethod):
                await method.call(operations, caller, call.params)
            else:
                _, events = method.open(operations, caller, call.params)
                async with events:
                    pass
        except Exception as error:
            wire_error = to_wire_error(error)
            if wire_error.kind in HTTP_LEVEL_KINDS:
                raise
            tracing.record_failure(wire_error.kind.reason)
            logger.info("notification.failed", extra={"reason": wire_error.kind.reason})
        return BufferedResponse(status=204, content_type="")

    def _check_content_type(self, request: HttpRequest) -> None:
        """Reject a body that is not declared as JSON. If the body is JSON, the error has its id."""
        try:
            check_content_type(request.headers)
        except WireError:
            self._read_request_id(request)
            raise

    def _read_request_id(self, request: HttpRequest) -> None:
        """Read the id of a refused request, unless its body is large."""
        if len(request.body) <= INLINE_PARSE_BYTES:
            with contextlib.suppress(ValueError):
                self._request_id = find_request_id(decode_json(request.body))


def _reads_only_events(headers: RequestHeaders) -> bool:
    """Return whether a client names events as the type that it accepts, and does not name JSON.

    The SDKs of v0.3 and before report only the content type of a JSON response to a request for a
    stream, and lose the error in it. They name no version; the SDKs of v1.0 do, and read JSON.
    """
    accepted = (headers.get(b"accept") or "").split(",")
    media_types = {range_.partition(";")[0].strip() for range_ in accepted}
    return "text/event-stream" in media_types and "application/json" not in media_types


def _find_agent(agent: str, call: JsonRpcRequest, version: JsonRpcVersion) -> str:
    """Return the agent of a request. An empty text is the default agent.

    Raises:
        WireError: the path and the tenant name different agents.
    """
    params = call.params
    # Older versions have no tenants.
    if version.version == V1_0 and isinstance(params, dict) and "tenant" in params:
        tenant = params["tenant"]
        return resolve_agent(agent, [tenant]) if isinstance(tenant, str) else agent
    return agent
