"""Where spans go when they leave the SDK: into a store of this process, or to a mesh."""

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import urlsplit

import grpc
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from trunkline import telemetry
from trunkline.errors import TrunklineError
from trunkline.settings import HostPort
from trunkline.traces.encoding import encoded
from trunkline.traces.spans import find_text, read_records
from trunkline.traces.store import SpanStore

_EXPORT_TIMEOUT_S = 2.0
_OPTIONS = (
    # A proxy that the environment names is for the world outside.
    ("grpc.enable_http_proxy", 0),
    # grpc would wait up to two minutes before it tries a restarted mesh again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


class StoreExporter(SpanExporter):
    """Puts spans into a store of this process."""

    def __init__(self, store: SpanStore) -> None:
        self._store = store

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Add spans to the store."""
        try:
            self._store.add(read_records(encoded(spans).resource_spans))
        except TrunklineError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS


class MeshExporter(SpanExporter):
    """Sends spans to a mesh by OTLP."""

    def __init__(self, mesh_address: str, *, is_collected: bool = False) -> None:
        self._metadata = ((telemetry.COLLECTED_KEY, "1"),) if is_collected else ()
        # The variables for a user's own collector (headers with keys among them) are not for us.
        self._channel = grpc.insecure_channel(mesh_address, options=_OPTIONS)
        # Generated without types.
        self._stub = trace_service_pb2_grpc.TraceServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        try:
            self._stub.Export(encoded(spans), timeout=_EXPORT_TIMEOUT_S, metadata=self._metadata)
        except grpc.RpcError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close the channel."""
        self._channel.close()


class ReceivedSpan(ReadableSpan):
    """Another process's span, as it came, that travels to the collector with our own."""

    def __init__(
        self,
        resource: trace_pb2.ResourceSpans,
        scope: trace_pb2.ScopeSpans,
        span: trace_pb2.Span,
    ) -> None:
        context = SpanContext(
            int.from_bytes(span.trace_id, "big"),
            int.from_bytes(span.span_id, "big"),
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )
        # Without a resource one would be made, from all that the environment says.
        super().__init__(span.name, context=context, resource=Resource.get_empty())
        # A copy: the rest of a long export need not wait for the collector, too.
        self.received = trace_pb2.ResourceSpans(
            resource=resource.resource, schema_url=resource.schema_url
        )
        self.received.scope_spans.add(scope=scope.scope, schema_url=scope.schema_url, spans=[span])


class CollectorExporter(OTLPSpanExporter):
    """OpenTelemetry's exporter, which reads the standard variables itself, for all our spans."""

    def __init__(self, endpoint: str) -> None:
        # A proxy that the environment names is for the world outside, never for this machine.
        options = (("grpc.enable_http_proxy", 0),) if _is_local(endpoint) else None
        super().__init__(channel_options=options)  # type: ignore[arg-type]  # its type knows only text options

    def _translate_data(self, data: Sequence[ReadableSpan]) -> otlp.ExportTraceServiceRequest:
        own = encoded([span for span in data if not isinstance(span, ReceivedSpan)])
        given = [span.received for span in data if isinstance(span, ReceivedSpan)]
        return group_by_service([*own.resource_spans, *given])


def received_spans(
    resources: Iterable[trace_pb2.ResourceSpans], ids: set[tuple[str, str]]
) -> Iterator[ReceivedSpan]:
    """Yield those spans of an export that have these trace and span ids."""
    for resource in resources:
        for scope in resource.scope_spans:
            for span in scope.spans:
                if (span.trace_id.hex(), span.span_id.hex()) in ids:
                    yield ReceivedSpan(resource, scope, span)


def group_by_service(
    resources: Iterable[trace_pb2.ResourceSpans],
) -> otlp.ExportTraceServiceRequest:
    """Return an export in which `service.name` of a span is the service that made it.

    A process may be several services, which a collector tells apart by nothing else; spans that
    name none keep the name of their process.
    """
    request = otlp.ExportTraceServiceRequest()
    groups: dict[tuple[bytes, bytes, str], trace_pb2.ScopeSpans] = {}
    for resource in resources:
        process = resource.resource.SerializeToString(deterministic=True)
        for scope in resource.scope_spans:
            library = scope.scope.SerializeToString(deterministic=True)
            for span in scope.spans:
                service = find_text(span.attributes, telemetry.SERVICE)
                key = (process, library, service)
                if key not in groups:
                    made = request.resource_spans.add(schema_url=resource.schema_url)
                    made.resource.CopyFrom(resource.resource)
                    _name(made.resource, service)
                    groups[key] = made.scope_spans.add(
                        scope=scope.scope, schema_url=scope.schema_url
                    )
                groups[key].spans.append(span)
    return request


def _name(resource: resource_pb2.Resource, service: str) -> None:
    if not service:
        return
    for attribute in resource.attributes:
        if attribute.key == telemetry.SERVICE_NAME:
            attribute.value.string_value = service
            return
    resource.attributes.add(key=telemetry.SERVICE_NAME).value.string_value = service


def _is_local(endpoint: str) -> bool:
    host = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}").hostname or ""
    return HostPort(host, 0).is_loopback
