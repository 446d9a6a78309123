"""Resources of our own over HTTP: each path has handlers by HTTP method, and answers with JSON.

Messages and the page are such resources. A2A's operations have bindings of their own.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from google.protobuf.message import Message
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from trunkline.a2a_wire.errors import WireError
from trunkline.a2a_wire.json_values import Json, dumps
from trunkline.a2a_wire.protocol import V1_0
from trunkline.json_values import message_to_dict
from trunkline_bridge.callers.caller import Caller, CallerFactory
from trunkline_bridge.http import tracing
from trunkline_bridge.http.handler import Binding, BufferedResponse, HttpRequest, Response
from trunkline_bridge.http.messages import method_not_allowed_error, rest_error_body
from trunkline_bridge.http.requests import read_body

ResourceHandler: TypeAlias = Callable[
    [Caller, Json, Mapping[str, str]], Awaitable[Message | Json | Response]
]
"""Answers a request. Arguments: the caller, the query's or body's parameters, the path's
parameters."""

ResourcePaths: TypeAlias = Mapping[str, Mapping[str, ResourceHandler]]
"""The handlers of each path by HTTP method. The first path that matches a request counts."""

QueryReader: TypeAlias = Callable[[bytes, str], Json]
"""Reads the parameters in a query, by the name of the handler."""

BuildHandler: TypeAlias = Callable[[Binding], ASGIApp]
"""Builds the application of a path."""

NO_HEADERS: Final[Mapping[str, str]] = {}
"""For resources whose responses have no headers of their own."""


def json_routes(
    paths: ResourcePaths,
    callers: CallerFactory,
    build_handler: BuildHandler,
    *,
    name: str,
    read_query: QueryReader,
    headers: Mapping[str, str] = NO_HEADERS,
) -> list[BaseRoute]:
    """Return the routes of paths, whose spans are named after `name` and the handler.

    All responses have `headers`.
    """
    return [
        Route(path, build_handler(_Resource(handlers, callers, name, read_query, headers)))
        for path, handlers in paths.items()
    ]


class _Resource:
    """The handlers at one path."""

    methods: tuple[str, ...] = ()
    method_hint = ""

    def __init__(
        self,
        handlers: Mapping[str, ResourceHandler],
        callers: CallerFactory,
        name: str,
        read_query: QueryReader,
        headers: Mapping[str, str],
    ) -> None:
        self.handlers = handlers
        self.callers = callers
        self.name = name
        self.read_query = read_query
        self.headers = headers
        self.allowed = ", ".join([*handlers, "OPTIONS"])

    def new_call(self) -> "_ResourceCall":
        """Return an object for one request."""
        return _ResourceCall(self)


class _ResourceCall:
    """One request."""

    __slots__ = ("_headers", "_resource")

    def __init__(self, resource: _Resource) -> None:
        self._resource = resource
        self._headers = resource.headers

    async def respond(self, request: HttpRequest) -> Response:
        """Return the response."""
        resource = self._resource
        scope, headers, _ = request
        method = scope["method"]
        if method not in resource.handlers:
            self._headers = {**resource.headers, "allow": resource.allowed}
            if method == "OPTIONS":
                return BufferedResponse(status=204, content_type="", headers=self._headers)
            raise method_not_allowed_error(method, allowed=resource.allowed)
        identity = await resource.callers.authenticate(headers)
        handler = resource.handlers[method]
        tracing.name_request_span(f"{resource.name}.{handler.__name__.strip('_')}", "")
        caller = resource.callers.build_caller(identity, headers, agent="", version=V1_0)
        params: Any = (
            await read_body(request)
            if method == "POST"
            else resource.read_query(scope["query_string"], handler.__name__)
        )
        result = await handler(caller, params, scope["path_params"])
        if isinstance(result, Message):
            result = message_to_dict(result)
        if isinstance(result, dict):
            return BufferedResponse(dumps(result).encode(), headers=self._headers)
        return result

    def error_response(self, error: WireError) -> BufferedResponse:
        """Return an error under its HTTP status."""
        body = dumps(rest_error_body(error)).encode()
        return BufferedResponse(body, error.kind.http_status, headers=self._headers)
