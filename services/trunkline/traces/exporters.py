"""Where spans go when they leave the SDK: into a store of this process, or to a mesh."""

from collections.abc import Sequence

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from trunkline import telemetry
from trunkline.errors import TrunklineError
from trunkline.traces.encoding import encoded
from trunkline.traces.spans import records_of
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
            self._store.add(records_of(encoded(spans).resource_spans))
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
