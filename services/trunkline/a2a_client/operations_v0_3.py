"""The operations of A2A v0.3 for those of v1.0: their requests, and their responses as v1.0's JSON.

Times are left out of responses: several servers of v0.3 write invalid ones.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from google.protobuf.json_format import ParseError
from google.protobuf.message import Message

from trunkline.a2a.v0_3 import a2a_pb2 as v0_3_pb2
from trunkline.a2a.v0_3 import agent_card_pb2 as v0_3_card_pb2
from trunkline.a2a.v0_3 import task_pb2 as v0_3_task_pb2
from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client import operations as v1
from trunkline.a2a_client.json_reader import parse_stream_response, parse_task
from trunkline.a2a_client.operations import RemoteOperation
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.v0_3 import json_reader, json_writer, proto_reader, proto_writer
from trunkline.a2a_wire.v0_3.proto_json import proto_message_json
from trunkline.a2a_wire.v1_0 import json_writer as v1_json
from trunkline.errors import UnsupportedOperationError
from trunkline.json_values import message_to_dict, parse_dict
from trunkline.v1 import push_notification_pb2


class V03Operation(NamedTuple):
    """An operation of v0.3. Its readers raise ValueError for a response that can't be read."""

    jsonrpc_method: str
    grpc_method: str
    write_params: Callable[[Any], Json]
    """Returns the parameters of JSON-RPC for a request of v1.0."""
    read_result: Callable[[Any], Json]
    """Reads the result of JSON-RPC."""
    build: Callable[[Any], Message]
    """Returns the request of gRPC for a request of v1.0."""
    response: type[Message]
    """The response of gRPC; HTTP+JSON has the same as ProtoJSON."""
    read_response: Callable[[Any], Json]
    path: str = ""
    """The path over HTTP+JSON below `/v1`; empty: as in v1.0."""
    is_rest_like_jsonrpc: bool = False
    """Over HTTP+JSON, the response is the JSON of JSON-RPC."""

    def read_rest(self, value: object) -> Json:
        """Read a response of HTTP+JSON."""
        if self.is_rest_like_jsonrpc:
            return self.read_result(value)
        parsed = self.response()
        parse_dict(without_timestamps(value), parsed, ignore_unknown_fields=True)
        return self.read_response(parsed)

    def rest_body(self, request: Message) -> Json:
        """Return the body over HTTP+JSON, without the resource name that the path has."""
        body = proto_message_json(self.build(request))
        body.pop("name", None)
        return body


def find_v0_3(operation: RemoteOperation) -> V03Operation:
    """Return the operation of v0.3. UnsupportedOperationError: v0.3 does not have it."""
    found = _OPERATIONS.get(operation.name)
    if found is None:
        raise UnsupportedOperationError(operation.name, "A2A 0.3 does not have it")
    return found


def without_timestamps(value: Any) -> Any:  # noqa: ANN401  any JSON value
    """Remove the timestamps of statuses, which are not needed and on some servers invalid."""
    if not isinstance(value, dict):
        return value
    result = {**value}
    for name in ("task", "statusUpdate"):
        if name in result:
            result[name] = without_timestamps(result[name])
    if isinstance(result.get("status"), dict):
        result["status"] = {k: v for k, v in result["status"].items() if k != "timestamp"}
    return result


def _read_send(value: object) -> Json:
    return v1_json.stream_response_json(parse_stream_response(value))


def _read_send_response(response: v0_3_pb2.SendMessageResponse) -> Json:
    return v1_json.stream_response_json(proto_reader.from_v0_3_send_response(response))


def _read_task(value: object) -> Json:
    return v1_json.task_json(parse_task(value))


def _read_task_response(response: v0_3_task_pb2.Task) -> Json:
    return v1_json.task_json(proto_reader.from_v0_3_task(response))


def _read_config(value: object) -> Json:
    nested = value.get("pushNotificationConfig") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(nested, dict):
        raise ValueError("it is no push notification config")
    task = json_reader.pick_members(value, ("taskId",))
    config = push_notification_pb2.TaskPushNotificationConfig()
    try:
        parse_dict({**json_reader.convert_webhook(nested), **task}, config)
    except ParseError:
        raise ValueError("its push notification config does not match the A2A schema") from None
    return v1_json.push_config_json(config)


def _read_config_response(response: v0_3_task_pb2.TaskPushNotificationConfig) -> Json:
    config = proto_reader.from_v0_3_push_config(response.push_notification_config)
    names = response.name.split("/")
    config.task_id = names[1] if len(names) > 1 else ""
    config.id = config.id or (names[3] if len(names) > 3 else "")
    return v1_json.push_config_json(config)


def _read_configs(value: object) -> Json:
    if not isinstance(value, list):
        raise ValueError("it is no list of push notification configs")
    return {"configs": [_read_config(entry) for entry in value]}


