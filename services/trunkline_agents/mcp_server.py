"""Shared by the MCP servers of the bundled agents: answers, tracing, and running on stdio.

An answer is a text that can be read alone, and data with the same content. Tools declare the
questions that they answer under `trunkline/match` in their `_meta`. An error result has
`trunkline/mendable` in its `_meta`, which says whether a different question could be answered.
"""

import asyncio
import inspect
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeAlias

from mcp_types import CallToolResult, TextContent, ToolAnnotations

from trunkline.errors import InvalidArgumentError, TrunklineError

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

_Params = ParamSpec("_Params")
MatchRuleJson: TypeAlias = dict[str, Any]
"""A pattern of questions, and the arguments made of a match, as JSON."""
MATCH_KEY = "trunkline/match"
"""In a tool's `_meta`: its match rules."""
MENDABLE_KEY = "trunkline/mendable"
"""In an error result's `_meta`: true if a different question could be answered."""


def match_whole(rules: Sequence[MatchRuleJson]) -> list[MatchRuleJson]:
    """Return rules that match whole questions, with or without punctuation at their end."""
    return [{**rule, "pattern": rf"^\s*(?:{rule['pattern']})\s*[?.!]*$"} for rule in rules]


def build_tool_server(
    name: str,
    tools: Iterable[tuple[Callable[..., Any], str, ToolAnnotations, Sequence[MatchRuleJson]]],
    *,
    title: str,
    instructions: str,
) -> "MCPServer[Any]":
    """Return an MCP server with tools: each a function, a title, annotations and match rules."""
    from mcp.server import MCPServer

    server: MCPServer[Any] = MCPServer(
        name, title=title, instructions=instructions, log_level="WARNING"
    )
    for function, tool_title, annotations, rules in tools:
        meta = {MATCH_KEY: match_whole(rules)}
        server.add_tool(function, title=tool_title, annotations=annotations, meta=meta)
    return server


READ_ONLY = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
READ_ONLY_REMOTE = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True
)
"""For tools that read from other services."""

_EXPORTER_VARIABLES = (
    "OTEL_TRACES_EXPORTER",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
)
# OpenTelemetry's defaults are for servers, which live longer than a tool's process.
_DEFAULTS = {"OTEL_BSP_SCHEDULE_DELAY": "500", "OTEL_EXPORTER_OTLP_TIMEOUT": "2"}
_FLUSH_TIMEOUT_MS = 1_500


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a tool: for people, and as data of the tool's output schema."""

    text: str
    data: Any


def tool(
    output: type,
) -> Callable[
    [Callable[_Params, Awaitable[ToolAnswer]]],
    Callable[_Params, Coroutine[Any, Any, CallToolResult]],
]:
    """Return the decorator that makes a function with an answer a tool.

    `output` is the type of the answer's data, from which the tool has its output schema. A
    TrunklineError becomes an error result. Any other exception is raised.
    """

    def decorate(
        function: Callable[_Params, Awaitable[ToolAnswer]],
    ) -> Callable[_Params, Coroutine[Any, Any, CallToolResult]]:
        @wraps(function)
        async def call(*args: _Params.args, **kwargs: _Params.kwargs) -> CallToolResult:
            try:
                answer = await function(*args, **kwargs)
            except TrunklineError as error:
                return error_result(error)
            content = TextContent(type="text", text=answer.text)
            return CallToolResult(content=[content], structured_content=answer.data)

        # MCPServer reads the schemas from the signature.
        signature = inspect.signature(function).replace(
            return_annotation=Annotated[CallToolResult, output]
        )
        setattr(call, "__signature__", signature)  # noqa: B010  functions have no such attribute
        return call

    return decorate


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
    """Run `serve` until its client closes stdin, or on SIGTERM or SIGINT; flush the spans.

    Then the process exits.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    flush = start_tracing(service_name)
    _exit_on_signals(flush)
    try:
        asyncio.run(serve())
    finally:
        flush()
    # Everything is closed. The teardown of the interpreter would take a fifth of a second more, and
    # a mesh that stops would wait for it.
    os._exit(0)


def _exit_on_signals(flush: Callable[[], None]) -> None:
    def leave(_signal: int, _frame: FrameType | None) -> None:
        flush()
        # A thread of the mcp library blocks on stdin and would prevent an orderly exit.
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)


def start_tracing(service_name: str) -> Callable[[], None]:
    """Export spans as the `OTEL_*` variables say; return a function to flush.

    Without an exporter or an endpoint in them, nothing is loaded or exported. OTEL_SERVICE_NAME
    overrides `service_name`. The mcp library makes the spans.
    """
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if is_disabled or not any(os.environ.get(name) for name in _EXPORTER_VARIABLES):
        return _flush_nothing
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    for variable, value in _DEFAULTS.items():
        os.environ.setdefault(variable, value)
    name = os.environ.get("OTEL_SERVICE_NAME") or service_name
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(_make_exporter()))
    trace.set_tracer_provider(provider)

    def flush() -> None:
        provider.force_flush(_FLUSH_TIMEOUT_MS)

    return flush


def _flush_nothing() -> None:
    """There are no spans to flush."""


def _make_exporter() -> "SpanExporter":
    """Return an exporter that loads the mesh's exporters with its first spans.

    gRPC is a fifth of an idle server's memory.
    """
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class LazyExporter(SpanExporter):
        def __init__(self) -> None:
            self._exporters: list[SpanExporter] | None = None

        def export(self, spans: "Sequence[ReadableSpan]") -> SpanExportResult:
            if self._exporters is None:
                from trunkline.observe.traces.collector import collector_exporters

                self._exporters = [exporter for _, exporter in collector_exporters()]
            results = [exporter.export(spans) for exporter in self._exporters]
            is_failure = SpanExportResult.FAILURE in results
            return SpanExportResult.FAILURE if is_failure else SpanExportResult.SUCCESS

        def shutdown(self) -> None:
            for exporter in self._exporters or ():
                exporter.shutdown()

    return LazyExporter()
