"""Shared by the MCP servers of the bundled agents: answers, tracing, and running on stdio.

An answer is text that stands alone, with the same content as data beside it. Tools declare which
questions they answer under `trunkline/match` in their `_meta`. An error result says under
`trunkline/mendable` whether a different question could be answered.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from mcp_types import CallToolResult, TextContent, ToolAnnotations

from trunkline.errors import InvalidArgumentError, TrunklineError
from trunkline.network import is_this_machine

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

MatchRuleJson: TypeAlias = dict[str, Any]
"""A pattern of questions, and the arguments made of a match, as JSON."""
MATCH_KEY = "trunkline/match"
"""In a tool's `_meta`: its match rules."""
MENDABLE_KEY = "trunkline/mendable"
"""In an error result's `_meta`: true if a different question could be answered."""

READ_ONLY = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
READ_ONLY_REMOTE = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True
)
"""For tools that read from other services."""

_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORT_INTERVAL_MS = 500
_EXPORT_TIMEOUT_S = 2.0
_FLUSH_TIMEOUT_MS = 1_500


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a tool: for people, and as data of the tool's output schema."""

    text: str
    data: Any


async def call_result(answer: Awaitable[ToolAnswer]) -> CallToolResult:
    """Wait for an answer and return it as an MCP result; a TrunklineError becomes an error result.

    Any other exception is raised.
    """
    try:
        done = await answer
    except TrunklineError as error:
        return error_result(error)
    return CallToolResult(
        content=[TextContent(type="text", text=done.text)], structured_content=done.data
    )


def error_result(error: TrunklineError) -> CallToolResult:
    """Return the error result; its `_meta` says whether the user can correct the question."""
    is_mendable = isinstance(error, InvalidArgumentError)
    text = error.problem if isinstance(error, InvalidArgumentError) else str(error)
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        is_error=True,
        _meta={MENDABLE_KEY: is_mendable},
    )


def run_stdio_server(
    serve: Callable[[], Coroutine[None, None, None]], *, service_name: str
) -> None:
    """Run `serve` until its client closes stdin, or on SIGTERM or SIGINT; flush the spans."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    flush = start_tracing(service_name)
    _exit_on_signals(flush)
    try:
        asyncio.run(serve())
    finally:
        flush()


def _exit_on_signals(flush: Callable[[], None]) -> None:
    def leave(_signal: int, _frame: FrameType | None) -> None:
        flush()
        # A thread of the mcp library blocks on stdin and would prevent an orderly exit.
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)


def start_tracing(service_name: str) -> Callable[[], None]:
    """Export spans to the OTLP endpoint that the environment names; return a function to flush.

    Without an endpoint, nothing is loaded or exported. OTEL_SERVICE_NAME overrides `service_name`.
    The mcp library makes the spans.
    """
    endpoint = next((os.environ[name] for name in _ENDPOINT_VARIABLES if os.environ.get(name)), "")
    if not endpoint or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return _flush_nothing
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = os.environ.get("OTEL_SERVICE_NAME") or service_name
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(
        BatchSpanProcessor(_lazy_exporter(endpoint), schedule_delay_millis=_EXPORT_INTERVAL_MS)
    )
    trace.set_tracer_provider(provider)

    def flush() -> None:
        provider.force_flush(_FLUSH_TIMEOUT_MS)

    return flush


def _flush_nothing() -> None:
    """There are no spans to flush."""


def _lazy_exporter(endpoint: str) -> "SpanExporter":
    """Return an exporter that loads gRPC with its first spans.

    gRPC is a fifth of an idle server's memory.
    """
    from opentelemetry.sdk.trace.export import SpanExporter

    class LazyExporter(SpanExporter):
        def __init__(self) -> None:
            self._exporter: SpanExporter | None = None

        def export(self, spans: "Sequence[ReadableSpan]") -> "SpanExportResult":
            if self._exporter is None:
                self._exporter = _open_exporter(endpoint)
            return self._exporter.export(spans)

        def shutdown(self) -> None:
            if self._exporter is not None:
                self._exporter.shutdown()

    return LazyExporter()


def _open_exporter(endpoint: str) -> "SpanExporter":
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    # A proxy from the environment is for other machines, not for this one.
    options = (("grpc.enable_http_proxy", 0),) if is_this_machine(endpoint) else None
    return OTLPSpanExporter(timeout=_EXPORT_TIMEOUT_S, channel_options=options)  # type: ignore[arg-type]  # its type knows only text options
