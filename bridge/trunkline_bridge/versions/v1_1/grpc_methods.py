"""A2A v1.1 over gRPC: the service of v1.0, under the same name, with v1.1's messages."""

from collections.abc import Mapping
from dataclasses import replace

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a.v1_1 import a2a_pb2 as v1_1_pb2
from trunkline.v1 import message_pb2
from trunkline_bridge.bindings import operation_table as table
from trunkline_bridge.bindings.grpc_service import GrpcMethod, GrpcService
from trunkline_bridge.protocol import V1_1
from trunkline_bridge.versions.v1_0 import grpc_methods as v1_0
from trunkline_bridge.versions.v1_1 import messages


def _send_response(
    result: v1_1_pb2.Task | message_pb2.Message,
) -> v1_1_pb2.SendMessageResponse:
    if isinstance(result, message_pb2.Message):
        return v1_1_pb2.SendMessageResponse(message=result)
    return v1_1_pb2.SendMessageResponse(task=result)


def _to_core_send(request: v1_1_pb2.SendMessageRequest) -> a2a_pb2.SendMessageRequest:
    return messages.to_core(request, a2a_pb2.SendMessageRequest)


def _to_core_get(request: v1_1_pb2.GetTaskRequest) -> a2a_pb2.GetTaskRequest:
    return messages.to_core(request, a2a_pb2.GetTaskRequest)


def _to_core_list(request: v1_1_pb2.ListTasksRequest) -> a2a_pb2.ListTasksRequest:
    return messages.to_core(request, a2a_pb2.ListTasksRequest)


# The methods whose messages v1.1 changes.
_CHANGED = (
    GrpcMethod(
        name="SendMessage",
        operation=table.SEND_MESSAGE,
        request=v1_1_pb2.SendMessageRequest,
        response=v1_1_pb2.SendMessageResponse,
        to_core=_to_core_send,
        from_core=_send_response,
    ),
    GrpcMethod(
        name="SendStreamingMessage",
        operation=table.SEND_STREAMING_MESSAGE,
        request=v1_1_pb2.SendMessageRequest,
        response=v1_1_pb2.StreamResponse,
        to_core=_to_core_send,
        from_event=messages.to_stream_response,
    ),
    GrpcMethod(
        name="GetTask",
        operation=table.GET_TASK,
        request=v1_1_pb2.GetTaskRequest,
        response=v1_1_pb2.Task,
        to_core=_to_core_get,
    ),
    GrpcMethod(
        name="ListTasks",
        operation=table.LIST_TASKS,
        request=v1_1_pb2.ListTasksRequest,
        response=v1_1_pb2.ListTasksResponse,
        to_core=_to_core_list,
    ),
    GrpcMethod(
        name="CancelTask",
        operation=table.CANCEL_TASK,
        request=a2a_pb2.CancelTaskRequest,
        response=v1_1_pb2.Task,
    ),
    GrpcMethod(
        name="SubscribeToTask",
        operation=table.SUBSCRIBE_TO_TASK,
        request=a2a_pb2.SubscribeToTaskRequest,
        response=v1_1_pb2.StreamResponse,
        from_event=messages.to_stream_response,
    ),
)
_BY_NAME: Mapping[str, GrpcMethod] = {method.name: method for method in _CHANGED}

SERVICE = GrpcService(
    package=v1_0.SERVICE.package,
    version=V1_1,
    error_text=v1_0.SERVICE.error_text,
    methods=tuple(
        replace(_BY_NAME.get(method.name, method), update_caller=messages.read_message)
        for method in v1_0.SERVICE.methods
    ),
)
