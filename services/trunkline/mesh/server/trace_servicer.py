"""Serves the span store: trunkline.v1.TraceService for readers, OTLP's TraceService for writers."""

import asyncio
import logging
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from trunkline.core.identity import Identity, Role
from trunkline.errors import OverloadedError
from trunkline.mesh.server.authorization import caller
from trunkline.observe import telemetry
from trunkline.observe.traces.sdk import forward_to_collector
from trunkline.observe.traces.spans import (
    MCP_SERVER_PREFIX,
    read_records,
    remove_spans,
    replace_text,
)
from trunkline.observe.traces.store import SpanStore
from trunkline.v1 import trace_service_pb2, trace_service_pb2_grpc

logger = logging.getLogger(__name__)

_EDGES_INTERVAL_S = 1.0


class TraceServicer(trace_service_pb2_grpc.TraceServiceServicer):
    """Serves trunkline.v1.TraceService from a store."""

    def __init__(self, store: SpanStore) -> None:
        self._store = store

    async def GetTrace(
        self,
        request: trace_service_pb2.GetTraceRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> trace_service_pb2.GetTraceResponse:
        spans = await self._store.run_in_thread(
            self._store.get_trace, trace_id=request.trace_id, task_id=request.task_id
        )
        return trace_service_pb2.GetTraceResponse(spans=spans)

    async def ListTraces(
        self,
        request: trace_service_pb2.ListTracesRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> trace_service_pb2.ListTracesResponse:
        return await self._store.run_in_thread(
            self._store.list_traces, page_size=request.page_size, page_token=request.page_token
        )

    async def WatchTraces(
        self,
        request: trace_service_pb2.WatchTracesRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[trace_service_pb2.WatchTracesResponse]:
        has_changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        change = self._store.latest_change
        with self._store.subscribe(lambda: loop.call_soon_threadsafe(has_changed.set)):
            # The empty response tells the client that the watch is established.
            yield trace_service_pb2.WatchTracesResponse()
            while True:
                await has_changed.wait()
                has_changed.clear()
                traces, change = await self._store.run_in_thread(self._store.list_changed, change)
                while traces:
                    yield trace_service_pb2.WatchTracesResponse(traces=traces)
                    traces, change = await self._store.run_in_thread(
                        self._store.list_changed, change
                    )

    async def WatchEdges(
        self,
        request: trace_service_pb2.WatchEdgesRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[trace_service_pb2.WatchEdgesResponse]:
        has_changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        last: list[trace_service_pb2.Edge] | None = None
        with self._store.subscribe(lambda: loop.call_soon_threadsafe(has_changed.set)):
            while True:
                has_changed.clear()
                edges = await self._store.run_in_thread(self._store.list_edges)
                if edges != last:
                    yield trace_service_pb2.WatchEdgesResponse(edges=edges)
                    last = edges
                # While there are edges, their calls leave the window without any new span.
                await asyncio.sleep(_EDGES_INTERVAL_S)
                if not edges:
                    await has_changed.wait()


# More spans of one export are rejected by OTLP's partial success.
MAX_SPANS_PER_EXPORT = 5000
# Exports that may wait for the store. More are refused with OverloadedError.
_WAITING_EXPORTS = 16


class OtlpServicer(otlp_grpc.TraceServiceServicer):
    """Serves OTLP's TraceService into a store.

    Spans that are new in the store are forwarded to the user's collector, unless the sender exports
    to a collector itself. Forwarding only new spans prevents a loop in a mesh that is its own
    collector.

    A process that joined by a token exports spans of its services only, and its spans name it
    (`telemetry.EXPORTER`).
    """

    def __init__(self, store: SpanStore) -> None:
        self._store = store
        self._waiting = 0
        # The processes whose spans were refused, which is logged once for each.
        self._refused: set[str] = set()

    async def Export(
        self,
        request: otlp.ExportTraceServiceRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> otlp.ExportTraceServiceResponse:
        if self._waiting >= _WAITING_EXPORTS:
            raise OverloadedError(agent="the span store", retry_after_s="1")
        self._waiting += 1
        try:
            return await self._store.run_in_thread(
                self._store_spans, request, caller.get(), is_collected=_is_collected(context)
            )
        finally:
            self._waiting -= 1

    def _store_spans(
        self, request: otlp.ExportTraceServiceRequest, identity: Identity, *, is_collected: bool
    ) -> otlp.ExportTraceServiceResponse:
        sent_count = sum(
            len(scope.spans)
            for resource in request.resource_spans
            for scope in resource.scope_spans
        )
        refused = self._remove_foreign(request, identity)
        spans = list(islice(read_records(request.resource_spans), MAX_SPANS_PER_EXPORT))
        exporter = "" if identity.role is Role.MEMBER else str(identity)
        added = self._store.add(spans, exporter)
        if not is_collected:
            for resource in request.resource_spans:
                replace_text(resource.resource, telemetry.EXPORTER, exporter)
            forward_to_collector(request.resource_spans, added)
        response = otlp.ExportTraceServiceResponse()
        if refused:
            response.partial_success.error_message = (
                f"{identity} may export spans of its services only; "
                "see service.name of the resource"
            )
        elif sent_count > len(spans):
            response.partial_success.error_message = (
                f"a span needs a trace id and a span id of the right length that are not zeros, "
                f"and an export may hold {MAX_SPANS_PER_EXPORT} spans"
            )
        if sent_count > len(spans):
            response.partial_success.rejected_spans = sent_count - len(spans)
        return response

    def _remove_foreign(self, request: otlp.ExportTraceServiceRequest, identity: Identity) -> int:
        """Remove the spans of services that a process does not have; return their number."""
        if identity.role is Role.MEMBER:
            return 0

        def is_foreign(resource: resource_pb2.Resource, span: trace_pb2.Span) -> bool:
            # All of them: readers differ in which they take of attributes with the same key.
            services = {
                attribute.value.string_value
                for attribute in resource.attributes
                if attribute.key == telemetry.SERVICE_NAME
            } or {""}
            services |= {
                attribute.value.string_value
                for attribute in span.attributes
                if attribute.key == telemetry.SERVICE
            }
            return not all(_may_export(identity, service) for service in services)

        refused = remove_spans(request.resource_spans, is_foreign)
        if refused and identity.subject not in self._refused:
            self._refused.add(identity.subject)
            extra = {"identity": str(identity), "spans": refused}
            logger.warning("traces.spans_refused", extra=extra)
        return refused


def _may_export(identity: Identity, service: str) -> bool:
    """Return True if a process that joined may export spans of a service."""
    if identity.role is Role.AGENTS:
        return service in identity.agents
    is_tool_server = identity.role is Role.TOOLS and service.startswith(MCP_SERVER_PREFIX)
    return is_tool_server or service == identity.role


def _is_collected(context: grpc.aio.ServicerContext[Any, Any]) -> bool:
    return any(key == telemetry.COLLECTED_KEY for key, _ in context.invocation_metadata() or ())
