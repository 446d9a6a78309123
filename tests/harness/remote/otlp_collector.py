"""A collector that takes traces, metrics and logs over OTLP/gRPC, and keeps them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs_pb
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2

PATIENCE_S: Final = 120.0


@dataclass
class Collected:
    """The exports that a collector has received."""

    address: str = ""
    metrics: list[metrics_pb.ExportMetricsServiceRequest] = field(default_factory=list)
    logs: list[logs_pb.ExportLogsServiceRequest] = field(default_factory=list)
    traces: list[traces_pb.ExportTraceServiceRequest] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def find_metrics(self, name: str) -> list[metrics_pb2.Metric]:
        """Return the exports of an instrument, in order."""
        return [
            metric
            for export in self.metrics
            for resource in export.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]

    def records(self) -> Iterator[logs_pb2.LogRecord]:
        """Yield all records of logs, in order."""
        for export in self.logs:
            for resource in export.resource_logs:
                for scope in resource.scope_logs:
                    yield from scope.log_records

    async def wait_until(self, is_there: Callable[["Collected"], bool]) -> None:
        """Wait until something has arrived."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_there(self):
                self._changed.clear()
                await self._changed.wait()

    def notify(self) -> None:
        """Wake what waits."""
        self._changed.set()


class _Metrics(metrics_grpc.MetricsServiceServicer):
    def __init__(self, collected: Collected) -> None:
        self._collected = collected

    async def Export(  # noqa: N802
        self, request: metrics_pb.ExportMetricsServiceRequest, context: Any
    ) -> metrics_pb.ExportMetricsServiceResponse:
        self._collected.metrics.append(request)
        self._collected.notify()
        return metrics_pb.ExportMetricsServiceResponse()


class _Logs(logs_grpc.LogsServiceServicer):
    def __init__(self, collected: Collected) -> None:
        self._collected = collected

    async def Export(  # noqa: N802
        self, request: logs_pb.ExportLogsServiceRequest, context: Any
    ) -> logs_pb.ExportLogsServiceResponse:
        self._collected.logs.append(request)
        self._collected.notify()
        return logs_pb.ExportLogsServiceResponse()


class _Traces(traces_grpc.TraceServiceServicer):
    def __init__(self, collected: Collected) -> None:
        self._collected = collected

    async def Export(  # noqa: N802
        self, request: traces_pb.ExportTraceServiceRequest, context: Any
    ) -> traces_pb.ExportTraceServiceResponse:
        self._collected.traces.append(request)
        self._collected.notify()
        return traces_pb.ExportTraceServiceResponse()


@asynccontextmanager
async def open_collector() -> AsyncIterator[Collected]:
    """Run a collector, whose address is in the result."""
    collected = Collected()
    server = grpc.aio.server()
    metrics_grpc.add_MetricsServiceServicer_to_server(_Metrics(collected), server)  # type: ignore[no-untyped-call]
    logs_grpc.add_LogsServiceServicer_to_server(_Logs(collected), server)  # type: ignore[no-untyped-call]
    traces_grpc.add_TraceServiceServicer_to_server(_Traces(collected), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    collected.address = f"http://127.0.0.1:{port}"
    await server.start()
    try:
        yield collected
    finally:
        await server.stop(0)
