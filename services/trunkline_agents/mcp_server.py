"""How our MCP servers answer: text that stands on its own, data beside it, mendable errors."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from ipaddress import ip_address
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from mcp_types import CallToolResult, TextContent, ToolAnnotations

from trunkline.errors import InvalidArgumentError, TrunklineError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter


MATCH_KEY = "trunkline/match"
"""In a tool's `_meta`: which questions it answers, and how its arguments are taken from them."""
MENDABLE_KEY = "trunkline/mendable"
"""In an error result's `_meta`: true when another question could be answered."""

READ_ONLY = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)


class ToolAnswer(Protocol):
    """What a tool found out."""

    @property
    def text(self) -> str:
        """The answer, for people."""
        ...

    @property
    def data(self) -> dict[str, Any]:
        """The answer by the tool's output schema."""
        ...


async def call_result(work: Awaitable[ToolAnswer]) -> CallToolResult:
    """Wait for the answer; a deliberate error becomes an error result with its text."""
    try:
        answer = await work
    except TrunklineError as error:
        return error_result(error)
    return CallToolResult(
        content=[TextContent(type="text", text=answer.text)], structured_content=answer.data
    )


def error_result(error: TrunklineError) -> CallToolResult:
    """The error result; `_meta` says whether the asker can mend it by asking differently."""
    is_mendable = isinstance(error, InvalidArgumentError)
    text = error.problem if isinstance(error, InvalidArgumentError) else str(error)
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        is_error=True,
        _meta={MENDABLE_KEY: is_mendable},
    )


_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_FLUSH_EVERY_MS = 500
_EXPORT_TIMEOUT_S = 2.0
_FLUSH_TIMEOUT_MS = 1_500


def _nothing() -> None:
    """There are no spans to flush."""


def start_tracing(service_name: str) -> Callable[[], None]:
    """Set up the exporter and return what flushes it; without an endpoint, do and load nothing.

    The service is named by OTEL_SERVICE_NAME, else `service_name`. The mcp library makes the spans.
    """
    endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)
    if endpoint is None or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return _nothing
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from trunkline_agents.span_exporter import LazySpanExporter

    exporter = LazySpanExporter(lambda: _exporter(endpoint))
    name = os.environ.get("OTEL_SERVICE_NAME") or service_name
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=_FLUSH_EVERY_MS))
    trace.set_tracer_provider(provider)

    def flush() -> None:
        provider.force_flush(_FLUSH_TIMEOUT_MS)

    return flush


def _exporter(endpoint: str) -> "SpanExporter":
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    # A proxy that the environment names is for the world outside, never for this machine.
    options = (("grpc.enable_http_proxy", 0),) if _is_loopback(endpoint) else None
    return OTLPSpanExporter(timeout=_EXPORT_TIMEOUT_S, channel_options=options)  # type: ignore[arg-type]  # its type knows only text options


def _is_loopback(endpoint: str) -> bool:
    host = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}").hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or endpoint.startswith("unix:")


def run_stdio_server(
    serve: Callable[[], Coroutine[None, None, None]], *, service_name: str
) -> None:
    """Run `serve` until its client closes stdin, or SIGTERM or SIGINT comes; flush the spans."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    flush = start_tracing(service_name)
    _leave_on_signals(flush)
    try:
        asyncio.run(serve())
    finally:
        flush()


def _leave_on_signals(flush: Callable[[], None]) -> None:
    def leave(_signal: int, _frame: FrameType | None) -> None:
        flush()
        # A thread of the mcp library waits on stdin and would hold up an orderly exit for ever.
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
