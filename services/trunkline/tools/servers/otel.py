"""Sends the spans of an MCP server process to an OTLP endpoint, if the environment names one."""

import os
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

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

    from trunkline.tools.servers.exporter import OnDemandExporter

    exporter = OnDemandExporter(lambda: _exporter(endpoint))
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
