"""Names of spans and attributes, and the functions that start spans and propagate their context.

This module uses OpenTelemetry's API only. Without the SDK, which `trunkline.observe.traces` sets up
at process start, spans are no-ops. Contents of messages, artifacts and tool calls are never
recorded.
"""

import asyncio
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TracerProvider,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from trunkline.errors import TrunklineError

if TYPE_CHECKING:
    from contextvars import Token

# Methods without spans: the mesh's own maintenance traffic would bury the spans of real work, and
# exporting spans must not make spans. Calls on a trunk have spans of their own.
QUIET_METHODS: Final = (
    "trunkline.v1.RegistryService/",
    "trunkline.v1.TraceService/",
    "trunkline.v1.TrunkService/",
    "trunkline.v1.TaskService/WatchTasks",
    "trunkline.v1.ToolService/WatchTools",
    "trunkline.v1.WebhookService/",
    "trunkline.v1.MessagingService/WatchEnvelopes",
    "trunkline.v1.ArtifactService/DownloadArtifact",
    "grpc.health.",
    "grpc.reflection.",
    "opentelemetry.",
)

# The instrumentation scope of our spans.
TRACER_NAME: Final = "trunkline"

# The SDK and the span store cut longer attribute values.
ATTRIBUTE_LIMIT_CHARS: Final = 8 * 1024

# OpenTelemetry's general conventions.
ERROR_TYPE: Final = "error.type"
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
HTTP_REQUEST_METHOD: Final = "http.request.method"
HTTP_REQUEST_RESEND_COUNT: Final = "http.request.resend_count"
HTTP_RESPONSE_STATUS_CODE: Final = "http.response.status_code"

# RPC (release candidate): the span is named by RPC_METHOD, "package.Service/Method".
RPC_SYSTEM_NAME: Final = "rpc.system.name"
RPC_METHOD: Final = "rpc.method"
RPC_STATUS_CODE: Final = "rpc.status_code"
# Other codes are the caller's affair: they leave the status of a SERVER span unset.
GRPC_SERVER_ERRORS: Final = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)
# Our own attribute: seconds left until the deadline when a call arrived.
RPC_DEADLINE_S: Final = "trunkline.rpc.deadline_s"

# Generative AI (development).
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
# The provider of a model or, of a call to an agent, the mesh. Spans of turns do not have it.
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_AGENT_DESCRIPTION: Final = "gen_ai.agent.description"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_STREAM: Final = "gen_ai.request.stream"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
# In seconds.
GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_USAGE_CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
GEN_AI_USAGE_REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
GEN_AI_TOOL_TYPE: Final = "gen_ai.tool.type"
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
# Value of GEN_AI_TOOL_TYPE: the agent's side calls it, not the model's provider or the user.
EXTENSION: Final = "extension"

# Values of GEN_AI_OPERATION_NAME. A span's name is this value and the name of the agent, tool or
# model.
INVOKE_AGENT: Final = "invoke_agent"
INVOKE_WORKFLOW: Final = "invoke_workflow"
PLAN: Final = "plan"
EXECUTE_TOOL: Final = "execute_tool"
CHAT: Final = "chat"

# Model Context Protocol (development).
MCP_SESSION_ID: Final = "mcp.session.id"
# Value of ERROR_TYPE when a tool's result is an error.
TOOL_ERROR: Final = "tool_error"

# Messaging (development).
MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_OPERATION_NAME: Final = "messaging.operation.name"
MESSAGING_OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGING_DESTINATION_NAME: Final = "messaging.destination.name"
MESSAGING_MESSAGE_ID: Final = "messaging.message.id"
MESSAGING_CONVERSATION_ID: Final = "messaging.message.conversation_id"
# Value of MESSAGING_SYSTEM, and of GEN_AI_PROVIDER_NAME of calls to agents.
TRUNKLINE: Final = "trunkline"

# Agent2Agent (draft): the span is named by A2A_METHOD_NAME.
A2A_METHOD_NAME: Final = "a2a.method.name"
A2A_TASK_ID: Final = "a2a.task.id"
A2A_PROTOCOL_VERSION: Final = "a2a.protocol.version"
A2A_TENANT: Final = "a2a.tenant"

# GraphQL (development).
GRAPHQL_OPERATION_NAME: Final = "graphql.operation.name"
GRAPHQL_OPERATION_TYPE: Final = "graphql.operation.type"

# The span store drops more spans of one trace, so that an endless loop can't displace all other
# traces.
MAX_SPANS_PER_TRACE: Final = 5000

