"""A2A's HTTP+JSON binding, in both of its versions."""

from collections.abc import Mapping
from typing import Any, Protocol

from starlette.types import Scope

from trunkline_bridge.bindings import rest_request as paths
from trunkline_bridge.bindings.http_handler import (
    ErrorResponse,
    EventsContext,
    HttpRequest,
    HttpResponse,
)
from trunkline_bridge.bindings.jsonrpc_version import StreamOpener
from trunkline_bridge.bindings.operation_table import UnaryMethod
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.bindings.rest_request import Place, read_body, read_query
from trunkline_bridge.edge import tracing
from trunkline_bridge.edge.caller import CallerFactory, extension_headers, resolve_agent
from trunkline_bridge.edge.http import METHOD_NOT_ALLOWED
from trunkline_bridge.edge.version_header import check_version
from trunkline_bridge.errors import WireError
from trunkline_bridge.protocol import V0_3, V1_0
from trunkline_bridge.streams.event_renderer import EventFrame, EventRenderer
from trunkline_bridge.versions.json_values import Json, dumps
from trunkline_bridge.versions.v0_3.rest_methods import RestV03
from trunkline_bridge.versions.v1_0.rest_methods import RestV1

_SHOWN_LENGTH = 100


class RestVersion(Protocol):
    """A version of A2A over HTTP+JSON: operations by name, and how they are asked and answered."""

    media_type: str
    unary: Mapping[str, UnaryMethod]
    streams: Mapping[str, StreamOpener]

    def fields(self, operation: str) -> Any:  # noqa: ANN401  descriptors have no common type
        """Return the fields that a query may have."""
        ...

    def parameters(self, operation: str, given: Json, place: Place) -> Json:
        """Return the parameters, with those that the path names. WireError: they contradict it."""
        ...

    def tenant(self, given: Json) -> str:
        """Return the tenant that parameters name."""
        ...

    def error_body(self, error: WireError) -> Json:
        """Return the body of an error."""
        ...


class RestBinding:
    """HTTP+JSON of all agents."""

    def __init__(self, operations: Operations, callers: CallerFactory, *, is_strict: bool) -> None:
        """`is_strict`: a request that names no version is in v0.3, as the specification has it."""
        self.operations = operations
        self.callers = callers
        self.is_strict = is_strict
        self.dialects: Mapping[str, RestVersion] = {
            V1_0: RestV1(operations),
            V0_3: RestV03(operations),
        }

    def at(self, scope: Scope) -> "RestResource | None":
        """Return the binding as it is at a request's path; None: no operation is there."""
        place = paths.find_place(scope)
        if place is None:
            return None
        return RestResource(self, place, self.dialects[place.version])


class RestResource:
    """What a path of HTTP+JSON answers."""

    __slots__ = ("_dialect", "_place", "_rest")

    def __init__(self, rest: RestBinding, place: Place, dialect: RestVersion) -> None:
        self._rest = rest
        self._place = place
        self._dialect = dialect

    async def respond(self, call: HttpRequest, reply: HttpResponse) -> EventsContext | None:
        """Answer a call, or return the stream that is its answer."""
        method = call.scope["method"]
        if method == "OPTIONS":
            reply.headers["allow"] = self._allowed()
            await reply.send_nothing()
            return None
        operation = self._operation(method, reply)
        dialect = self._dialect
        identity = await self._rest.callers.authenticate(call.headers)
        check_version(
            call.headers,
            call.scope["query_string"],
            version=self._place.version,
            is_strict=self._rest.is_strict,
        )
        given = await self._given(operation, call)
        tenants = (self._place.tenant, dialect.tenant(given))
        caller = self._rest.callers.build_caller(
            identity,
            call.headers,
            agent=resolve_agent(self._place.agent, tenants),
            version=self._place.version,
        )
        tracing.name_request_span(operation, caller.agent)
        reply.headers |= extension_headers(caller, call.headers)
        # That an agent isn't there is said before the parameters are looked at.
        self._rest.operations.check_agent(caller.agent, self._place.task_id)
        parameters = dialect.parameters(operation, given, self._place)
        stream = dialect.streams.get(operation)
        if stream is not None:
            shape, opening = stream(caller, parameters)
            reply.renderer = EventRenderer(shape, EventFrame("", "", dialect.error_body))
            return opening
        result = await dialect.unary[operation](caller, parameters)
        # What is deleted leaves nothing to say.
        body = dumps({} if result is None else result).encode("utf-8")
        await reply.send_json(body, content_type=dialect.media_type)
        return None

    def failure(self, error: WireError, _reply: HttpResponse) -> ErrorResponse:
        """Return an error, under its own status."""
        body = dumps(self._dialect.error_body(error)).encode("utf-8")
        return ErrorResponse(error.kind.http_status, body, self._dialect.media_type)

    def _operation(self, method: str, reply: HttpResponse) -> str:
        verbs = self._place.verbs
        operation = verbs.get("GET" if method == "HEAD" else method)
        if operation is None or (method == "HEAD" and operation in self._dialect.streams):
            allowed = reply.headers["allow"] = self._allowed()
            text = f"{method[:_SHOWN_LENGTH]} is not served here; send {allowed}"
            raise WireError(METHOD_NOT_ALLOWED, text)
        return operation

    def _allowed(self) -> str:
        verbs = self._place.verbs
        allowed = [*verbs, "OPTIONS"]
        if verbs.get("GET", "SubscribeToTask") not in self._dialect.streams:
            allowed.append("HEAD")
        return ", ".join(allowed)

    async def _given(self, operation: str, call: HttpRequest) -> Json:
        if call.scope["method"] == "POST":
            return await read_body(call)
        return read_query(call.scope["query_string"], self._dialect.fields(operation))
