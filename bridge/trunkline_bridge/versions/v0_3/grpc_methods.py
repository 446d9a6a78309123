"""A2A v0.3 over gRPC: other names and numbers of fields for the same operations."""

from google.protobuf import empty_pb2

from trunkline.a2a.v0_3 import a2a_pb2, agent_card_pb2, task_pb2
from trunkline.a2a.v1 import a2a_pb2 as core_pb2
from trunkline_bridge.bindings import request_parser as params
from trunkline_bridge.bindings.grpc_service import GrpcService, StreamingGrpcMethod, UnaryGrpcMethod
from trunkline_bridge.bindings.grpc_status import v0_3_error_text
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.errors import WireError, invalid_params
from trunkline_bridge.protocol import V0_3
from trunkline_bridge.versions.v0_3 import proto_card as card
from trunkline_bridge.versions.v0_3 import proto_reader as requests
from trunkline_bridge.versions.v0_3 import proto_writer as writing
from trunkline_bridge.versions.v1_0.grpc_methods import empty_response


def _core_card(_request: a2a_pb2.GetAgentCardRequest) -> core_pb2.GetExtendedAgentCardRequest:
    return core_pb2.GetExtendedAgentCardRequest()


def _check_send(request: core_pb2.SendMessageRequest) -> core_pb2.SendMessageRequest:
    """Do as for v1.0, and say what is wrong in the words of v0.3."""
    try:
        return params.check_send(request)
    except WireError as error:
        said = ((_v0_3_words(name), _v0_3_words(problem)) for name, problem in error.violations)
        raise invalid_params(*said) from None


def _v0_3_words(text: str) -> str:
    return text.replace("message.parts", "message.content").replace("raw, url", "file")


SERVICE = GrpcService(
    package="a2a.v1",
    version=V0_3,
    error_text=v0_3_error_text,
    has_old_files=True,
    methods=(
        UnaryGrpcMethod(
            name="SendMessage",
            request=a2a_pb2.SendMessageRequest,
            response=a2a_pb2.SendMessageResponse,
            to_core=requests.from_v0_3_send,
            check=_check_send,
            call=Operations.send_message,
            from_core=writing.to_v0_3_send_response,
        ),
        StreamingGrpcMethod(
            name="SendStreamingMessage",
            request=a2a_pb2.SendMessageRequest,
            response=a2a_pb2.StreamResponse,
            to_core=requests.from_v0_3_send,
            check=_check_send,
            open=Operations.stream_message,
            event_from_core=writing.to_v0_3_stream_response,
        ),
        UnaryGrpcMethod(
            name="GetTask",
            request=a2a_pb2.GetTaskRequest,
            response=task_pb2.Task,
            to_core=requests.from_v0_3_get,
            check=params.check_get,
            call=Operations.get_task,
            from_core=writing.to_v0_3_task,
        ),
        UnaryGrpcMethod(
            name="CancelTask",
            request=a2a_pb2.CancelTaskRequest,
            response=task_pb2.Task,
            to_core=requests.from_v0_3_cancel,
            check=params.check_id,
            call=Operations.cancel_task,
            from_core=writing.to_v0_3_task,
        ),
        StreamingGrpcMethod(
            name="TaskSubscription",
            request=a2a_pb2.TaskSubscriptionRequest,
            response=a2a_pb2.StreamResponse,
            to_core=requests.from_v0_3_subscribe,
            check=params.check_id,
            open=Operations.subscribe_to_task,
            event_from_core=writing.to_v0_3_stream_response,
        ),
        UnaryGrpcMethod(
            name="CreateTaskPushNotificationConfig",
            request=a2a_pb2.CreateTaskPushNotificationConfigRequest,
            response=task_pb2.TaskPushNotificationConfig,
            to_core=requests.from_v0_3_create_push,
            check=params.check_push_config,
            call=Operations.create_push_config,
            from_core=writing.to_v0_3_push_config,
        ),
        UnaryGrpcMethod(
            name="GetTaskPushNotificationConfig",
            request=a2a_pb2.GetTaskPushNotificationConfigRequest,
            response=task_pb2.TaskPushNotificationConfig,
            to_core=requests.from_v0_3_get_push,
            call=Operations.get_push_config,
            from_core=writing.to_v0_3_push_config,
        ),
        UnaryGrpcMethod(
            name="ListTaskPushNotificationConfig",
            request=a2a_pb2.ListTaskPushNotificationConfigRequest,
            response=a2a_pb2.ListTaskPushNotificationConfigResponse,
            to_core=requests.from_v0_3_list_push,
            check=params.check_list_pushes,
            call=Operations.list_push_configs,
            from_core=writing.to_v0_3_push_configs,
        ),
        UnaryGrpcMethod(
            name="DeleteTaskPushNotificationConfig",
            request=a2a_pb2.DeleteTaskPushNotificationConfigRequest,
            response=empty_pb2.Empty,
            to_core=requests.from_v0_3_delete_push,
            check=params.check_push_ids,
            call=Operations.delete_push_config,
            from_core=empty_response,
        ),
        UnaryGrpcMethod(
            name="GetAgentCard",
            request=a2a_pb2.GetAgentCardRequest,
            response=agent_card_pb2.AgentCard,
            to_core=_core_card,
            call=lambda operations, caller, _request: operations.get_extended_card(caller),
            from_core=card.to_v0_3_agent_card,
        ),
    ),
)
