"""Serves the span store to its readers: trunkline.v1.TraceService."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from trunkline.traces.store import SpanStore
from trunkline.v1 import trace_service_pb2, trace_service_pb2_grpc


class TraceServicer(trace_service_pb2_grpc.TraceServiceServicer):
    """TraceService over a store."""

    def __init__(self, store: SpanStore) -> None:
        self._store = store

    async def GetTrace(
        self,
        request: trace_service_pb2.GetTraceRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> trace_service_pb2.GetTraceResponse:
        spans = await self._store.in_thread(
            self._store.get_trace, trace_id=request.trace_id, task_id=request.task_id
        )
        return trace_service_pb2.GetTraceResponse(spans=spans)

    async def ListTraces(
        self,
        request: trace_service_pb2.ListTracesRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> trace_service_pb2.ListTracesResponse:
        return await self._store.in_thread(
            self._store.list_traces, page_size=request.page_size, page_token=request.page_token
        )

    async def WatchTraces(
        self,
        request: trace_service_pb2.WatchTracesRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[trace_service_pb2.WatchTracesResponse]:
        news = asyncio.Event()
        loop = asyncio.get_running_loop()
        change = self._store.change
        with self._store.listening(lambda: loop.call_soon_threadsafe(news.set)):
            # Says that the watch is on: what is done from now on will be seen.
            yield trace_service_pb2.WatchTracesResponse()
            while True:
                await news.wait()
                news.clear()
                traces, change = await self._store.in_thread(self._store.changed_since, change)
                while traces:
                    yield trace_service_pb2.WatchTracesResponse(traces=traces)
                    traces, change = await self._store.in_thread(self._store.changed_since, change)