def _read_configs_response(response: v0_3_pb2.ListTaskPushNotificationConfigResponse) -> Json:
    result: Json = {"configs": [_read_config_response(entry) for entry in response.configs]}
    if response.next_page_token:
        result["nextPageToken"] = response.next_page_token
    return result


def _read_card(value: object) -> Json:
    if not isinstance(value, dict):
        raise ValueError("it is no agent card")
    return value


def _config_name(request: Any) -> str:  # noqa: ANN401  two requests with the same fields
    return f"tasks/{request.task_id}/pushNotificationConfigs/{request.id}"


def _config_params(request: Any) -> Json:  # noqa: ANN401  two requests with the same fields
    return {"id": request.task_id, "pushNotificationConfigId": request.id}


def _build_get(request: a2a_pb2.GetTaskRequest) -> v0_3_pb2.GetTaskRequest:
    name = f"tasks/{request.id}"
    return v0_3_pb2.GetTaskRequest(name=name, history_length=request.history_length)


def _build_create(
    request: push_notification_pb2.TaskPushNotificationConfig,
) -> v0_3_pb2.CreateTaskPushNotificationConfigRequest:
    return v0_3_pb2.CreateTaskPushNotificationConfigRequest(
        parent=f"tasks/{request.task_id}",
        config_id=request.id,
        config=proto_writer.to_v0_3_push_config(request),
    )


def _build_list(
    request: a2a_pb2.ListTaskPushNotificationConfigsRequest,
) -> v0_3_pb2.ListTaskPushNotificationConfigRequest:
    return v0_3_pb2.ListTaskPushNotificationConfigRequest(
        parent=f"tasks/{request.task_id}",
        page_size=request.page_size,
        page_token=request.page_token,
    )


# `tasks/list` is not here: v0.3 names it without defining its messages.
_OPERATIONS: Final[Mapping[str, V03Operation]] = {
    v1.SEND_MESSAGE.name: V03Operation(
        "message/send",
        "SendMessage",
        json_writer.send_params_json,
        _read_send,
        proto_reader.to_v0_3_send,
        v0_3_pb2.SendMessageResponse,
        _read_send_response,
    ),
    v1.GET_TASK.name: V03Operation(
        "tasks/get",
        "GetTask",
        message_to_dict,
        _read_task,
        _build_get,
        v0_3_task_pb2.Task,
        _read_task_response,
    ),
    v1.CANCEL_TASK.name: V03Operation(
        "tasks/cancel",
        "CancelTask",
        message_to_dict,
        _read_task,
        lambda request: v0_3_pb2.CancelTaskRequest(name=f"tasks/{request.id}"),
        v0_3_task_pb2.Task,
        _read_task_response,
    ),
    v1.CREATE_PUSH_CONFIG.name: V03Operation(
        "tasks/pushNotificationConfig/set",
        "CreateTaskPushNotificationConfig",
        json_writer.push_config_json,
        _read_config,
        _build_create,
        v0_3_task_pb2.TaskPushNotificationConfig,
        _read_config_response,
    ),
    v1.GET_PUSH_CONFIG.name: V03Operation(
        "tasks/pushNotificationConfig/get",
        "GetTaskPushNotificationConfig",
        _config_params,
        _read_config,
        lambda request: v0_3_pb2.GetTaskPushNotificationConfigRequest(name=_config_name(request)),
        v0_3_task_pb2.TaskPushNotificationConfig,
        _read_config_response,
    ),
    v1.LIST_PUSH_CONFIGS.name: V03Operation(
        "tasks/pushNotificationConfig/list",
        "ListTaskPushNotificationConfig",
        lambda request: {"id": request.task_id},
        _read_configs,
        _build_list,
        v0_3_pb2.ListTaskPushNotificationConfigResponse,
        _read_configs_response,
    ),
    v1.DELETE_PUSH_CONFIG.name: V03Operation(
        "tasks/pushNotificationConfig/delete",
        "DeleteTaskPushNotificationConfig",
        _config_params,
        lambda _: {},
        lambda request: v0_3_pb2.DeleteTaskPushNotificationConfigRequest(
            name=_config_name(request)
        ),
        # google.protobuf.Empty on the wire; our message without fields reads the same.
        v0_3_pb2.GetAgentCardRequest,
        lambda _: {},
    ),
    v1.GET_EXTENDED_CARD.name: V03Operation(
        "agent/getAuthenticatedExtendedCard",
        "GetAgentCard",
        lambda _: {},
        _read_card,
        lambda _: v0_3_pb2.GetAgentCardRequest(),
        v0_3_card_pb2.AgentCard,
        message_to_dict,
        path="/card",
        is_rest_like_jsonrpc=True,
    ),
}
