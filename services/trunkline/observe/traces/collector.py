"""Exports spans to the user's collector: this process's own, and those received over OTLP.

The exporters are OpenTelemetry's own, selected and configured by the standard `OTEL_*` variables.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from trunkline.observe import telemetry
from trunkline.observe.otel_environment import make_exporters

_KINDS: Final = {
    trace_pb2.Span.SPAN_KIND_SERVER: SpanKind.SERVER,
    trace_pb2.Span.SPAN_KIND_CLIENT: SpanKind.CLIENT,
    trace_pb2.Span.SPAN_KIND_PRODUCER: SpanKind.PRODUCER,
    trace_pb2.Span.SPAN_KIND_CONSUMER: SpanKind.CONSUMER,
}


def collector_exporters() -> "Iterator[tuple[str, SpanExporter]]":
    """Yield the exporters of spans that the environment asks for, each with its target."""
    for target, exporter in make_exporters("traces"):
        yield target, ServiceExporter(exporter)


class ServiceExporter(SpanExporter):
    """Exports each span under the service that made it.

    One process may run several services, and a collector tells services apart by the resource's
    `service.name` alone. A span without `trunkline.service` keeps its process's name.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans with their services' resources."""
        # By identity: the hash of a Resource serializes all its attributes.
        resources: dict[tuple[int, str], Resource] = {}
        return self._exporter.export([_with_service(span, resources) for span in spans])

    def shutdown(self) -> None:
        """Shut the wrapped exporter down."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the wrapped exporter."""
        return self._exporter.force_flush(timeout_millis)


def _with_service(span: ReadableSpan, resources: dict[tuple[int, str], Resource]) -> ReadableSpan:
    """Return a span with its service's resource, which is taken from or added to `resources`."""
    service = (span.attributes or {}).get(telemetry.SERVICE)
    if not isinstance(service, str) or not service:
        return span
    key = (id(span.resource), service)
    if key not in resources:
        resources[key] = span.resource.merge(Resource({telemetry.SERVICE_NAME: service}))
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=resources[key],
        attributes=span.attributes,
        events=span.events,
        links=span.links,
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def decode_spans(
    resources: Iterable[trace_pb2.ResourceSpans], ids: set[tuple[str, str]]
) -> Iterator[ReadableSpan]:
    """Yield the spans of an OTLP export whose (trace id, span id) is in `ids`, both hexadecimal."""
    for resource in resources:
        decoded: Resource | None = None
        for scope in resource.scope_spans:
            for span in scope.spans:
                if (span.trace_id.hex(), span.span_id.hex()) in ids:
                    decoded = decoded or Resource(
                        _decode_attributes(resource.resource.attributes), resource.schema_url
                    )
                    yield _decode_span(span, decoded, _decode_scope(scope))


def _decode_span(
    span: trace_pb2.Span, resource: Resource, scope: InstrumentationScope
) -> ReadableSpan:
    state = TraceState.from_header([span.trace_state]) if span.trace_state else None
    return ReadableSpan(
        name=span.name,
        context=_decode_context(span.trace_id, span.span_id, state),
        parent=_decode_context(span.trace_id, span.parent_span_id) if span.parent_span_id else None,
        resource=resource,
        attributes=_decode_attributes(span.attributes),
        events=[
            Event(event.name, _decode_attributes(event.attributes), event.time_unix_nano)
            for event in span.events
        ],
        links=[
            Link(_decode_context(link.trace_id, link.span_id), _decode_attributes(link.attributes))
            for link in span.links
        ],
        kind=_KINDS.get(span.kind, SpanKind.INTERNAL),
        status=_decode_status(span.status),
        start_time=span.start_time_unix_nano,
        end_time=span.end_time_unix_nano,
        instrumentation_scope=scope,
    )


def _decode_context(
    trace_id: bytes, span_id: bytes, state: TraceState | None = None
) -> SpanContext:
    return SpanContext(
        int.from_bytes(trace_id, "big"),
        int.from_bytes(span_id, "big"),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
        trace_state=state,
    )


def _decode_scope(scope: trace_pb2.ScopeSpans) -> InstrumentationScope:
    return InstrumentationScope(scope.scope.name, scope.scope.version, scope.schema_url)


def _decode_status(status: trace_pb2.Status) -> Status:
    if status.code == trace_pb2.Status.STATUS_CODE_ERROR:
        return Status(StatusCode.ERROR, status.message)
    if status.code == trace_pb2.Status.STATUS_CODE_OK:
        return Status(StatusCode.OK)
    return Status()


def _decode_attributes(attributes: Iterable[common_pb2.KeyValue]) -> dict[str, Any]:
    return {attribute.key: _decode_value(attribute.value) for attribute in attributes}


def _decode_value(value: common_pb2.AnyValue) -> Any:  # noqa: ANN401  as OTLP's AnyValue
    match value.WhichOneof("value"):
        case "array_value":
            return [_decode_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return _decode_attributes(value.kvlist_value.values)
        case None:
            return None
        case kind:
            return getattr(value, kind)