# Our own attributes. A process may run several services. SERVICE names the service that made a
# span; child spans inherit it.
SERVICE: Final = "trunkline.service"
TASK_ID: Final = "trunkline.task.id"
PARENT_TASK_ID: Final = "trunkline.parent_task.id"
# The attribute for the outcome of the turn that a request waited for; also of metrics.
TASK_STATE: Final = "trunkline.task.state"
TURN: Final = "trunkline.turn"
APPROVAL_ID: Final = "trunkline.approval.id"
APPROVALS_REQUESTED: Final = "trunkline.approvals.requested"
APPROVALS_ANSWERED: Final = "trunkline.approvals.answered"
RUN_NODE: Final = "run_node"
NODE: Final = "trunkline.langgraph.node"
STEP: Final = "trunkline.langgraph.step"
# The type of a message between agents.
MESSAGE_TYPE: Final = "trunkline.message.type"
# Failed attempts before this one to deliver a message.
MESSAGE_RESEND_COUNT: Final = "trunkline.message.resend_count"
# The agent that sent a message between agents; "client" for all users.
MESSAGE_SENDER: Final = "trunkline.message.sender"
# The room that a message was sent to.
MESSAGE_ROOM: Final = "trunkline.message.room"
WORKFLOW_NAME: Final = "trunkline.workflow.name"
WORKFLOW_VERSION: Final = "trunkline.workflow.version"
ROUTE_AGENT: Final = "trunkline.route.agent"
ROUTE_CONFIDENCE: Final = "trunkline.route.confidence"
TOOL_SERVER: Final = "trunkline.tool.server"
TOOL_ATTEMPT: Final = "trunkline.tool.attempt"
# The process that exported a span, if it joined by a token. Only the mesh sets it.
EXPORTER: Final = "trunkline.exporter.identity"

# True of a stand-in for a span that was lost with its process.
LOST: Final = "trunkline.span.lost"

# gRPC metadata key of an export to the mesh: the sender exports to a collector itself.
COLLECTED_KEY: Final = "trunkline-collected"

# Why a model was called: "answer", "check", "plan" or "merge".
MODEL_PURPOSE: Final = "trunkline.model.purpose"
# The price of a call in millionths of a US dollar, rounded up. Models without a price have no such
# attribute.
MODEL_COST_MICROS: Final = "trunkline.cost_micros"

# Values of ERROR_TYPE for cancelled work. Work whose deadline passed is cancelled with TIMEOUT as
# the message.
CANCELLED: Final = "cancelled"
TIMEOUT: Final = "timeout"

_PROPAGATOR: Final = TraceContextTextMapPropagator()
# Parses the common case in a fifth of the propagator's time.
_TRACEPARENT: Final = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", re.ASCII)
_SERVICE_KEY: Final = otel_context.create_key("trunkline.service")


@dataclass(slots=True)
class TurnActivity:
    """A turn that runs: its conversation, and the calls that it has made."""

    conversation_id: str
    model_calls: int = 0
    tool_calls: int = 0


current_turn: Final[ContextVar[TurnActivity | None]] = ContextVar("current_turn", default=None)
"""The turn of the current context, or None outside of turns."""


def get_tracer() -> Tracer:
    """Return our tracer from the current provider. Without a provider its spans are no-ops."""
    return _provider_tracer(trace.get_tracer_provider())


@lru_cache(maxsize=8)
def _provider_tracer(provider: TracerProvider) -> Tracer:
    # The SDK's get_tracer is slow: it compares scopes and adds a warning filter at each call.
    return provider.get_tracer(TRACER_NAME)


def inject(context: Context | None = None) -> dict[str, str]:
    """Return the carrier of `context`, or of the current context: `traceparent`, `tracestate`.

    It is empty without a span.
    """
    return inject_span(trace.get_current_span(context))


def inject_span(span: Span) -> dict[str, str]:
    """Return the carrier of a span, which need not be current."""
    span_context = span.get_span_context()
    if not span_context.is_valid:
        return {}
    carrier = {"traceparent": format_traceparent(span_context)}
    if span_context.trace_state:
        carrier["tracestate"] = span_context.trace_state.to_header()
    return carrier


def format_traceparent(context: SpanContext) -> str:
    """Return a span's ids in the format of W3C Trace Context."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def extract(carrier: Mapping[str, str]) -> Context:
    """Return the context in a carrier with lower-case keys (W3C Trace Context).

    The context is empty if `traceparent` is missing or malformed.
    """
    traceparent = carrier.get("traceparent", "")
    if not traceparent:
        return Context()
    match = None if "tracestate" in carrier else _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return _PROPAGATOR.extract(carrier)
    trace_id, span_id, flags = int(match[1], 16), int(match[2], 16), int(match[3], 16)
    if not (trace_id and span_id):
        return Context()
    parent = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return trace.set_span_in_context(NonRecordingSpan(parent), Context())


def current_traceparent() -> str:
    """Return the current span as a `traceparent`, or an empty string."""
    return inject().get("traceparent", "")


def continue_trace(traceparent: str, *, suppress_spans: bool = False) -> None:
    """Continue the trace of a `traceparent` in the rest of this asyncio task.

    With `suppress_spans`, log lines have the trace's id, but neither this process nor the processes
    that it calls add spans, unless a span starts in another context.
    """
    context = extract({"traceparent": traceparent})
    if suppress_spans:
        parent = trace.get_current_span(context).get_span_context()
        unsampled = SpanContext(parent.trace_id, parent.span_id, is_remote=True)
        context = trace.set_span_in_context(NonRecordingSpan(unsampled), Context())
    otel_context.attach(context)


def suppress_spans() -> AbstractContextManager[None]:
    """Make no spans inside the block, neither here nor in processes that it calls.

    The calls carry an unsampled parent, which `parentbased` samplers, the default, obey.
    """
    parent = SpanContext(
        trace_id=secrets.randbits(128) or 1, span_id=secrets.randbits(64) or 1, is_remote=True
    )
    return use_context(trace.set_span_in_context(NonRecordingSpan(parent)))


def current_trace_id() -> str:
    """Return the current trace's id as 32 hexadecimal digits, or an empty string."""
    span_context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(span_context.trace_id) if span_context.is_valid else ""


