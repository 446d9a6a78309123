"""Span exporters of the mesh: to a span store in this process, and to the mesh over OTLP."""

import itertools
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan, Span
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from trunkline.core.backoff import Backoff
from trunkline.core.identity import MESH_NAME, MeshCredentials, Role
from trunkline.errors import TrunklineError
from trunkline.observe import telemetry
from trunkline.observe.traces.encoding import encode
from trunkline.observe.traces.spans import read_records, replace_text
from trunkline.observe.traces.store import SpanStore

logger = logging.getLogger(__name__)

RETRY_S: Final = 10.0
"""The time for which a refused batch is retried before it is dropped."""
_EXPORT_TIMEOUT_S = 2.0
_OPTIONS = (
    # A proxy from the environment is for outside addresses.
    ("grpc.enable_http_proxy", 0),
    # gRPC's default waits up to two minutes before it reconnects to a restarted mesh.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.ssl_target_name_override", MESH_NAME),
)


@dataclass(frozen=True, slots=True)
class MeshTarget:
    """A mesh that takes the spans of this process."""

    addresses: Sequence[str]
    """The addresses of its registries. If one does not answer, the next one gets the spans."""
    credentials: MeshCredentials


class StoreExporter(SpanExporter):
    """Adds spans to a store in this process."""

    def __init__(self, store: SpanStore) -> None:
        self._store = store

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Add spans to the store."""
        try:
            self._store.add(read_records(encode(spans).resource_spans))
        except TrunklineError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS


class MeshExporter(SpanExporter):
    """Sends spans to a mesh over OTLP, one attempt per export.

    OpenTelemetry's OTLP exporter is for the user's collector: it reads the user's headers, which
    may hold keys, and reconnects too slowly for a mesh that restarts.
    """

    def __init__(self, mesh: MeshTarget, *, is_collected: bool = False, service: str = "") -> None:
        """Connect to a mesh. `is_collected`: this process also exports to a collector.

        `service` is the name under which a process that joined by a token sends its spans. The
        mesh refuses its spans under the name in `OTEL_SERVICE_NAME`.
        """
        is_member = mesh.credentials.identity.role is Role.MEMBER
        self._service = "" if is_member else service
        self._has_reported = False
        self._metadata = ((telemetry.COLLECTED_KEY, "1"),) if is_collected else ()
        self._mesh = mesh
        self._addresses = itertools.cycle(mesh.addresses)
        self._connect()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        if self._mesh.credentials.generation != self._generation:
            # The batch processor exports one batch at a time, so no call is open.
            self._channel.close()
            self._connect()
        request = encode(spans)
        if self._service:
            for resource in request.resource_spans:
                replace_text(resource.resource, telemetry.SERVICE_NAME, self._service)
        try:
            response = self._stub.Export(
                request, timeout=_EXPORT_TIMEOUT_S, metadata=self._metadata
            )
        except grpc.RpcError:
            if len(self._mesh.addresses) > 1:
                self._channel.close()
                self._connect()
            return SpanExportResult.FAILURE
        if response.partial_success.rejected_spans and not self._has_reported:
            self._has_reported = True
            extra = {"problem": response.partial_success.error_message}
            logger.warning("traces.spans_not_accepted", extra=extra)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _connect(self) -> None:
        credentials = self._mesh.credentials
        self._generation = credentials.generation
        self._channel = grpc.secure_channel(
            next(self._addresses), credentials.channel_credentials(), options=_OPTIONS
        )
        # The generated stub has no types.
        self._stub = trace_service_pb2_grpc.TraceServiceStub(self._channel)  # type: ignore[no-untyped-call]


class RetryingExporter(SpanExporter):
    """Retries another exporter with backoff, and logs an outage once.

    The first failure logs `traces.export_failed`; the first success after it logs
    `traces.export_recovered` with the number of lost spans.
    """

    def __init__(self, exporter: SpanExporter, *, target: str, retry_s: float = RETRY_S) -> None:
        """Wrap an exporter. `target` names it in the log; `retry_s` 0 makes a single attempt."""
        self._exporter = exporter
        self._target = target
        self._retry_s = retry_s
        self._is_urgent = threading.Event()
        # The batch processor exports one batch at a time, so these need no lock.
        self._is_failing = False
        self._lost = 0

    def set_urgent(self, *, is_urgent: bool) -> None:
        """While urgent, make a single attempt for each batch, and end a retry that waits."""
        if is_urgent:
            self._is_urgent.set()
        else:
            self._is_urgent.clear()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans; exceptions of the wrapped exporter count as failures.

        A span that was queued at its start and has ended meanwhile is left out, because it is in
        the queue again.
        """
        spans = [span for span in spans if not isinstance(span, Span) or span.is_recording()]
        if not spans:
            return SpanExportResult.SUCCESS
        backoff = Backoff()
        deadline = time.monotonic() + self._retry_s
        while (result := self._attempt(spans)) is not SpanExportResult.SUCCESS:
            if not self._is_failing:
                self._is_failing = True
                logger.warning("traces.export_failed", extra={"target": self._target})
            pause_s = backoff.next_s()
            if time.monotonic() + pause_s > deadline or self._is_urgent.wait(pause_s):
                self._lost += len(spans)
                return result
        if self._is_failing:
            extra = {"target": self._target, "lost": self._lost}
            logger.info("traces.export_recovered", extra=extra)
            self._is_failing, self._lost = False, 0
        return result

    def shutdown(self) -> None:
        """Shut the wrapped exporter down."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the wrapped exporter."""
        return self._exporter.force_flush(timeout_millis)

    def _attempt(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            return self._exporter.export(spans)
        # An exporter's failure of any kind must neither stop the export thread nor fill the log.
        except Exception as error:
            logger.debug("traces.export_raised", exc_info=error, extra={"target": self._target})
            return SpanExportResult.FAILURE
