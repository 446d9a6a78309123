"""The methods of A2A v0.3: the older form of each operation of v1.0, for the server and the client.

v0.3 names the objects of gRPC and HTTP+JSON by resource names: `tasks/TASK` and
`tasks/TASK/pushNotificationConfigs/WEBHOOK`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import empty_pb2
from google.protobuf.message import Message

from trunkline.a2a.v0_3 import a2a_pb2 as v0_3_pb2
from trunkline.a2a.v0_3 import agent_card_pb2 as v0_3_card_pb2
from trunkline.a2a.v0_3 import task_pb2 as v0_3_task_pb2
from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire import card_json
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.v0_3 import json_writer, proto_card, proto_reader, proto_writer
from trunkline.json_values import message_to_dict
from trunkline.v1 import message_pb2, push_notification_pb2, task_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class V03Method:
    """An operation in v0.3. Its `read` functions convert to v1.0, its `write` functions from it."""

    jsonrpc: str
    """The method over JSON-RPC."""
    grpc: str
    """The method over gRPC."""
    request: type[Message]
    """The request over gRPC; over HTTP+JSON it is the same as ProtoJSON."""
    response: type[Message]
    """The response over gRPC and, as ProtoJSON, over HTTP+JSON; for a stream, each event."""
    read_request: Callable[[Any], Any]
    """Raises WireError if the resource name is invalid."""
    write_request: Callable[[Any], Message]
    read_response: Callable[[Any], Any]
    write_response: Callable[[Any], Message]
    params_json: Callable[[Any], Json] = message_to_dict
    """Converts a request of v1.0 to the parameters of JSON-RPC."""
    result_json: Callable[[Any], object] = json_writer.stream_response_json
    """Converts a response of v1.0 to the result of JSON-RPC."""
    name_field: str = ""
    """The field of the request with the resource name, or empty if the request has none."""
    path: str = ""
    """The path over HTTP+JSON, if it differs from v1.0."""


def _task_name(request: Any) -> str:  # noqa: ANN401  several requests with the same field
    return f"tasks/{request.id}"


def _config_name(request: Any) -> str:  # noqa: ANN401  two requests with the same fields
    return f"tasks/{request.task_id}/pushNotificationConfigs/{request.id}"


def _config_params(request: Any) -> Json:  # noqa: ANN401  two requests with the same fields
    return {"id": request.task_id, "pushNotificationConfigId": request.id}


def _unchanged(message: Any) -> Any:  # noqa: ANN401  any message
    return message


def _send_result_json(result: task_pb2.Task | message_pb2.Message) -> Json:
    if isinstance(result, message_pb2.Message):
        return json_writer.message_json(result)
    return json_writer.task_json(result)


def _write_get(request: a2a_pb2.GetTaskRequest) -> v0_3_pb2.GetTaskRequest:
    return v0_3_pb2.GetTaskRequest(name=_task_name(request), history_length=request.history_length)


def _write_create(
    request: push_notification_pb2.TaskPushNotificationConfig,
) -> v0_3_pb2.CreateTaskPushNotificationConfigRequest:
    return v0_3_pb2.CreateTaskPushNotificationConfigRequest(
        parent=f"tasks/{request.task_id}",
        config_id=request.id,
        config=proto_writer.to_v0_3_push_config(request),
    )


def _write_list(
    request: a2a_pb2.ListTaskPushNotificationConfigsRequest,
) -> v0_3_pb2.ListTaskPushNotificationConfigRequest:
    return v0_3_pb2.ListTaskPushNotificationConfigRequest(
        parent=f"tasks/{request.task_id}",
        page_size=request.page_size,
        page_token=request.page_token,
    )


def _read_config(
    response: v0_3_task_pb2.TaskPushNotificationConfig,
) -> push_notification_pb2.TaskPushNotificationConfig:
    config = proto_reader.from_v0_3_push_config(response.push_notification_config)
    names = response.name.split("/")
    config.task_id = names[1] if len(names) > 1 else ""
    config.id = config.id or (names[3] if len(names) > 3 else "")
    return config


def _read_configs(
    response: v0_3_pb2.ListTaskPushNotificationConfigResponse,
) -> a2a_pb2.ListTaskPushNotificationConfigsResponse:
    return a2a_pb2.ListTaskPushNotificationConfigsResponse(
        configs=[_read_config(entry) for entry in response.configs],
        next_page_token=response.next_page_token,
    )


def _push_configs_json(page: a2a_pb2.ListTaskPushNotificationConfigsResponse) -> list[Json]:
    return [json_writer.push_config_json(config) for config in page.configs]


def _no_json(_message: object) -> Json:
    return {}


def _no_response(_response: object) -> empty_pb2.Empty:
    return empty_pb2.Empty()


SEND_MESSAGE: Final = V03Method(
    jsonrpc="message/send",
    grpc="SendMessage",
    request=v0_3_pb2.SendMessageRequest,
    response=v0_3_pb2.SendMessageResponse,
    read_request=proto_reader.from_v0_3_send,
    write_request=proto_reader.to_v0_3_send,
    read_response=proto_reader.from_v0_3_send_response,
    write_response=proto_writer.to_v0_3_send_response,
    params_json=json_writer.send_params_json,
    result_json=_send_result_json,
)
SEND_STREAMING_MESSAGE: Final = V03Method(
    jsonrpc="message/stream",
    grpc="SendStreamingMessage",
    request=v0_3_pb2.SendMessageRequest,
    response=v0_3_pb2.StreamResponse,
    read_request=proto_reader.from_v0_3_send,
    write_request=proto_reader.to_v0_3_send,
    read_response=proto_reader.from_v0_3_stream_response,
    write_response=proto_writer.to_v0_3_stream_response,
    params_json=json_writer.send_params_json,
)
GET_TASK: Final = V03Method(
    jsonrpc="tasks/get",
    grpc="GetTask",
    request=v0_3_pb2.GetTaskRequest,
    response=v0_3_task_pb2.Task,
    read_request=proto_reader.from_v0_3_get,
    write_request=_write_get,
    read_response=proto_reader.from_v0_3_task,
    write_response=proto_writer.to_v0_3_task,
    result_json=json_writer.task_json,
    name_field="name",
)
CANCEL_TASK: Final = V03Method(
    jsonrpc="tasks/cancel",
    grpc="CancelTask",
    request=v0_3_pb2.CancelTaskRequest,
    response=v0_3_task_pb2.Task,
    read_request=proto_reader.from_v0_3_cancel,
    write_request=lambda request: v0_3_pb2.CancelTaskRequest(name=_task_name(request)),
    read_response=proto_reader.from_v0_3_task,
    write_response=proto_writer.to_v0_3_task,
    result_json=json_writer.task_json,
    name_field="name",
)
SUBSCRIBE_TO_TASK: Final = V03Method(
    jsonrpc="tasks/resubscribe",
    grpc="TaskSubscription",
    request=v0_3_pb2.TaskSubscriptionRequest,
    response=v0_3_pb2.StreamResponse,
    read_request=proto_reader.from_v0_3_subscribe,
    write_request=lambda request: v0_3_pb2.TaskSubscriptionRequest(name=_task_name(request)),
    read_response=proto_reader.from_v0_3_stream_response,
    write_response=proto_writer.to_v0_3_stream_response,
    name_field="name",
)
CREATE_PUSH_CONFIG: Final = V03Method(
    jsonrpc="tasks/pushNotificationConfig/set",
    grpc="CreateTaskPushNotificationConfig",
    request=v0_3_pb2.CreateTaskPushNotificationConfigRequest,
    response=v0_3_task_pb2.TaskPushNotificationConfig,
    read_request=proto_reader.from_v0_3_create_push,
    write_request=_write_create,
    read_response=_read_config,
    write_response=proto_writer.to_v0_3_push_config,
    params_json=json_writer.push_config_json,
    result_json=json_writer.push_config_json,
    name_field="parent",
)
GET_PUSH_CONFIG: Final = V03Method(
    jsonrpc="tasks/pushNotificationConfig/get",
    grpc="GetTaskPushNotificationConfig",
    request=v0_3_pb2.GetTaskPushNotificationConfigRequest,
    response=v0_3_task_pb2.TaskPushNotificationConfig,
    read_request=proto_reader.from_v0_3_get_push,
    write_request=lambda request: v0_3_pb2.GetTaskPushNotificationConfigRequest(
        name=_config_name(request)
    ),
    read_response=_read_config,
    write_response=proto_writer.to_v0_3_push_config,
    params_json=_config_params,
    result_json=json_writer.push_config_json,
    name_field="name",
)
LIST_PUSH_CONFIGS: Final = V03Method(
    jsonrpc="tasks/pushNotificationConfig/list",
    grpc="ListTaskPushNotificationConfig",
    request=v0_3_pb2.ListTaskPushNotificationConfigRequest,
    response=v0_3_pb2.ListTaskPushNotificationConfigResponse,
    read_request=proto_reader.from_v0_3_list_push,
    write_request=_write_list,
    read_response=_read_configs,
    write_response=proto_writer.to_v0_3_push_configs,
    params_json=lambda request: {"id": request.task_id},
    result_json=_push_configs_json,
    name_field="parent",
)
DELETE_PUSH_CONFIG: Final = V03Method(
    jsonrpc="tasks/pushNotificationConfig/delete",
    grpc="DeleteTaskPushNotificationConfig",
    request=v0_3_pb2.DeleteTaskPushNotificationConfigRequest,
    response=empty_pb2.Empty,
    read_request=proto_reader.from_v0_3_delete_push,
    write_request=lambda request: v0_3_pb2.DeleteTaskPushNotificationConfigRequest(
        name=_config_name(request)
    ),
    read_response=_unchanged,
    write_response=_no_response,
    params_json=_config_params,
    result_json=_unchanged,
    name_field="name",
)
GET_EXTENDED_CARD: Final = V03Method(
    jsonrpc="agent/getAuthenticatedExtendedCard",
    grpc="GetAgentCard",
    request=v0_3_pb2.GetAgentCardRequest,
    response=v0_3_card_pb2.AgentCard,
    read_request=lambda _: a2a_pb2.GetExtendedAgentCardRequest(),
    write_request=lambda _: v0_3_pb2.GetAgentCardRequest(),
    # The client reads the cards of all versions from their JSON.
    read_response=_unchanged,
    write_response=proto_card.to_v0_3_agent_card,
    params_json=_no_json,
    result_json=card_json.v0_3_card_json,
    path="/card",
)
