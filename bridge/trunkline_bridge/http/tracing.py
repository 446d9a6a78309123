"""Server spans of requests, named after the A2A method, and their durations."""

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from types import TracebackType
from typing import Protocol

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind
from starlette.routing import Route
from starlette.types import Message, Scope, Send

from trunkline.core.task_states import TURN_END, state_name
from trunkline.observe import telemetry
from trunkline.observe.metrics import instruments
from trunkline.v1 import snapshot_pb2, task_pb2
from trunkline_bridge.http.messages import METRICS_PATH, PROBE_PATHS

logger = logging.getLogger(__name__)

SERVICE_NAME = "bridge"

_UNTRACED = PROBE_PATHS | {METRICS_PATH}
_PAGE_PATH = "/ui"
# The type of a value in Starlette's templates.
_CONVERTOR = re.compile(r":[a-z]+(?=\})")
# The first statuses of a caller's errors and of a server's.
_CLIENT_ERROR = 400
_SERVER_ERROR = 500
_TRACE_HEADERS = frozenset({b"traceparent", b"tracestate"})


class TracedRequest(Protocol):
    """A request, with or without a span."""

    scope: Scope
    """The scope, which the router completes. Replace it if the router gets another one."""
    send: Send
    """Adds the header `traceresponse` (W3C Trace Context level 2), if there is a span."""


class _UntracedRequest:
    __slots__ = ("scope", "send")

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope = scope
        self.send = send


def http_request_span(scope: Scope, send: Send) -> AbstractContextManager[TracedRequest]:
    """Start the span of a request, which continues the caller's trace, and measure its time."""
    # Probes and scrapes come every few seconds: no spans for them.
    if scope["type"] != "http" or scope["path"] in _UNTRACED:
        return nullcontext(_UntracedRequest(scope, send))
    method, path = scope["method"], scope["path"]
    # Traces record the mesh's work. Reading the page is traced only on request.
    if method in ("GET", "HEAD") and _is_page(path) and not _has_trace(scope):
        return _MeasuredRequest(scope, send, _without_spans())
    block = telemetry.span(
        f"{method} {_span_route(path)}",
        kind=SpanKind.SERVER,
        attributes={telemetry.HTTP_REQUEST_METHOD: method},
        context=_read_context(scope),
        service=SERVICE_NAME,
    )
    return _MeasuredRequest(scope, send, block)


def _is_page(path: str) -> bool:
    return path == _PAGE_PATH or path.startswith(f"{_PAGE_PATH}/")


def _has_trace(scope: Scope) -> bool:
    return trace.get_current_span(_read_context(scope)).get_span_context().is_valid


@contextmanager
def _without_spans() -> Iterator[Span]:
    with telemetry.suppress_spans():
        yield trace.INVALID_SPAN


class _MeasuredRequest:
    """A class and no generator, because it lives as long as the request's response."""

    __slots__ = (
        *("_block", "_method", "_path", "_send", "_span", "_started_s", "_status"),
        *("scope", "send"),
    )

    def __init__(self, scope: Scope, send: Send, block: AbstractContextManager[Span]) -> None:
        self._method: str = scope["method"]
        self._path: str = scope["path"]
        self._send = send
        self._status = 0
        self.scope = scope
        self.send: Send = self._send_with_trace
        self._started_s = time.perf_counter()
        self._block = block

    def __enter__(self) -> TracedRequest:
        self._span = self._block.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        took_s = time.perf_counter() - self._started_s
        fields = {"path": self._path, "duration_s": round(took_s, 6)}
        logger.info("http.served", extra={"http_method": self._method, **fields})
        instruments.HTTP_SERVER_DURATION.record(
            took_s,
            self._method,
            self.scope.get("scheme", "http"),
            _route_template(self.scope),
            # Nothing was sent if the client has left.
            self._status or "",
            str(self._status) if self._status >= _SERVER_ERROR else "",
        )
        self._block.__exit__(exc_type, exc_val, exc_tb)

    async def _send_with_trace(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._span.set_attribute(telemetry.HTTP_RESPONSE_STATUS_CODE, self._status)
            context = self._span.get_span_context()
            if context.is_valid:
                value = telemetry.format_traceparent(context).encode("ascii")
                headers = message.get("headers", ())
                message["headers"] = [*headers, (b"traceresponse", value)]
        await self._send(message)


class SocketTrace:
    """The spans of a WebSocket: one for each operation, but not for the long connection."""

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


def record_task(snapshot: snapshot_pb2.TaskSnapshot, *, is_after_turn: bool = False) -> None:
    """Record the task of the request in its span, and link it to the task's first request.

    `is_after_turn` means that the request has waited for the turn, whose end is recorded, too.
    """
    task = snapshot.task
    attributes = {
        telemetry.A2A_TASK_ID: task.id,
        telemetry.GEN_AI_CONVERSATION_ID: task.context_id,
    }
    if is_after_turn and task.status.state in TURN_END:
        attributes[telemetry.TASK_STATE] = state_name(task.status.state)
    span = trace.get_current_span()
    span.set_attributes(attributes)
    _link_task_span(span, snapshot.traceparent)


def record_state(state: task_pb2.TaskState.ValueType) -> None:
    """Record in the request's span the state by which a turn has ended. Ignore other states."""
    if state in TURN_END:
        trace.get_current_span().set_attribute(telemetry.TASK_STATE, state_name(state))


def _link_task_span(span: Span, traceparent: str) -> None:
    """Link the request's span to the span that submitted the task, unless they share a trace."""
    # Most requests are the task's first, and need no link to be made.
    if f"-{trace.format_trace_id(span.get_span_context().trace_id)}-" in traceparent:
        return
    link = telemetry.parse_link(traceparent)
    if link is None:
        return
    # A request may read its task more than once.
    links: Iterable[Link] = getattr(span, "links", ())
    if link.context not in [each.context for each in links]:
        span.add_link(link.context)


def record_grpc_status(code: str, reason: str = "") -> None:
    """Record the status of a call over gRPC in its span, and the reason if it is our failure."""
    span = trace.get_current_span()
    span.set_attribute(telemetry.RPC_STATUS_CODE, code)
    if code in telemetry.GRPC_SERVER_ERRORS:
        telemetry.mark_error(span, reason)


def record_failure(reason: str) -> None:
    """Mark the request's span as failed."""
    telemetry.mark_error(trace.get_current_span(), reason)


def record_error_response(http_status: int, reason: str) -> None:
    """Mark the request's span as failed, unless the response's status says that the caller erred.

    By the conventions of HTTP, a status of 400 to 499 is not an error of the server's span.
    """
    if not _CLIENT_ERROR <= http_status < _SERVER_ERROR:
        record_failure(reason)


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
    if _is_page(path):
        return "page"
    return "unknown"


def _route_template(scope: Scope) -> str:
    """Return the path of the route that served a request, with names in braces; else "".

    The names of agents, tenants and tasks are not in it.
    """
    route = scope.get("route")
    if not isinstance(route, Route):
        return ""
    root: str = scope.get("root_path", "")
    segments = root.removeprefix(scope.get("app_root_path", "")).split("/")
    prefix = []
    for previous, segment in zip(("", *segments), segments, strict=False):
        if previous == "agents":
            prefix.append("{agent}")
        else:
            prefix.append(segment if segment in ("", "agents", "v1") else "{tenant}")
    return _format(f"{'/'.join(prefix)}{route.path}")


@lru_cache(maxsize=256)
def _format(path: str) -> str:
    return _CONVERTOR.sub("", path)
