"""A2A v1.0 over gRPC: its messages are the core's, byte by byte."""

from google.protobuf import empty_pb2

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import agent_card_pb2, message_pb2, push_notification_pb2, task_pb2
from trunkline_bridge.inbound.grpc.service import Service, Streaming, Unary
from trunkline_bridge.inbound.grpc.status import text_of
from trunkline_bridge.inbound.operations import Operations
from trunkline_bridge.inbound.reading import params
from trunkline_bridge.wire.versions import V1_0


def _send_response(answer: task_pb2.Task | message_pb2.Message) -> a2a_pb2.SendMessageResponse:
    if isinstance(answer, message_pb2.Message):
        return a2a_pb2.SendMessageResponse(message=answer)
    return a2a_pb2.SendMessageResponse(task=answer)


def nothing(_answer: None) -> empty_pb2.Empty:
    """Say that it is done."""
    return empty_pb2.Empty()


SERVICE = Service(
    package="lf.a2a.v1",
    version=V1_0,
    text_of=text_of,
    methods=(
        Unary(
            name="SendMessage",
            request=a2a_pb2.SendMessageRequest,
            response=a2a_pb2.SendMessageResponse,
            check=params.check_send,
            answer=Operations.send,
            result=_send_response,
        ),
        Streaming(
            name="SendStreamingMessage",
            request=a2a_pb2.SendMessageRequest,
            response=a2a_pb2.StreamResponse,
            check=params.check_send,
            open=Operations.stream,
        ),
        Unary(
            name="GetTask",
            request=a2a_pb2.GetTaskRequest,
            response=task_pb2.Task,
            check=params.check_get,
            answer=Operations.get,
        ),
        Unary(
            name="ListTasks",
            request=a2a_pb2.ListTasksRequest,
            response=a2a_pb2.ListTasksResponse,
            check=params.check_list,
            answer=Operations.list,
        ),
        Unary(
            name="CancelTask",
            request=a2a_pb2.CancelTaskRequest,
            response=task_pb2.Task,
            check=params.check_id,
            answer=Operations.cancel,
        ),
        Streaming(
            name="SubscribeToTask",
            request=a2a_pb2.SubscribeToTaskRequest,
            response=a2a_pb2.StreamResponse,
            check=params.check_id,
            open=Operations.subscribe,
        ),
        Unary(
            name="CreateTaskPushNotificationConfig",
            request=push_notification_pb2.TaskPushNotificationConfig,
            response=push_notification_pb2.TaskPushNotificationConfig,
            check=params.check_push_config,
            answer=Operations.create_push_config,
        ),
        Unary(
            name="GetTaskPushNotificationConfig",
            request=a2a_pb2.GetTaskPushNotificationConfigRequest,
            response=push_notification_pb2.TaskPushNotificationConfig,
            check=params.check_push_ids,
            answer=Operations.get_push_config,
        ),
        Unary(
            name="ListTaskPushNotificationConfigs",
            request=a2a_pb2.ListTaskPushNotificationConfigsRequest,
            response=a2a_pb2.ListTaskPushNotificationConfigsResponse,
            check=params.check_list_pushes,
            answer=Operations.list_push_configs,
        ),
        Unary(
            name="DeleteTaskPushNotificationConfig",
            request=a2a_pb2.DeleteTaskPushNotificationConfigRequest,
            response=empty_pb2.Empty,
            check=params.check_push_ids,
            answer=Operations.delete_push_config,
            result=nothing,
        ),
        Unary(
            name="GetExtendedAgentCard",
            request=a2a_pb2.GetExtendedAgentCardRequest,
            response=agent_card_pb2.AgentCard,
            answer=lambda operations, caller, _request: operations.extended_card(caller),
        ),
    ),
)
