"""Receives the spans of MCP servers, which are no processes of the mesh, over OTLP."""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Self

import grpc
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

from trunkline.core.identity import MeshCredentials
from trunkline.core.runtime import start_grpc_server
from trunkline.observe import telemetry
from trunkline.observe.traces.spans import MCP_SERVER_PREFIX, remove_spans, replace_text

_AUTHORIZATION: Final = "x-trunkline-spans"
# The traces of a server's latest calls. Its exporter sends spans seconds after a call.
_TRACES_PER_SERVER: Final = 10_000
_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 4),
    ("grpc.max_allowed_incoming_connections", 256),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.http2.settings_timeout", 10_000),
    ("grpc.max_receive_message_length", 4 * 1024 * 1024),
)
_CALLS: Final = 16
_FORWARD_S: Final = 2.0
_STOP_GRACE_S: Final = 1.0


class SpanIntake(otlp_grpc.TraceServiceServicer):
    """A local OTLP endpoint for MCP servers. An async context manager: it serves inside the block.

    Each server has its own token, and may only add spans to traces in which it was called. The
    spans are forwarded to the mesh with this process's identity.
    """

    def __init__(
        self, credentials: MeshCredentials, find_store: Callable[[], grpc.aio.Channel]
    ) -> None:
        """`find_store` returns the channel to a process that has a span store."""
        self._credentials = credentials
        self._find_store = find_store
        self._traces: dict[str, OrderedDict[int, None]] = {}
        self._tokens: dict[str, str] = {}
        self._port = 0
        # Other users of this machine can connect, too.
        self._server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_CALLS)

    async def __aenter__(self) -> Self:
        # The package has no types for it.
        otlp_grpc.add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._port = self._server.add_secure_port(
            "127.0.0.1:0", self._credentials.public_server_credentials()
        )
        await start_grpc_server(self._server)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._server.stop(_STOP_GRACE_S)

    def environment(self, server: str) -> dict[str, str]:
        """Return the standard variables that direct the exporter of an MCP server here."""
        token = secrets.token_urlsafe(24)
        self._tokens[token] = server
        self._traces[server] = OrderedDict()
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"https://localhost:{self._port}",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": str(self._credentials.roots_file.absolute()),
            "OTEL_EXPORTER_OTLP_HEADERS": f"{_AUTHORIZATION}={token}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_SERVICE_NAME": _name_service(server),
        }

    def admit_current_trace(self, server: str) -> None:
        """Let a server add spans to the current trace, in which it is being called."""
        traces = self._traces.get(server)
        context = trace.get_current_span().get_span_context()
        if traces is None or not context.is_valid:
            return
        traces[context.trace_id] = None
        traces.move_to_end(context.trace_id)
        if len(traces) > _TRACES_PER_SERVER:
            traces.popitem(last=False)

    async def Export(
        self,
        request: otlp.ExportTraceServiceRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> otlp.ExportTraceServiceResponse:
        metadata = dict(context.invocation_metadata() or ())
        server = self._tokens.get(str(metadata.get(_AUTHORIZATION, "")))
        if server is None:
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED, "only MCP servers of this tool adapter send spans"
            )
        traces = self._traces[server]
        rejected = remove_spans(
            request.resource_spans,
            lambda _, span: int.from_bytes(span.trace_id) not in traces or _names_service(span),
        )
        # The spans of a server can't have the name of another server.
        for resource in request.resource_spans:
            replace_text(resource.resource, telemetry.SERVICE_NAME, _name_service(server))
        collected = ((telemetry.COLLECTED_KEY, "1"),) if telemetry.COLLECTED_KEY in metadata else ()
        try:
            # The generated stub has no types.
            store = otlp_grpc.TraceServiceStub(self._find_store())  # type: ignore[no-untyped-call]
            response: otlp.ExportTraceServiceResponse = await store.Export(
                request, timeout=_FORWARD_S, metadata=collected
            )
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "the mesh does not answer")
        if rejected:
            response.partial_success.rejected_spans += rejected
            response.partial_success.error_message = (
                "the server was not called in their traces, or they name a service of the mesh"
            )
        return response


def _name_service(server: str) -> str:
    return f"{MCP_SERVER_PREFIX}{server}"


def _names_service(span: trace_pb2.Span) -> bool:
    """Return True if a span says which service of ours made it, as only our own processes do."""
    return any(attribute.key == telemetry.SERVICE for attribute in span.attributes)
