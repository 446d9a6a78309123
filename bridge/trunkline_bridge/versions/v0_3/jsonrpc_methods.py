"""A2A v0.3 over JSON-RPC, which includes the methods of v0.2."""

from collections.abc import Callable
from typing import Any

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire import card_json
from trunkline.a2a_wire.errors import VERSION_NOT_SUPPORTED, WireError, invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.protocol import V0_3
from trunkline.a2a_wire.v0_3 import json_reader, json_writer
from trunkline.a2a_wire.v0_3.json_writer import V03EventWriter
from trunkline.v1 import message_pb2, push_notification_pb2, task_pb2
from trunkline_bridge.bindings import operation_table as table
from trunkline_bridge.bindings import request_parser as parser
from trunkline_bridge.bindings.field_violations import renamed_fields
from trunkline_bridge.bindings.jsonrpc_envelope import error_object
from trunkline_bridge.bindings.jsonrpc_version import (
    OLDER_VOCABULARY,
    ErrorVocabulary,
    JsonRpcVersion,
    with_cursor_from_metadata,
)
from trunkline_bridge.bindings.operation_table import StreamMethod, UnaryMethod
from trunkline_bridge.bindings.operations import Operations

_VOCABULARY = ErrorVocabulary(
    {
        **OLDER_VOCABULARY,
        "SendMessage": "message/send",
        "SendStreamingMessage": "message/stream",
        "GetTask": "tasks/get",
        "CancelTask": "tasks/cancel",
        "SubscribeToTask": "tasks/resubscribe",
        "GetExtendedAgentCard": "agent/getAuthenticatedExtendedCard",
        "returnImmediately": "blocking: false",
        "taskPushNotificationConfig": "pushNotificationConfig",
    },
    codes=range(-32007, -32000),
)
_TASK_FIELDS = {
    "tasks/get": "id",
    "tasks/cancel": "id",
    "tasks/resubscribe": "id",
    "tasks/pushNotificationConfig/set": "taskId",
    "tasks/pushNotificationConfig/get": "id",
    "tasks/pushNotificationConfig/list": "id",
    "tasks/pushNotificationConfig/delete": "id",
}
# A push notification config is flat in v1.0 and a nested object here.
_CONFIG = "pushNotificationConfig"
_NESTED_NAMES = {name: f"{_CONFIG}.{name}" for name in ("id", "url", "token", "authentication")}
_ID_NAMES = {"taskId": "id", "id": "pushNotificationConfigId"}


def _parse_send(params: object) -> a2a_pb2.SendMessageRequest:
    return parser.parse_send(json_reader.convert_send_params(params))


def _parse_get(params: object) -> a2a_pb2.GetTaskRequest:
    return parser.parse_get(json_reader.convert_get_params(params))


def _parse_set_push(params: object) -> push_notification_pb2.TaskPushNotificationConfig:
    config = params.get(_CONFIG) if isinstance(params, dict) else None
    if not isinstance(params, dict) or not isinstance(config, dict):
        raise invalid_params((_CONFIG, "must be an object"))
    flat = {
        **json_reader.convert_webhook(config),
        **json_reader.pick_members(params, ("taskId",)),
    }
    with renamed_fields(_NESTED_NAMES):
        return parser.parse_create_push(flat)


def _parse_get_push(params: object) -> a2a_pb2.GetTaskPushNotificationConfigRequest:
    task_id = parser.parse_subscribe(params).id
    return a2a_pb2.GetTaskPushNotificationConfigRequest(task_id=task_id, id=_config_id(params))


def _parse_list_pushes(params: object) -> a2a_pb2.ListTaskPushNotificationConfigsRequest:
    task_id = parser.parse_subscribe(params).id
    return a2a_pb2.ListTaskPushNotificationConfigsRequest(task_id=task_id)


def _parse_delete_push(params: object) -> a2a_pb2.DeleteTaskPushNotificationConfigRequest:
    task_id = parser.parse_subscribe(params).id
    request = a2a_pb2.DeleteTaskPushNotificationConfigRequest(
        task_id=task_id, id=_config_id(params)
    )
    with renamed_fields(_ID_NAMES):
        return parser.check_push_ids(request)


def _config_id(params: object) -> str:
    config_id = params.get("pushNotificationConfigId") if isinstance(params, dict) else None
    if config_id is None:
        return ""
    if not isinstance(config_id, str):
        raise invalid_params(("pushNotificationConfigId", "must be a string"))
    return config_id


def _send_result_json(result: task_pb2.Task | message_pb2.Message) -> Json:
    if isinstance(result, message_pb2.Message):
        return json_writer.message_json(result)
    return json_writer.task_json(result)


def _push_configs_json(page: a2a_pb2.ListTaskPushNotificationConfigsResponse) -> list[Json]:
    return [json_writer.push_config_json(config) for config in page.configs]


def _method(
    name: str,
    operation: table.UnaryOperation,
    parse: Callable[[object], Any],
    render: Callable[[Any], object],
    field_names: dict[str, str] | None = None,
) -> UnaryMethod:
    return UnaryMethod(
        name=name, operation=operation, parse=parse, render=render, field_names=field_names or {}
    )


_UNARY = (
    _method("message/send", table.SEND_MESSAGE, _parse_send, _send_result_json),
    _method("tasks/get", table.GET_TASK, _parse_get, json_writer.task_json),
    _method("tasks/cancel", table.CANCEL_TASK, parser.parse_cancel, json_writer.task_json),
    _method(
        "tasks/pushNotificationConfig/set",
        table.CREATE_PUSH_CONFIG,
        _parse_set_push,
        json_writer.push_config_json,
        _NESTED_NAMES,
    ),
    _method(
        "tasks/pushNotificationConfig/get",
        table.GET_PUSH_CONFIG,
        _parse_get_push,
        json_writer.push_config_json,
        _ID_NAMES,
    ),
    _method(
        "tasks/pushNotificationConfig/list",
        table.LIST_PUSH_CONFIGS,
        _parse_list_pushes,
        _push_configs_json,
    ),
    _method(
        "tasks/pushNotificationConfig/delete",
        table.DELETE_PUSH_CONFIG,
        _parse_delete_push,
        table.unchanged,
        _ID_NAMES,
    ),
    _method(
        "agent/getAuthenticatedExtendedCard",
        table.GET_EXTENDED_CARD,
        table.unchanged,
        card_json.v0_3_card_json,
    ),
)
_STREAMS = (
    StreamMethod(
        name="message/stream",
        operation=table.SEND_STREAMING_MESSAGE,
        parse=_parse_send,
        event_writer=V03EventWriter,
    ),
    StreamMethod(
        name="tasks/resubscribe",
        operation=table.SUBSCRIBE_TO_TASK,
        parse=parser.parse_subscribe,
        event_writer=V03EventWriter,
        update_caller=with_cursor_from_metadata,
    ),
)


def build_jsonrpc(operations: Operations) -> JsonRpcVersion:
    """Return A2A v0.3 over JSON-RPC."""
    return JsonRpcVersion(
        version=V0_3,
        unary={method.name: method.bind(operations) for method in _UNARY},
        streams={method.name: method.bind(operations) for method in _STREAMS},
        operations={method.name: method.operation.name for method in (*_UNARY, *_STREAMS)},
        task_fields=_TASK_FIELDS,
        streaming_sends={"message/send": "message/stream"},
        error_object=_error_object,
    )


def _error_object(error: WireError) -> Json:
    """Return JSON-RPC's error object. An error that v0.3 has no code for is an internal error."""
    if error.kind is VERSION_NOT_SUPPORTED:
        return error_object(error)
    return _VOCABULARY.error_object(error)
