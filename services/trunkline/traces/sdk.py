"""Sets up the OpenTelemetry SDK of a process: what is sampled, and where spans go."""

import logging
import os
import time
from threading import Thread
from typing import TYPE_CHECKING

from opentelemetry import trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from opentelemetry.proto.trace.v1 import trace_pb2
    from opentelemetry.sdk.trace import TracerProvider

    from trunkline.traces.delivery import DeliveryProcessor
    from trunkline.traces.store import SpanStore

logger = logging.getLogger(__name__)

_FLUSH_TIMEOUT_S = 3.0
_COLLECTOR_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class Tracing:
    """What `configure` set up. Its methods block, for a few seconds at most."""

    def __init__(self, processors: "tuple[DeliveryProcessor, ...]") -> None:
        self._processors = processors

    def flush(self) -> None:
        """Send the spans that have ended; what can't be sent now is lost."""
        self._hurry(lambda processor: processor.force_flush())
        for processor in self._processors:
            processor.hurry(is_urgent=False)

    def shutdown(self) -> None:
        """Send the spans that have ended, and take no more."""
        from trunkline.traces.provider import MeshTracerProvider

        provider = trace.get_tracer_provider()
        if isinstance(provider, MeshTracerProvider):
            provider.remove(self._processors)
        self._hurry(lambda processor: processor.close())

    def _hurry(self, end: "Callable[[DeliveryProcessor], object]") -> None:
        for processor in self._processors:
            processor.hurry(is_urgent=True)
        # A collector that is gone would hold a processor up for half a minute.
        threads = [Thread(target=end, args=(one,), daemon=True) for one in self._processors]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + _FLUSH_TIMEOUT_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def configure_tracing(
    service_name: str, *, store: "SpanStore | None" = None, mesh_address: str | None = None
) -> Tracing:
    """Send this process's spans to `store`, to the mesh at `mesh_address`, and to a collector.

    To a collector only if the user has set OTEL_EXPORTER_OTLP_ENDPOINT, or its variant for traces.
    All traces are sampled, but for those of callers who say not to. A process may configure more
    than once: each call adds its targets, and `shutdown` of what it returned takes them away.
    """
    processors = tuple(_processors(store, mesh_address))
    provider = _provider(service_name)
    for processor in processors:
        provider.add_span_processor(processor)
    return Tracing(processors)


def forward_to_collector(
    resources: "Iterable[trace_pb2.ResourceSpans]", ids: set[tuple[str, str]]
) -> None:
    """Send other processes' spans, those with these trace and span ids, to the collector, if any.

    They wait with this process's own: the oldest are lost when there are too many of both.
    """
    from trunkline.traces.provider import MeshTracerProvider

    provider = trace.get_tracer_provider()
    collector = provider.collector if isinstance(provider, MeshTracerProvider) else None
    if collector is None:
        return
    from trunkline.traces.exporters import received_spans

    for span in received_spans(resources, ids):
        collector.on_end(span)


def _provider(service_name: str) -> "TracerProvider":
    from opentelemetry.sdk.trace import TracerProvider

    from trunkline.traces.provider import MeshTracerProvider

    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        # Ours of before, or that of a program which we are a part of.
        return provider
    made = MeshTracerProvider(service_name)
    trace.set_tracer_provider(made)
    return made


def _processors(
    store: "SpanStore | None", mesh_address: str | None
) -> "Iterator[DeliveryProcessor]":
    from trunkline.traces.delivery import Delivery, DeliveryProcessor
    from trunkline.traces.exporters import MeshExporter, StoreExporter
    from trunkline.traces.provider import CollectorProcessor

    collector = _collector_endpoint()
    if store is not None:
        yield DeliveryProcessor(Delivery(StoreExporter(store), target="store"))
    if mesh_address is not None:
        meshed = MeshExporter(mesh_address, is_collected=bool(collector))
        yield DeliveryProcessor(Delivery(meshed, target=mesh_address))
    if collector:
        from trunkline.traces.exporters import CollectorExporter

        # It tells of each failed try; our own line says it once.
        logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)
        yield CollectorProcessor(Delivery(CollectorExporter(collector), target=collector))


def _collector_endpoint() -> str:
    """Return where the user wants spans sent, or an empty text."""
    endpoint = _first_of(_COLLECTOR_VARIABLES)
    protocol = _first_of(_PROTOCOL_VARIABLES) or "grpc"
    if endpoint and protocol != "grpc":
        logger.warning("traces.protocol_not_supported", extra={"protocol": protocol})
        return ""
    return endpoint


def _first_of(variables: tuple[str, ...]) -> str:
    return next((value for name in variables if (value := os.environ.get(name))), "")
