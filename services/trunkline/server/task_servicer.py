"""Serves trunkline.v1.TaskService: reads, watches and cancels the tasks of a host."""

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc

from trunkline.server.frames import watch_responses
from trunkline.tasks.host import TaskHost
from trunkline.v1 import task_service_pb2

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

SERVICE = task_service_pb2.DESCRIPTOR.services_by_name["TaskService"].full_name


class TaskServicer:
    """A host's tasks. Methods that aren't here yet are unimplemented."""

    def __init__(self, host: TaskHost) -> None:
        self._host = host

    async def GetTask(
        self, request: task_service_pb2.GetTaskRequest, _context: _Context
    ) -> task_service_pb2.GetTaskResponse:
        snapshot = await self._host.snapshot(request.task_id, account=request.account)
        return task_service_pb2.GetTaskResponse(snapshot=snapshot)

    async def ListTasks(
        self, request: task_service_pb2.ListTasksRequest, _context: _Context
    ) -> task_service_pb2.ListTasksResponse:
        return self._host.list(request)

    async def CancelTask(
        self, request: task_service_pb2.CancelTaskRequest, _context: _Context
    ) -> task_service_pb2.CancelTaskResponse:
        snapshot = await self._host.cancel(
            request.task_id, account=request.account, reason=request.reason
        )
        return task_service_pb2.CancelTaskResponse(snapshot=snapshot)

    async def WatchTask(
        self, request: task_service_pb2.WatchTaskRequest, _context: _Context
    ) -> AsyncIterator[bytes]:
        after = request.after_sequence if request.HasField("after_sequence") else None
        frames = self._host.watch(
            request.task_id,
            account=request.account,
            after=after,
            with_snapshot=request.with_snapshot,
            until_head=request.until_head,
        )
        if not request.with_snapshot and self._is_at_head(request.task_id, after):
            # Nothing may come for long: an empty response tells the reader that its watch stands.
            yield b""
        async for frame in frames:
            for response in watch_responses(frame):
                yield response

    def handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        """Return the methods by name; the stream's responses are bytes already."""
        contract = task_service_pb2
        return {
            "GetTask": grpc.unary_unary_rpc_method_handler(
                self.GetTask,
                request_deserializer=contract.GetTaskRequest.FromString,
                response_serializer=contract.GetTaskResponse.SerializeToString,
            ),
            "ListTasks": grpc.unary_unary_rpc_method_handler(
                self.ListTasks,
                request_deserializer=contract.ListTasksRequest.FromString,
                response_serializer=contract.ListTasksResponse.SerializeToString,
            ),
            "CancelTask": grpc.unary_unary_rpc_method_handler(
                self.CancelTask,
                request_deserializer=contract.CancelTaskRequest.FromString,
                response_serializer=contract.CancelTaskResponse.SerializeToString,
            ),
            "WatchTask": grpc.unary_stream_rpc_method_handler(
                self.WatchTask, request_deserializer=contract.WatchTaskRequest.FromString
            ),
        }

    def _is_at_head(self, task_id: str, after: int | None) -> bool:
        return after is None or after >= self._host.journal.row(task_id).head
