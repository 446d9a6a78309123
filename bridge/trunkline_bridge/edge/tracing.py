"""Server spans of requests, named after the A2A method. They end with the response."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind
from starlette.types import Message, Scope, Send

from trunkline import telemetry
from trunkline.v1 import snapshot_pb2
from trunkline_bridge.edge.http import PROBE_PATHS

logger = logging.getLogger(__name__)

SERVICE_NAME = "bridge"

_PAGE_PATHS = ("/ui/api/", "/ui/assets/")
_TRACE_HEADERS = frozenset({b"traceparent", b"tracestate"})


def http_request_span(scope: Scope, send: Send) -> AbstractContextManager[Send]:
    """Start the span of a request, which continues the caller's trace.

    The block gets a `send` that adds the header `traceresponse` (W3C Trace Context level 2).
    """
    # Probes come every second: no spans for them.
    if scope["type"] != "http" or scope["path"] in PROBE_PATHS:
        return nullcontext(send)
    # Traces are about the mesh's work, not about people who look at it.
    if scope["method"] in ("GET", "HEAD") and scope["path"].startswith(_PAGE_PATHS):
        return _without_spans(send)
    return _HttpRequestSpan(scope, send)


@contextmanager
def _without_spans(send: Send) -> Iterator[Send]:
    with telemetry.suppress_spans():
        yield send


class _HttpRequestSpan:
    """A class and no generator, because it lives as long as the request's response."""

    __slots__ = ("_block", "_method", "_path", "_send", "_span", "_started_s")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._method: str = scope["method"]
        self._path: str = scope["path"]
        self._send = send
        self._started_s = time.monotonic()
        self._block = telemetry.span(
            f"{self._method} {_span_route(self._path)}",
            kind=SpanKind.SERVER,
            attributes={telemetry.HTTP_REQUEST_METHOD: self._method},
            context=_read_context(scope),
            service=SERVICE_NAME,
        )

    def __enter__(self) -> Send:
        self._span = self._block.__enter__()
        return self._send_with_trace

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        took_s = round(time.monotonic() - self._started_s, 6)
        fields = {"path": self._path, "duration_s": took_s}
        logger.info("http.served", extra={"http_method": self._method, **fields})
        self._block.__exit__(exc_type, exc_val, exc_tb)

    async def _send_with_trace(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._span.set_attribute(telemetry.HTTP_RESPONSE_STATUS_CODE, message["status"])
            context = self._span.get_span_context()
            if context.is_valid:
                value = telemetry.format_traceparent(context).encode("ascii")
                headers = message.get("headers", ())
                message["headers"] = [*headers, (b"traceresponse", value)]
        await self._send(message)


class SocketTrace:
    """The spans of a WebSocket: one of each operation, none of the connection, which may last."""

    __slots__ = ("_context",)

    def __init__(self, scope: Scope) -> None:
        self._context = _read_context(scope)

    def operation_span(self, name: str, traceparent: str = "") -> AbstractContextManager[Span]:
        """Make the span of an operation: it continues `traceparent`, or the connection's trace."""
        context = telemetry.extract({"traceparent": traceparent})
        is_given = trace.get_current_span(context).get_span_context().is_valid
        return telemetry.span(
            name,
            kind=SpanKind.SERVER,
            context=context if is_given else self._context,
            service=SERVICE_NAME,
        )


def _read_context(scope: Scope) -> Context:
    """Return the context of the caller's headers."""
    carrier = {
        name.decode("ascii"): value.decode("latin-1")
        for name, value in scope["headers"]
        if name in _TRACE_HEADERS
    }
    return telemetry.extract(carrier)


@contextmanager
def grpc_call_span(method: str, carrier: Mapping[str, str]) -> Iterator[str]:
    """Start the span of a call over gRPC; yield the value of `traceresponse`, which may be empty.

    A client that disconnects does not make the span a failure.
    """
    span, below = telemetry.start_span(
        method,
        kind=SpanKind.SERVER,
        attributes={telemetry.RPC_SYSTEM_NAME: "grpc", telemetry.RPC_METHOD: method},
        context=telemetry.extract(carrier),
        service=SERVICE_NAME,
    )
    context = span.get_span_context()
    started_at = time.monotonic()
    try:
        with telemetry.use_context(below):
            yield telemetry.format_traceparent(context) if context.is_valid else ""
    finally:
        span.end()
        took_s = round(time.monotonic() - started_at, 6)
        logger.info("grpc.served", extra={"rpc_method": method, "duration_s": took_s})


def name_request_span(method: str, agent: str) -> None:
    """Name the request's span by its A2A method."""
    span = trace.get_current_span()
    span.update_name(method)
    span.set_attributes({telemetry.A2A_METHOD_NAME: method, telemetry.GEN_AI_AGENT_NAME: agent})


def record_task(snapshot: snapshot_pb2.TaskSnapshot) -> None:
    """Record the task of the request in its span, and link it to the task's first request."""
    trace.get_current_span().set_attributes(
        {
            telemetry.A2A_TASK_ID: snapshot.task.id,
            telemetry.GEN_AI_CONVERSATION_ID: snapshot.task.context_id,
        }
    )
    _link_task_span(snapshot)


def _link_task_span(snapshot: snapshot_pb2.TaskSnapshot) -> None:
    """Link the request's span to the span that submitted the task, unless they share a trace."""
    link = telemetry.parse_link(snapshot.traceparent)
    span = trace.get_current_span()
    if link is None or link.context.trace_id == span.get_span_context().trace_id:
        return
    # A request may read its task more than once.
    links: Iterable[Link] = getattr(span, "links", ())
    if link.context not in [each.context for each in links]:
        span.add_link(link.context)


def record_grpc_code(name: str) -> None:
    """Record the status of a call over gRPC in its span."""
    trace.get_current_span().set_attribute(telemetry.RPC_STATUS_CODE, name)


def record_failure(reason: str) -> None:
    """Mark the request's span as failed."""
    telemetry.mark_error(trace.get_current_span(), reason)


def _span_route(path: str) -> str:
    """Return one of a few names for a path, because clients can invent any number of paths."""
    if path.endswith(("/.well-known/agent-card.json", "/.well-known/agent.json")):
        return "agent-card"
    if path == "/" or path.startswith("/agents/"):
        return "agent"
    if path == "/messages" or path.startswith(("/messages/", "/messages:")):
        return "messages"
    if path == "/graphql":
        return "graphql"
    return "unknown"
