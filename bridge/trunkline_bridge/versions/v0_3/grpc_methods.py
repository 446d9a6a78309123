"""A2A v0.3 over gRPC: the same operations as v1.0 with other messages."""

from google.protobuf import empty_pb2

from trunkline.a2a.v0_3 import a2a_pb2, agent_card_pb2, task_pb2
from trunkline.a2a.v1 import a2a_pb2 as core_pb2
from trunkline.a2a_wire.errors import EXTENDED_CARD_NOT_CONFIGURED, WireError, invalid_params
from trunkline.a2a_wire.protocol import V0_3
from trunkline.a2a_wire.v0_3 import proto_card, proto_reader, proto_writer
from trunkline_bridge.bindings import operation_table as table
from trunkline_bridge.bindings import request_parser as parser
from trunkline_bridge.bindings.grpc_service import GrpcMethod, GrpcService
from trunkline_bridge.versions.v1_0.grpc_methods import empty_response

# The names that can't be derived from the reason of the error.
_ERROR_NAMES = {
    EXTENDED_CARD_NOT_CONFIGURED.reason: "AuthenticatedExtendedCardNotConfiguredError",
}
# The reasons that v0.3 has names for. Other errors have only their status.
_NAMED_REASONS = frozenset(
    {
        "TASK_NOT_FOUND",
        "TASK_NOT_CANCELABLE",
        "PUSH_NOTIFICATION_NOT_SUPPORTED",
        "UNSUPPORTED_OPERATION",
        "CONTENT_TYPE_NOT_SUPPORTED",
        "INVALID_AGENT_RESPONSE",
        "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
        "INVALID_PARAMS",
        "INVALID_REQUEST",
        "INTERNAL_ERROR",
    }
)


def v0_3_error_text(error: WireError) -> str:
    """Return the text of an error. Clients recognize the error by the name before the colon."""
    name = v0_3_error_name(error)
    return f"{name}: {error.text}" if name else error.text


def v0_3_error_name(error: WireError) -> str:
    """Return the name of an error in v0.3; empty: it has none."""
    reason = error.kind.reason
    if reason not in _NAMED_REASONS:
        return ""
    words = "".join(word.capitalize() for word in reason.removesuffix("_ERROR").split("_"))
    return _ERROR_NAMES.get(reason, f"{words}Error")


def _core_card_request(
    _request: a2a_pb2.GetAgentCardRequest,
) -> core_pb2.GetExtendedAgentCardRequest:
    return core_pb2.GetExtendedAgentCardRequest()


def _check_send(request: core_pb2.SendMessageRequest) -> core_pb2.SendMessageRequest:
    """Validate like v1.0, with the field names of v0.3 in errors."""
    try:
        return parser.check_send(request)
    except WireError as error:
        violations = ((_translate(name), _translate(text)) for name, text in error.violations)
        raise invalid_params(*violations) from None


def _translate(text: str) -> str:
    """Replace the names of v1.0 by those of v0.3."""
    return text.replace("message.parts", "message.content").replace("raw, url", "file")


SERVICE = GrpcService(
    package="a2a.v1",
    version=V0_3,
    error_text=v0_3_error_text,
    has_file_bytes=True,
    methods=(
        GrpcMethod(
            name="SendMessage",
            operation=table.SEND_MESSAGE,
            request=a2a_pb2.SendMessageRequest,
            response=a2a_pb2.SendMessageResponse,
            to_core=proto_reader.from_v0_3_send,
            check=_check_send,
            from_core=proto_writer.to_v0_3_send_response,
        ),
        GrpcMethod(
            name="SendStreamingMessage",
            operation=table.SEND_STREAMING_MESSAGE,
            request=a2a_pb2.SendMessageRequest,
            response=a2a_pb2.StreamResponse,
            to_core=proto_reader.from_v0_3_send,
            check=_check_send,
            from_core=proto_writer.to_v0_3_stream_response,
        ),
        GrpcMethod(
            name="GetTask",
            operation=table.GET_TASK,
            request=a2a_pb2.GetTaskRequest,
            response=task_pb2.Task,
            to_core=proto_reader.from_v0_3_get,
            from_core=proto_writer.to_v0_3_task,
        ),
        GrpcMethod(
            name="CancelTask",
            operation=table.CANCEL_TASK,
            request=a2a_pb2.CancelTaskRequest,
            response=task_pb2.Task,
            to_core=proto_reader.from_v0_3_cancel,
            from_core=proto_writer.to_v0_3_task,
        ),
        GrpcMethod(
            name="TaskSubscription",
            operation=table.SUBSCRIBE_TO_TASK,
            request=a2a_pb2.TaskSubscriptionRequest,
            response=a2a_pb2.StreamResponse,
            to_core=proto_reader.from_v0_3_subscribe,
            from_core=proto_writer.to_v0_3_stream_response,
        ),
        GrpcMethod(
            name="CreateTaskPushNotificationConfig",
            operation=table.CREATE_PUSH_CONFIG,
            request=a2a_pb2.CreateTaskPushNotificationConfigRequest,
            response=task_pb2.TaskPushNotificationConfig,
            to_core=proto_reader.from_v0_3_create_push,
            from_core=proto_writer.to_v0_3_push_config,
        ),
        GrpcMethod(
            name="GetTaskPushNotificationConfig",
            operation=table.GET_PUSH_CONFIG,
            request=a2a_pb2.GetTaskPushNotificationConfigRequest,
            response=task_pb2.TaskPushNotificationConfig,
            to_core=proto_reader.from_v0_3_get_push,
            # The config id may be missing: then it is the task's first config.
            check=table.unchanged,
            from_core=proto_writer.to_v0_3_push_config,
        ),
        GrpcMethod(
            name="ListTaskPushNotificationConfig",
            operation=table.LIST_PUSH_CONFIGS,
            request=a2a_pb2.ListTaskPushNotificationConfigRequest,
            response=a2a_pb2.ListTaskPushNotificationConfigResponse,
            to_core=proto_reader.from_v0_3_list_push,
            from_core=proto_writer.to_v0_3_push_configs,
        ),
        GrpcMethod(
            name="DeleteTaskPushNotificationConfig",
            operation=table.DELETE_PUSH_CONFIG,
            request=a2a_pb2.DeleteTaskPushNotificationConfigRequest,
            response=empty_pb2.Empty,
            to_core=proto_reader.from_v0_3_delete_push,
            from_core=empty_response,
        ),
        GrpcMethod(
            name="GetAgentCard",
            operation=table.GET_EXTENDED_CARD,
            request=a2a_pb2.GetAgentCardRequest,
            response=agent_card_pb2.AgentCard,
            to_core=_core_card_request,
            from_core=proto_card.to_v0_3_agent_card,
        ),
    ),
)
