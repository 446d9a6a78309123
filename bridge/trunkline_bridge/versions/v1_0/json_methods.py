"""A2A v1.0 over JSON-RPC and HTTP+JSON, which have the same methods and messages."""

from collections.abc import Callable, Mapping
from typing import Any

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import message_pb2, task_pb2
from trunkline_bridge.bindings import operation_table as table
from trunkline_bridge.bindings import request_parser as parser
from trunkline_bridge.bindings.jsonrpc_envelope import error_object
from trunkline_bridge.bindings.jsonrpc_version import JsonRpcVersion
from trunkline_bridge.bindings.operation_table import (
    StreamHandler,
    StreamMethod,
    UnaryHandler,
    UnaryMethod,
)
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.bindings.rest_request import SHARED_ROUTES, PathParams, put_path_field
from trunkline_bridge.edge.caller import Caller
from trunkline_bridge.edge.http import rest_error_body
from trunkline_bridge.errors import WireError
from trunkline_bridge.protocol import V1_0
from trunkline_bridge.versions.json_values import Json
from trunkline_bridge.versions.v1_0 import json_writer
from trunkline_bridge.versions.v1_0.json_writer import V1EventWriter


def _send_response_json(result: task_pb2.Task | message_pb2.Message) -> Json:
    if isinstance(result, message_pb2.Message):
        return {"message": json_writer.message_json(result)}
    return {"task": json_writer.task_json(result)}


def _push_configs_json(page: a2a_pb2.ListTaskPushNotificationConfigsResponse) -> Json:
    return {
        "configs": [json_writer.push_config_json(config) for config in page.configs],
        "nextPageToken": page.next_page_token,
    }


class _ListTasks(UnaryMethod):
    """ListTasks: the request decides whether tasks without artifacts have an empty list."""

    def bind(self, operations: Operations) -> UnaryHandler:
        async def handle(caller: Caller, params: object) -> Json:
            request = parser.parse_list(params)
            page = await operations.list_tasks(caller, request)
            return {
                "tasks": [
                    json_writer.task_json(task, with_artifacts=request.include_artifacts)
                    for task in page.tasks
                ],
                "nextPageToken": page.next_page_token,
                "pageSize": page.page_size,
                "totalSize": page.total_size,
            }

        return handle


def _method(
    operation: table.UnaryOperation,
    parse: Callable[[object], Any],
    render: Callable[[Any], object],
) -> UnaryMethod:
    return UnaryMethod(name=operation.name, operation=operation, parse=parse, render=render)


_UNARY = (
    _method(table.SEND_MESSAGE, parser.parse_send, _send_response_json),
    _method(table.GET_TASK, parser.parse_get, json_writer.task_json),
    _ListTasks(
        name=table.LIST_TASKS.name,
        operation=table.LIST_TASKS,
        parse=parser.parse_list,
        render=table.unchanged,
    ),
    _method(table.CANCEL_TASK, parser.parse_cancel, json_writer.task_json),
    _method(table.CREATE_PUSH_CONFIG, parser.parse_create_push, json_writer.push_config_json),
    _method(table.GET_PUSH_CONFIG, parser.parse_get_push, json_writer.push_config_json),
    _method(table.LIST_PUSH_CONFIGS, parser.parse_list_pushes, _push_configs_json),
    _method(table.DELETE_PUSH_CONFIG, parser.parse_delete_push, table.unchanged),
    _method(table.GET_EXTENDED_CARD, table.unchanged, json_writer.agent_card_json),
)
_STREAMS = (
    StreamMethod(
        name=table.SEND_STREAMING_MESSAGE.name,
        operation=table.SEND_STREAMING_MESSAGE,
        parse=parser.parse_send,
        event_writer=V1EventWriter,
    ),
    StreamMethod(
        name=table.SUBSCRIBE_TO_TASK.name,
        operation=table.SUBSCRIBE_TO_TASK,
        parse=parser.parse_subscribe,
        event_writer=V1EventWriter,
    ),
)
_OPERATIONS = {method.name: method.operation for method in (*_UNARY, *_STREAMS)}


def build_jsonrpc(operations: Operations) -> JsonRpcVersion:
    """Return A2A v1.0 over JSON-RPC."""
    return JsonRpcVersion(
        version=V1_0,
        unary={method.name: method.bind(operations) for method in _UNARY},
        streams={method.name: method.bind(operations) for method in _STREAMS},
        task_fields={name: operation.task_field for name, operation in _OPERATIONS.items()},
        streaming_sends={"SendMessage": "SendStreamingMessage"},
        error_object=error_object,
    )


class RestV1:
    """A2A v1.0 over HTTP+JSON."""

    version = V1_0
    media_type = "application/a2a+json"
    routes: Mapping[str, Mapping[str, str]] = {
        **SHARED_ROUTES,
        "/tasks": {"GET": "ListTasks"},
        "/extendedAgentCard": {"GET": "GetExtendedAgentCard"},
    }

    def __init__(self, operations: Operations) -> None:
        self.unary: Mapping[str, UnaryHandler] = {
            method.name: method.bind(operations) for method in _UNARY
        }
        self.streams: Mapping[str, StreamHandler] = {
            method.name: method.bind(operations) for method in _STREAMS
        }

    def query_fields(self, operation: str) -> Any:  # noqa: ANN401  descriptors have no common type
        """Return the fields that a query may have."""
        return _OPERATIONS[operation].request.DESCRIPTOR.fields

    def parameters(self, operation: str, params: Json, path: PathParams) -> Json:
        """Return the parameters with those of the path. WireError: they contradict each other."""
        fields = _OPERATIONS[operation].request.DESCRIPTOR.fields_by_name
        names = _OPERATIONS[operation].id_fields
        for name, value in zip(names, (path.task_id, path.config_id), strict=False):
            put_path_field(params, fields[name], value)
        return params

    def find_tenant(self, params: Json) -> str:
        """Return the tenant in the parameters; empty: none."""
        tenant = params.get("tenant")
        return tenant if isinstance(tenant, str) else ""

    def error_body(self, error: WireError) -> Json:
        """Return the body of an error."""
        return rest_error_body(error)
