"""A2A v0.3 over JSON-RPC, which includes the methods of v0.2."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire import operations as wire
from trunkline.a2a_wire.errors import VERSION_NOT_SUPPORTED, WireError, invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.protocol import V0_3
from trunkline.a2a_wire.v0_3 import json_reader
from trunkline.a2a_wire.v0_3.json_writer import V03EventWriter
from trunkline.a2a_wire.v0_3.methods import V03Method
from trunkline.v1 import push_notification_pb2
from trunkline_bridge.a2a.operations import request_parser as parser
from trunkline_bridge.a2a.operations.field_violations import renamed_fields
from trunkline_bridge.a2a.operations.operation_table import (
    SERVED_OPERATIONS,
    StreamMethod,
    StreamOperation,
    UnaryMethod,
    UnaryOperation,
)
from trunkline_bridge.a2a.versions.jsonrpc_envelope import error_object
from trunkline_bridge.a2a.versions.jsonrpc_version import (
    OLDER_VOCABULARY,
    ErrorVocabulary,
    JsonRpcVersion,
    older_names,
    with_cursor_from_metadata,
)

_VOCABULARY = ErrorVocabulary(
    {
        **OLDER_VOCABULARY,
        **older_names(V0_3),
        "returnImmediately": "blocking: false",
        "taskPushNotificationConfig": "pushNotificationConfig",
    },
    codes=range(-32007, -32000),
)
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


_PARSERS: Final[Mapping[str, Callable[[object], Any]]] = {
    wire.SEND_MESSAGE.name: _parse_send,
    wire.SEND_STREAMING_MESSAGE.name: _parse_send,
    wire.GET_TASK.name: _parse_get,
    wire.CREATE_PUSH_CONFIG.name: _parse_set_push,
    wire.GET_PUSH_CONFIG.name: _parse_get_push,
    wire.LIST_PUSH_CONFIGS.name: _parse_list_pushes,
    wire.DELETE_PUSH_CONFIG.name: _parse_delete_push,
}
"""The parsers of parameters that differ from v1.0."""
_FIELD_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    wire.CREATE_PUSH_CONFIG.name: _NESTED_NAMES,
    wire.GET_PUSH_CONFIG.name: _ID_NAMES,
    wire.DELETE_PUSH_CONFIG.name: _ID_NAMES,
}


def _method(
    operation: UnaryOperation | StreamOperation, method: V03Method
) -> UnaryMethod | StreamMethod:
    wire_name = operation.wire.name
    parse = _PARSERS.get(wire_name, operation.parse)
    task_field = "id" if operation.wire.id_fields else ""
    if operation.wire is wire.CREATE_PUSH_CONFIG:
        task_field = "taskId"
    if isinstance(operation, StreamOperation):
        is_resumed = operation.wire is wire.SUBSCRIBE_TO_TASK
        return StreamMethod(
            name=method.jsonrpc,
            operation=operation,
            parse=parse,
            task_field=task_field,
            event_writer=lambda _request: V03EventWriter(),
            update_caller=with_cursor_from_metadata if is_resumed else None,
        )
    return UnaryMethod(
        name=method.jsonrpc,
        operation=operation,
        parse=parse,
        task_field=task_field,
        render=lambda _request, result: method.result_json(result),
        field_names=_FIELD_NAMES.get(wire_name, {}),
    )


def _error_object(error: WireError) -> Json:
    """Return JSON-RPC's error object. An error that v0.3 has no code for is an internal error."""
    if error.kind is VERSION_NOT_SUPPORTED:
        return error_object(error)
    return _VOCABULARY.error_object(error)


_METHODS: Final = [
    _method(operation, operation.wire.v0_3)
    for operation in SERVED_OPERATIONS
    if operation.wire.v0_3 is not None
]
JSONRPC: Final = JsonRpcVersion(
    version=V0_3,
    methods={method.name: method for method in _METHODS},
    error_object=_error_object,
)