def parse_link(traceparent: str) -> Link | None:
    """Return a link to the span of a `traceparent`, or None if it is missing or malformed."""
    span_context = trace.get_current_span(extract({"traceparent": traceparent})).get_span_context()
    return Link(span_context) if span_context.is_valid else None


def current_service(context: Context | None = None) -> str:
    """Return the service of `context`, else of the current context, else an empty string."""
    service = otel_context.get_value(_SERVICE_KEY, context) if context is not None else None
    service = service or otel_context.get_value(_SERVICE_KEY)
    return service if isinstance(service, str) else ""


def use_context(context: Context) -> AbstractContextManager[None]:
    """Make a context the current one inside the block."""
    return _ContextBlock(context)


def error_type(error: BaseException) -> str:
    """Return ERROR_TYPE of an error.

    The result is the reason of a mesh error, "cancelled", "timeout" after a deadline, or the name
    of the class.
    """
    if isinstance(error, TrunklineError):
        return error.reason
    if isinstance(error, asyncio.CancelledError):
        return TIMEOUT if error.args == (TIMEOUT,) else CANCELLED
    return type(error).__qualname__


def set_attributes(attributes: "Mapping[str, AttributeValue]") -> None:
    """Add attributes to the current span."""
    trace.get_current_span().set_attributes(attributes)


def mark_error(span: Span, error: BaseException | str, description: str = "") -> None:
    """Mark a span as failed. `error` is an exception or a value of ERROR_TYPE.

    The error's own text is not recorded, because it may hold private data; `description` is.
    """
    span.set_attribute(ERROR_TYPE, error if isinstance(error, str) else error_type(error))
    span.set_status(Status(StatusCode.ERROR, description or None))


def start_span(
    name: str,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Mapping[str, AttributeValue] | None = None,
    context: Context | None = None,
    links: Sequence[Link] = (),
    service: str = "",
) -> tuple[Span, Context]:
    """Start a span as `span` does, and return it with the context in which it is current.

    Use this for work that is not a block of code. The caller ends the span.
    """
    parent = context if context is not None else otel_context.get_current()
    inherited = parent.get(_SERVICE_KEY)
    service = service or (inherited if isinstance(inherited, str) else current_service())
    if service:
        attributes = {**(attributes or {}), SERVICE: service}
        if service != inherited:
            parent = otel_context.set_value(_SERVICE_KEY, service, parent)
    new_span = get_tracer().start_span(
        name, context=parent, kind=kind, attributes=attributes, links=list(links)
    )
    return new_span, trace.set_span_in_context(new_span, parent)


def span(
    name: str,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Mapping[str, AttributeValue] | None = None,
    context: Context | None = None,
    links: Sequence[Link] = (),
    service: str = "",
) -> AbstractContextManager[Span]:
    """Make a span that is current inside the block, as a child of `context` or the current span.

    The span ends with the block. An exception, CancelledError included, marks it as failed and
    propagates. Do not `yield` inside the block of an asynchronous generator, since the generator
    may be closed in another context.
    """
    new_span, inner_context = start_span(
        name, kind=kind, attributes=attributes, context=context, links=links, service=service
    )
    return _SpanBlock(new_span, inner_context)


# Classes instead of generators: every request enters several of these blocks, and a stream keeps
# them open for as long as it lasts.
class _ContextBlock:
    __slots__ = ("_context", "_token")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token: Token[Context] = otel_context.attach(self._context)

    def __exit__(self, *_error: object) -> None:
        otel_context.detach(self._token)


class _SpanBlock:
    __slots__ = ("_context", "_span", "_token")

    def __init__(self, span: Span, context: Context) -> None:
        self._span = span
        self._context = context

    def __enter__(self) -> Span:
        self._token: Token[Context] = otel_context.attach(self._context)
        return self._span

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        otel_context.detach(self._token)
        if exc_val is not None and not isinstance(exc_val, GeneratorExit):
            mark_error(self._span, exc_val)
        self._span.end()
