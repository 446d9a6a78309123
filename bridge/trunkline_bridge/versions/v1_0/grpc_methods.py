"""A2A v1.0 over gRPC: its messages are the core's, byte by byte."""

from google.protobuf import empty_pb2

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import agent_card_pb2, message_pb2, push_notification_pb2, task_pb2
from trunkline_bridge.bindings import request_parser as params
from trunkline_bridge.bindings.grpc_service import GrpcService, StreamingGrpcMethod, UnaryGrpcMethod
from trunkline_bridge.bindings.grpc_status import error_text
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.protocol import V1_0


def _send_response(answer: task_pb2.Task | message_pb2.Message) -> a2a_pb2.SendMessageResponse:
    if isinstance(answer, message_pb2.Message):
        return a2a_pb2.SendMessageResponse(message=answer)
    return a2a_pb2.SendMessageResponse(task=answer)


def empty_response(_answer: None) -> empty_pb2.Empty:
    """Say that it is done."""
    return empty_pb2.Empty()


SERVICE = GrpcService(
    package="lf.a2a.v1",
    version=V1_0,
    error_text=error_text,
    methods=(
        UnaryGrpcMethod(
            name="SendMessage",
            request=a2a_pb2.SendMessageRequest,
            response=a2a_pb2.SendMessageResponse,
            check=params.check_send,
            call=Operations.send_message,
            from_core=_send_response,
        ),
        StreamingGrpcMethod(
            name="SendStreamingMessage",
            request=a2a_pb2.SendMessageRequest,
            response=a2a_pb2.StreamResponse,
            check=params.check_send,
            open=Operations.stream_message,
        ),
        UnaryGrpcMethod(
            name="GetTask",
            request=a2a_pb2.GetTaskRequest,
            response=task_pb2.Task,
            check=params.check_get,
            call=Operations.get_task,
        ),
        UnaryGrpcMethod(
            name="ListTasks",
            request=a2a_pb2.ListTasksRequest,
            response=a2a_pb2.ListTasksResponse,
            check=params.check_list,
            call=Operations.list_tasks,
        ),
        UnaryGrpcMethod(
            name="CancelTask",
            request=a2a_pb2.CancelTaskRequest,
            response=task_pb2.Task,
            check=params.check_id,
            call=Operations.cancel_task,
        ),
        StreamingGrpcMethod(
            name="SubscribeToTask",
            request=a2a_pb2.SubscribeToTaskRequest,
            response=a2a_pb2.StreamResponse,
            check=params.check_id,
            open=Operations.subscribe_to_task,
        ),
        UnaryGrpcMethod(
            name="CreateTaskPushNotificationConfig",
            request=push_notification_pb2.TaskPushNotificationConfig,
            response=push_notification_pb2.TaskPushNotificationConfig,
            check=params.check_push_config,
            call=Operations.create_push_config,
        ),
        UnaryGrpcMethod(
            name="GetTaskPushNotificationConfig",
            request=a2a_pb2.GetTaskPushNotificationConfigRequest,
            response=push_notification_pb2.TaskPushNotificationConfig,
            check=params.check_push_ids,
            call=Operations.get_push_config,
        ),
        UnaryGrpcMethod(
            name="ListTaskPushNotificationConfigs",
            request=a2a_pb2.ListTaskPushNotificationConfigsRequest,
            response=a2a_pb2.ListTaskPushNotificationConfigsResponse,
            check=params.check_list_pushes,
            call=Operations.list_push_configs,
        ),
        UnaryGrpcMethod(
            name="DeleteTaskPushNotificationConfig",
            request=a2a_pb2.DeleteTaskPushNotificationConfigRequest,
            response=empty_pb2.Empty,
            check=params.check_push_ids,
            call=Operations.delete_push_config,
            from_core=empty_response,
        ),
        UnaryGrpcMethod(
            name="GetExtendedAgentCard",
            request=a2a_pb2.GetExtendedAgentCardRequest,
            response=agent_card_pb2.AgentCard,
            call=lambda operations, caller, _request: operations.get_extended_card(caller),
        ),
    ),
)
