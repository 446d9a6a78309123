"""Sets up the OpenTelemetry SDK of a process: its provider and the targets of its spans.

Sampler, limits, resource, batches and exporters follow the standard `OTEL_*` variables.
"""

import os
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from opentelemetry import trace

from trunkline.observe import telemetry
from trunkline.observe.flushing import finish_exports
from trunkline.observe.otel_environment import is_sdk_disabled, make_resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from opentelemetry.proto.trace.v1 import trace_pb2
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

    from trunkline.observe.traces.exporters import MeshTarget
    from trunkline.observe.traces.processors import ProcessorSet, TargetProcessor
    from trunkline.observe.traces.store import SpanStore

# The set of processors that was added to each provider; a provider itself removes none.
_processor_sets: "WeakKeyDictionary[TracerProvider, ProcessorSet]" = WeakKeyDictionary()


class Tracing:
    """Targets that `configure_tracing` added. Its methods block for three seconds at most."""

    def __init__(
        self, provider: "TracerProvider", processors: "tuple[TargetProcessor, ...]"
    ) -> None:
        self._provider = provider
        self._processors = processors

    def flush(self) -> None:
        """Export the spans that have ended; a span that can't be exported now is lost."""
        self._finish(lambda processor: processor.force_flush())
        for processor in self._processors:
            processor.set_urgent(is_urgent=False)

    def shutdown(self) -> None:
        """Export the spans that have ended, then remove the targets."""
        processor_set = _processor_sets.get(self._provider)
        if processor_set is not None:
            processor_set.remove(self._processors)
        self._finish(lambda processor: processor.shutdown())

    def _finish(self, action: "Callable[[TargetProcessor], object]") -> None:
        for processor in self._processors:
            processor.set_urgent(is_urgent=True)
        finish_exports(partial(action, processor) for processor in self._processors)


def configure_tracing(
    service_name: str, *, store: "SpanStore | None" = None, mesh: "MeshTarget | None" = None
) -> Tracing:
    """Export this process's spans to `store`, to a mesh, and to a collector.

    A collector is used if `OTEL_TRACES_EXPORTER` names an exporter, or if
    `OTEL_EXPORTER_OTLP_ENDPOINT` or its variant for traces is set. With `OTEL_SDK_DISABLED=true`
    nothing is exported. A process may call this more than once: each call adds its targets, and
    `shutdown` of the result removes them. The first call sets the process's provider; a provider
    that the program has set before stays.
    """
    provider = _get_provider(service_name)
    if is_sdk_disabled():
        return Tracing(provider, ())
    processors = tuple(_make_processors(service_name, store, mesh))
    _get_processor_set(provider).add(processors)
    return Tracing(provider, processors)


def forward_to_collector(
    resources: "Iterable[trace_pb2.ResourceSpans]", ids: set[tuple[str, str]]
) -> None:
    """Export the spans of another process that have these trace and span ids to the collector.

    They share a queue with the spans of this process. A full queue drops the oldest span.
    """
    from opentelemetry.sdk.trace import TracerProvider

    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider) or provider not in _processor_sets:
        return
    collectors = _processor_sets[provider].collectors
    if not collectors:
        return
    from trunkline.observe.traces.collector import decode_spans

    for span in decode_spans(resources, ids):
        for collector in collectors:
            collector.on_end(span)


def _get_provider(service_name: str) -> "TracerProvider":
    from opentelemetry.sdk.trace import TracerProvider

    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        return provider
    new_provider = make_provider(service_name)
    trace.set_tracer_provider(new_provider)
    return new_provider


def make_provider(service_name: str) -> "TracerProvider":
    """Return a provider as the environment configures it; `service_name` is only the default."""
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider

    resource = make_resource(service_name)
    # OpenTelemetry's default is no limit.
    has_limit = "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT" in os.environ
    limits = SpanLimits(max_attribute_length=None if has_limit else telemetry.ATTRIBUTE_LIMIT_CHARS)
    # Each caller of `configure_tracing` shuts down its own targets.
    return TracerProvider(resource=resource, shutdown_on_exit=False, span_limits=limits)


def _get_processor_set(provider: "TracerProvider") -> "ProcessorSet":
    from trunkline.observe.traces.processors import ProcessorSet

    if provider not in _processor_sets:
        processor_set = _processor_sets[provider] = ProcessorSet()
        provider.add_span_processor(processor_set)
    return _processor_sets[provider]


def _make_processors(
    service_name: str, store: "SpanStore | None", mesh: "MeshTarget | None"
) -> "Iterator[TargetProcessor]":
    from trunkline.observe.traces.exporters import MeshExporter, StoreExporter
    from trunkline.observe.traces.processors import TargetProcessor

    collectors = _make_collectors()
    if store is not None:
        yield TargetProcessor(StoreExporter(store), target="store")
    if mesh is not None:
        exporter = MeshExporter(mesh, is_collected=bool(collectors), service=service_name)
        yield TargetProcessor(exporter, target=",".join(mesh.addresses))
    for target, collector in collectors:
        # OpenTelemetry's exporters retry by themselves.
        yield TargetProcessor(collector, target=target, retry_s=0, is_collector=True)


def _make_collectors() -> "list[tuple[str, SpanExporter]]":
    if not any(name.startswith("OTEL_") for name in os.environ):
        # Most processes need no exporters, which load slowly.
        return []
    from trunkline.observe.traces.collector import collector_exporters

    return list(collector_exporters())
