"""A2A v0.3 over gRPC: other names and numbers of fields for the same operations."""

from google.protobuf import empty_pb2

from trunkline.a2a.v0_3 import a2a_pb2, agent_card_pb2, task_pb2
from trunkline.a2a.v1 import a2a_pb2 as core_pb2
from trunkline_bridge.errors import WireError, invalid_params
from trunkline_bridge.inbound.grpc.service import Service, Streaming, Unary
from trunkline_bridge.inbound.grpc.status import old_text_of
from trunkline_bridge.inbound.grpc.v1 import nothing
from trunkline_bridge.inbound.operations import Operations
from trunkline_bridge.inbound.reading import params
from trunkline_bridge.wire.v0_3_proto import card, requests, writing
from trunkline_bridge.wire.versions import V0_3


def _core_card(_request: a2a_pb2.GetAgentCardRequest) -> core_pb2.GetExtendedAgentCardRequest:
    return core_pb2.GetExtendedAgentCardRequest()


def _check_send(request: core_pb2.SendMessageRequest) -> core_pb2.SendMessageRequest:
    """Do as for v1.0, and say what is wrong in the words of v0.3."""
    try:
        return params.check_send(request)
    except WireError as error:
        said = ((_old(name), _old(problem)) for name, problem in error.violations)
        raise invalid_params(*said) from None


def _old(text: str) -> str:
    return text.replace("message.parts", "message.content").replace("raw, url", "file")


SERVICE = Service(
    package="a2a.v1",
    version=V0_3,
    text_of=old_text_of,
    has_old_files=True,
    methods=(
        Unary(
            name="SendMessage",
            request=a2a_pb2.SendMessageRequest,
            response=a2a_pb2.SendMessageResponse,
            core=requests.core_send,
            check=_check_send,
            answer=Operations.send,
            result=writing.send_response,
        ),
        Streaming(
            name="SendStreamingMessage",
            request=a2a_pb2.SendMessageRequest,
            response=a2a_pb2.StreamResponse,
            core=requests.core_send,
            check=_check_send,
            open=Operations.stream,
            event=writing.stream_response,
        ),
        Unary(
            name="GetTask",
            request=a2a_pb2.GetTaskRequest,
            response=task_pb2.Task,
            core=requests.core_get,
            check=params.check_get,
            answer=Operations.get,
            result=writing.task,
        ),
        Unary(
            name="CancelTask",
            request=a2a_pb2.CancelTaskRequest,
            response=task_pb2.Task,
            core=requests.core_cancel,
            check=params.check_id,
            answer=Operations.cancel,
            result=writing.task,
        ),
        Streaming(
            name="TaskSubscription",
            request=a2a_pb2.TaskSubscriptionRequest,
            response=a2a_pb2.StreamResponse,
            core=requests.core_subscribe,
            check=params.check_id,
            open=Operations.subscribe,
            event=writing.stream_response,
        ),
        Unary(
            name="CreateTaskPushNotificationConfig",
            request=a2a_pb2.CreateTaskPushNotificationConfigRequest,
            response=task_pb2.TaskPushNotificationConfig,
            core=requests.core_create_push,
            check=params.check_push_config,
            answer=Operations.create_push_config,
            result=writing.push_config,
        ),
        Unary(
            name="GetTaskPushNotificationConfig",
            request=a2a_pb2.GetTaskPushNotificationConfigRequest,
            response=task_pb2.TaskPushNotificationConfig,
            core=requests.core_get_push,
            answer=Operations.get_push_config,
            result=writing.push_config,
        ),
        Unary(
            name="ListTaskPushNotificationConfig",
            request=a2a_pb2.ListTaskPushNotificationConfigRequest,
            response=a2a_pb2.ListTaskPushNotificationConfigResponse,
            core=requests.core_list_push,
            check=params.check_list_pushes,
            answer=Operations.list_push_configs,
            result=writing.push_configs,
        ),
        Unary(
            name="DeleteTaskPushNotificationConfig",
            request=a2a_pb2.DeleteTaskPushNotificationConfigRequest,
            response=empty_pb2.Empty,
            core=requests.core_delete_push,
            check=params.check_push_ids,
            answer=Operations.delete_push_config,
            result=nothing,
        ),
        Unary(
            name="GetAgentCard",
            request=a2a_pb2.GetAgentCardRequest,
            response=agent_card_pb2.AgentCard,
            core=_core_card,
            answer=lambda operations, caller, _request: operations.extended_card(caller),
            result=card.agent_card,
        ),
    ),
)
