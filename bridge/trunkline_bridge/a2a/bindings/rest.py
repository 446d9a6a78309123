"""A2A's HTTP+JSON binding, in v1.0 and v0.3."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from trunkline.a2a_wire.errors import WireError
from trunkline.a2a_wire.json_values import Json, dumps
from trunkline_bridge.a2a.operations.operation_table import (
    ServedOperation,
    StreamMethod,
    StreamOperation,
    UnaryMethod,
    UnaryOperation,
)
from trunkline_bridge.a2a.operations.operations import Operations
from trunkline_bridge.a2a.streams.event_renderer import EventFrame, EventRenderer
from trunkline_bridge.a2a.versions.rest_routes import PathParams, Routes
from trunkline_bridge.a2a.versions.v0_3.rest_methods import RestV03
from trunkline_bridge.a2a.versions.v1_0.json_methods import RestV1
from trunkline_bridge.callers.caller import (
    Caller,
    CallerFactory,
    extension_headers,
    resolve_agent,
)
from trunkline_bridge.callers.version_header import check_version
from trunkline_bridge.http import tracing
from trunkline_bridge.http.handler import (
    Binding,
    BufferedResponse,
    HttpRequest,
    Response,
)
from trunkline_bridge.http.messages import method_not_allowed_error
from trunkline_bridge.http.pages import mount
from trunkline_bridge.http.requests import read_body, read_query
from trunkline_bridge.http.sse import EventStreamResponse

_METHODS = ("GET", "POST", "DELETE")


class RestVersion(Protocol):
    """A version of A2A over HTTP+JSON. Its operations have the names of v1.0."""

    version: str
    media_type: str
    routes: Routes

    def query_fields(self, operation: ServedOperation) -> Any:  # noqa: ANN401  no common type
        """Return the descriptors of the fields that a query may have."""
        ...

    def parameters(self, operation: ServedOperation, params: Json, path: PathParams) -> Json:
        """Return the parameters of a body or query together with the parameters in the path.

        Raises:
            WireError: the parameters contradict each other.
        """
        ...

    def choose_method(
        self, operation: ServedOperation, caller: Caller, params: Json
    ) -> UnaryMethod | StreamMethod:
        """Return the method of an operation, in the JSON that the client uses."""
        ...

    def find_tenant(self, params: Json) -> str:
        """Return the tenant in the parameters, or an empty text."""
        ...

    def error_body(self, error: WireError) -> Json:
        """Return the body of an error."""
        ...


class RestBinding:
    """HTTP+JSON of all agents."""

    def __init__(
        self,
        operations: Operations,
        callers: CallerFactory,
        *,
        is_strict: bool,
    ) -> None:
        """With `is_strict`, a request without a version is in v0.3 (A2A v1.0, §3.6)."""
        self.operations = operations
        self.callers = callers
        self.is_strict = is_strict
        self._v1_0 = RestV1()
        self._v0_3 = RestV03()

    def routes(self, build_handler: Callable[[Binding], ASGIApp]) -> list[BaseRoute]:
        """Return the routes below an agent's address; `build_handler` builds the application."""

        def routes(version: RestVersion) -> list[BaseRoute]:
            return [
                Route(path, build_handler(RestResource(self, version, operations)))
                for path, operations in version.routes.items()
            ]

        return [
            mount("/v1", routes(self._v0_3)),
            *routes(self._v1_0),
            mount("/{tenant:tenant}", routes(self._v1_0)),
        ]


class RestResource:
    """The operations at one path."""

    methods: tuple[str, ...] = ()
    method_hint = ""

    def __init__(
        self,
        binding: RestBinding,
        version: RestVersion,
        operations: Mapping[str, UnaryOperation | StreamOperation],
    ) -> None:
        """`operations` are the operations by HTTP method."""
        self.binding = binding
        self.version = version
        self.operations = operations
        allowed = [*(method for method in _METHODS if method in operations), "OPTIONS"]
        if isinstance(operations.get("GET"), UnaryOperation):
            allowed.append("HEAD")
        self.allowed = ", ".join(allowed)

    def new_call(self) -> "RestCall":
        """Return an object for one request."""
        return RestCall(self)

    def find_operation(self, method: str) -> UnaryOperation | StreamOperation | None:
        """Return the operation of an HTTP method, or None if the path does not serve the method.

        HEAD is served like GET, except for streams.
        """
        operation = self.operations.get("GET" if method == "HEAD" else method)
        return None if method == "HEAD" and isinstance(operation, StreamOperation) else operation


class RestCall:
    """One request over HTTP+JSON."""

    __slots__ = ("_headers", "_resource")

    def __init__(self, resource: RestResource) -> None:
        self._resource = resource
        self._headers: dict[str, str] = {}

    async def respond(self, request: HttpRequest) -> Response:
        """Return the response."""
        resource = self._resource
        binding = resource.binding
        scope, headers, _ = request
        method = scope["method"]
        if method == "OPTIONS":
            return BufferedResponse(
                status=204, content_type="", headers={"allow": resource.allowed}
            )
        operation = resource.find_operation(method)
        if operation is None:
            self._headers = {"allow": resource.allowed}
            raise method_not_allowed_error(method, allowed=resource.allowed)
        identity = await binding.callers.authenticate(headers)
        query, version = scope["query_string"], resource.version
        check_version(headers, query, version=version.version, is_strict=binding.is_strict)
        path = PathParams(**scope["path_params"])
        if method == "POST":
            params = await read_body(request)
        else:
            params = read_query(query, version.query_fields(operation))
        agent = resolve_agent(path.agent, (path.tenant, version.find_tenant(params)))
        caller = binding.callers.build_caller(
            identity, headers, agent=agent, version=version.version
        )
        tracing.name_request_span(operation.wire.name, caller.agent)
        self._headers = extension_headers(caller, headers)
        # Report a missing permission or agent before any error in the parameters.
        await binding.operations.authorizer.check(caller, operation.permission, path.task_id)
        params = version.parameters(operation, params, path)
        chosen = version.choose_method(operation, caller, params)
        if isinstance(chosen, UnaryMethod):
            result = await chosen.call(binding.operations, caller, params)
            body = dumps({} if result is None else result).encode("utf-8")
            return BufferedResponse(body, content_type=version.media_type, headers=self._headers)
        writer, events = chosen.open(binding.operations, caller, params)
        renderer = EventRenderer(writer, EventFrame("", "", version.error_body))
        return EventStreamResponse(events, renderer, self._headers)

    def error_response(self, error: WireError) -> BufferedResponse:
        """Return an error with its HTTP status."""
        version = self._resource.version
        body = dumps(version.error_body(error)).encode("utf-8")
        return BufferedResponse(body, error.kind.http_status, version.media_type, self._headers)
