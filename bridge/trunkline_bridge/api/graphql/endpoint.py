"""GraphQL over HTTP: `POST /graphql` with JSON, answered with JSON or server-sent events.

Queries are never served by GET, and a body is always `application/json`: a browser asks us before
it lets a page of another site send such a body, and we refuse.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, NamedTuple, TypeAlias

from strawberry.types.execution import ExecutionResult, PreExecutionError

from trunkline.a2a_wire.errors import WireError, invalid_params
from trunkline.a2a_wire.json_values import dumps
from trunkline.a2a_wire.protocol import V1_0
from trunkline_bridge.api.graphql.context import MeshAccess, OperationContext
from trunkline_bridge.api.graphql.errors import LIMIT_ERROR, error_result
from trunkline_bridge.api.graphql.schema import MeshSchema
from trunkline_bridge.callers.caller import CallerFactory
from trunkline_bridge.http.handler import (
    BufferedResponse,
    HttpRequest,
    Response,
)
from trunkline_bridge.http.json_decoder import (
    MAX_VALUES,
    TOO_MANY_VALUES,
    has_more_values,
    parse_json_body,
)
from trunkline_bridge.http.messages import (
    UNSUPPORTED_MEDIA_TYPE,
    RequestHeaders,
    check_content_type,
)
from trunkline_bridge.http.sse import EventStreamResponse

GRAPHQL_PATH: Final = "/graphql"
_EVENT_STREAM: Final = "text/event-stream"
_GRAPHQL_JSON: Final = "application/graphql-response+json"
# Reading a text to its end takes a time that other requests wait for.
_MAX_QUERY_CHARS: Final = 50_000
_COMPLETE: Final = b"event: complete\ndata:\n\n"

# None is the end.
_Results: TypeAlias = AsyncGenerator[Sequence[ExecutionResult | None], None]


class GraphQLRequest(NamedTuple):
    """An operation, as a client sends it."""

    query: str
    variables: Mapping[str, Any] | None
    operation_name: str | None


def parse_request(body: object) -> GraphQLRequest:
    """Return the operation in a JSON value. WireError: it is not an operation."""
    if isinstance(body, list):
        raise invalid_params(("body", "has several operations; send them in requests of their own"))
    if not isinstance(body, dict):
        raise invalid_params(("body", "must be an object with `query`"))
    query, variables = body.get("query"), body.get("variables")
    name = body.get("operationName")
    if not isinstance(query, str) or not query.strip():
        raise invalid_params(("query", "must be a text"))
    if variables is not None and not isinstance(variables, dict):
        raise invalid_params(("variables", "must be an object"))
    if name is not None and not isinstance(name, str):
        raise invalid_params(("operationName", "must be a text"))
    if len(query) > _MAX_QUERY_CHARS:
        text = f"the query has more than {_MAX_QUERY_CHARS} characters; send values as variables"
        raise WireError(LIMIT_ERROR, text)
    if has_more_values(variables, MAX_VALUES):
        raise invalid_params(("variables", TOO_MANY_VALUES))
    return GraphQLRequest(query, variables, name)


def render_result(result: ExecutionResult) -> dict[str, Any]:
    """Return the response of an operation."""
    rendered: dict[str, Any] = {}
    if result.errors:
        rendered["errors"] = [dict(error.formatted) for error in result.errors]
    if not isinstance(result, PreExecutionError):
        rendered["data"] = result.data
    return rendered


class ResultRenderer:
    """Renders results as server-sent events, as the protocol GraphQL over SSE has them."""

    def render_chunks(self, events: Sequence[ExecutionResult | None]) -> Iterator[bytes]:
        """Yield rendered results."""
        for result in events:
            yield _COMPLETE if result is None else _render_event(render_result(result))

    def render_error(self, error: WireError) -> bytes:
        """Render the event that reports an error, and the end."""
        return _render_event(error_result(error)) + _COMPLETE


def _render_event(content: Mapping[str, Any]) -> bytes:
    return f"event: next\ndata: {dumps(content)}\n\n".encode()


class GraphQLBinding:
    """GraphQL over HTTP."""

    methods: tuple[str, ...] = ("POST",)
    method_hint = ' with {"query": …} as application/json'

    def __init__(self, schema: MeshSchema, mesh: MeshAccess, callers: CallerFactory) -> None:
        self.schema = schema
        self.mesh = mesh
        self.callers = callers

    def new_call(self) -> "_GraphQLCall":
        """Return an object for one request."""
        return _GraphQLCall(self)


class _GraphQLCall:
    """One request."""

    __slots__ = ("_binding", "_content_type")

    def __init__(self, binding: GraphQLBinding) -> None:
        self._binding = binding
        self._content_type = "application/json"

    async def respond(self, request: HttpRequest) -> Response:
        """Return the response."""
        binding, headers = self._binding, request.headers
        accepted = headers.get(b"accept") or ""
        if _GRAPHQL_JSON in accepted:
            self._content_type = _GRAPHQL_JSON
        _check_json(headers)
        identity = await binding.callers.authenticate(headers)
        caller = binding.callers.build_caller(identity, headers, agent="", version=V1_0)
        operation = parse_request(await parse_json_body(request.body))
        # The request is counted for the rate of the account.
        context = OperationContext(caller, binding.mesh, counted=1)
        if _EVENT_STREAM in accepted:
            return EventStreamResponse(
                _open_stream(binding.schema, operation, context), ResultRenderer(), {}
            )
        result = await binding.schema.execute(
            operation.query,
            variable_values=operation.variables,
            context_value=context,
            operation_name=operation.operation_name,
        )
        # Only the new content type tells errors of the request from errors of its fields.
        is_refused = self._content_type == _GRAPHQL_JSON and isinstance(result, PreExecutionError)
        return BufferedResponse(
            dumps(render_result(result)).encode(), 400 if is_refused else 200, self._content_type
        )

    def error_response(self, error: WireError) -> BufferedResponse:
        """Return an error under its HTTP status."""
        body = dumps(error_result(error)).encode()
        return BufferedResponse(body, error.kind.http_status, self._content_type)


def _check_json(headers: RequestHeaders) -> None:
    """Check that a body is declared as JSON. WireError: it is not (415)."""
    check_content_type(headers)
    if not headers.get(b"content-type"):
        text = "the request has no content type; send application/json"
        raise WireError(UNSUPPORTED_MEDIA_TYPE, text)


@asynccontextmanager
async def _open_stream(
    schema: MeshSchema, operation: GraphQLRequest, context: OperationContext
) -> AsyncIterator[_Results]:
    """Open the results of any operation."""
    results = await schema.stream(
        operation.query,
        variable_values=operation.variables,
        context_value=context,
        operation_name=operation.operation_name,
    )

    async def read() -> _Results:
        async with aclosing(results):
            async for result in results:
                yield (result,)
        yield (None,)

    async with aclosing(read()) as events:
        yield events
