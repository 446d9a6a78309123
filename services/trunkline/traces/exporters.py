"""Where spans go when they leave the SDK: into a store of this process, or to a mesh.

What goes wrong here is logged once and costs spans, never work.
"""

import logging
import threading
from collections.abc import Sequence

import grpc
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from trunkline import telemetry
from trunkline.errors import TrunklineError
from trunkline.traces.spans import spans_of
from trunkline.traces.store import SpanStore

logger = logging.getLogger(__name__)

_EXPORT_TIMEOUT_S = 2.0


class StoreExporter(SpanExporter):
    """Puts spans into a store of this process."""

    def __init__(self, store: SpanStore) -> None:
        self._store = store

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Add spans to the store."""
        try:
            self._store.add(spans_of(encode_spans(spans).resource_spans))
        except TrunklineError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS


class MeshExporter(SpanExporter):
    """Sends spans to a mesh by OTLP; they are lost while it can't be reached."""

    def __init__(self, mesh_address: str, *, is_collected: bool = False) -> None:
        self._metadata = ((telemetry.COLLECTED_KEY, "1"),) if is_collected else ()
        # The variables for a user's own collector (headers with keys among them) are not for us.
        self._channel = grpc.insecure_channel(
            mesh_address, options=(("grpc.enable_http_proxy", 0),)
        )
        # Generated without types.
        self._stub = trace_service_pb2_grpc.TraceServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        try:
            self._stub.Export(
                encode_spans(spans), timeout=_EXPORT_TIMEOUT_S, metadata=self._metadata
            )
        except grpc.RpcError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close the channel."""
        self._channel.close()


class ReportingExporter(SpanExporter):
    """Passes spans on, and logs when that begins to fail and when it works again."""

    def __init__(self, exporter: SpanExporter, *, target: str) -> None:
        self._exporter = exporter
        self._target = target
        # A flush exports beside the processor's own thread: each change is told by one of them.
        self._lock = threading.Lock()
        self._fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export by the other exporter, whose exceptions end here."""
        try:
            result = self._exporter.export(spans)
        # An exporter's trouble of whatever kind may not disturb work, nor fill the log.
        except Exception as error:
            result = SpanExportResult.FAILURE
            logger.debug("traces.export_raised", exc_info=error, extra={"target": self._target})
        fails = result is not SpanExportResult.SUCCESS
        with self._lock:
            failed, self._fails = self._fails, fails
        if fails and not failed:
            logger.warning("traces.export_failed", extra={"target": self._target})
        elif failed and not fails:
            logger.info("traces.export_recovered", extra={"target": self._target})
        return result

    def shutdown(self) -> None:
        """Shut the other exporter down."""
        self._exporter.shutdown()
