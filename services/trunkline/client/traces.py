"""Calls to the mesh's span store."""

import grpc

from trunkline.client.channels import peer_of
from trunkline.client.hosts.calls import UNARY_TIMEOUT_S
from trunkline.client.status import mesh_errors
from trunkline.v1 import trace_service_pb2, trace_service_pb2_grpc


class TraceClient:
    """The span store as its readers see it. Every method raises TrunklineErrors only."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._peer = peer_of(channel)
        self._stub = trace_service_pb2_grpc.TraceServiceStub(channel)

    async def get_trace(
        self, trace_id: str = "", task_id: str = ""
    ) -> list[trace_service_pb2.Span]:
        """Return the spans of a trace, named by its own id or by a task's, by start time.

        Raises:
            TraceNotFoundError: none are in the store.
        """
        request = trace_service_pb2.GetTraceRequest(trace_id=trace_id, task_id=task_id)
        with mesh_errors(self._peer):
            response = await self._stub.GetTrace(request, timeout=UNARY_TIMEOUT_S)
        return list(response.spans)

    async def list_traces(
        self, page_size: int = 0, page_token: str = ""
    ) -> trace_service_pb2.ListTracesResponse:
        """Return a page of traces, newest first."""
        request = trace_service_pb2.ListTracesRequest(page_size=page_size, page_token=page_token)
        with mesh_errors(self._peer):
            return await self._stub.ListTraces(request, timeout=UNARY_TIMEOUT_S)
