"""A2A v1.0 over gRPC. Its messages are those of the core model."""

from google.protobuf import empty_pb2

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.protocol import V1_0
from trunkline.v1 import agent_card_pb2, message_pb2, push_notification_pb2, task_pb2
from trunkline_bridge.bindings import operation_table as table
from trunkline_bridge.bindings.grpc_service import GrpcMethod, GrpcService
from trunkline_bridge.bindings.grpc_status import error_text


def _send_response(result: task_pb2.Task | message_pb2.Message) -> a2a_pb2.SendMessageResponse:
    if isinstance(result, message_pb2.Message):
        return a2a_pb2.SendMessageResponse(message=result)
    return a2a_pb2.SendMessageResponse(task=result)


def empty_response(_result: None) -> empty_pb2.Empty:
    """Return the response of an operation without a result."""
    return empty_pb2.Empty()


SERVICE = GrpcService(
    package="lf.a2a.v1",
    version=V1_0,
    error_text=error_text,
    methods=(
        GrpcMethod(
            name="SendMessage",
            operation=table.SEND_MESSAGE,
            request=a2a_pb2.SendMessageRequest,
            response=a2a_pb2.SendMessageResponse,
            from_core=_send_response,
        ),
        GrpcMethod(
            name="SendStreamingMessage",
            operation=table.SEND_STREAMING_MESSAGE,
            request=a2a_pb2.SendMessageRequest,
            response=a2a_pb2.StreamResponse,
        ),
        GrpcMethod(
            name="GetTask",
            operation=table.GET_TASK,
            request=a2a_pb2.GetTaskRequest,
            response=task_pb2.Task,
        ),
        GrpcMethod(
            name="ListTasks",
            operation=table.LIST_TASKS,
            request=a2a_pb2.ListTasksRequest,
            response=a2a_pb2.ListTasksResponse,
        ),
        GrpcMethod(
            name="CancelTask",
            operation=table.CANCEL_TASK,
            request=a2a_pb2.CancelTaskRequest,
            response=task_pb2.Task,
        ),
        GrpcMethod(
            name="SubscribeToTask",
            operation=table.SUBSCRIBE_TO_TASK,
            request=a2a_pb2.SubscribeToTaskRequest,
            response=a2a_pb2.StreamResponse,
        ),
        GrpcMethod(
            name="CreateTaskPushNotificationConfig",
            operation=table.CREATE_PUSH_CONFIG,
            request=push_notification_pb2.TaskPushNotificationConfig,
            response=push_notification_pb2.TaskPushNotificationConfig,
        ),
        GrpcMethod(
            name="GetTaskPushNotificationConfig",
            operation=table.GET_PUSH_CONFIG,
            request=a2a_pb2.GetTaskPushNotificationConfigRequest,
            response=push_notification_pb2.TaskPushNotificationConfig,
        ),
        GrpcMethod(
            name="ListTaskPushNotificationConfigs",
            operation=table.LIST_PUSH_CONFIGS,
            request=a2a_pb2.ListTaskPushNotificationConfigsRequest,
            response=a2a_pb2.ListTaskPushNotificationConfigsResponse,
        ),
        GrpcMethod(
            name="DeleteTaskPushNotificationConfig",
            operation=table.DELETE_PUSH_CONFIG,
            request=a2a_pb2.DeleteTaskPushNotificationConfigRequest,
            response=empty_pb2.Empty,
            from_core=empty_response,
        ),
        GrpcMethod(
            name="GetExtendedAgentCard",
            operation=table.GET_EXTENDED_CARD,
            request=a2a_pb2.GetExtendedAgentCardRequest,
            response=agent_card_pb2.AgentCard,
        ),
    ),
)
