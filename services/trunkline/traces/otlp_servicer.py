"""Takes spans from other processes: OTLP's TraceService, into the span store.

What is new there goes on to the user's collector, but from processes that send to one themselves.
That only new spans do keeps any from going round when a mesh, in the end, is its own collector.
"""

from itertools import islice
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc

from trunkline import telemetry
from trunkline.errors import OverloadedError
from trunkline.traces.configure import pass_on
from trunkline.traces.spans import records_of
from trunkline.traces.store import SpanStore

# What comes in one export beyond this is refused, as the protocol has it: in part.
SPANS_IN_AN_EXPORT = 5000
# Exports that may wait for the store before others are told to come again.
_WAITING_EXPORTS = 16


class OtlpServicer(otlp_grpc.TraceServiceServicer):
    """OTLP's TraceService over a store."""

    def __init__(self, store: SpanStore) -> None:
        self._store = store
        self._waiting = 0

    async def Export(
        self,
        request: otlp.ExportTraceServiceRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> otlp.ExportTraceServiceResponse:
        if self._waiting >= _WAITING_EXPORTS:
            raise OverloadedError(agent="the span store", retry_after_s="1")
        self._waiting += 1
        try:
            return await self._store.in_thread(
                self._keep, request, is_collected=_is_collected(context)
            )
        finally:
            self._waiting -= 1

    def _keep(
        self, request: otlp.ExportTraceServiceRequest, *, is_collected: bool
    ) -> otlp.ExportTraceServiceResponse:
        sent = sum(
            len(scope.spans)
            for resource in request.resource_spans
            for scope in resource.scope_spans
        )
        spans = list(islice(records_of(request.resource_spans), SPANS_IN_AN_EXPORT))
        added = self._store.add(spans)
        if not is_collected:
            pass_on(request.resource_spans, added)
        response = otlp.ExportTraceServiceResponse()
        if sent > len(spans):
            response.partial_success.rejected_spans = sent - len(spans)
            response.partial_success.error_message = (
                f"spans need proper ids, and an export takes {SPANS_IN_AN_EXPORT} at most"
            )
        return response


def _is_collected(context: grpc.aio.ServicerContext[Any, Any]) -> bool:
    return any(key == telemetry.COLLECTED_KEY for key, _ in context.invocation_metadata() or ())
