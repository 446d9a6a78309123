"""A2A v1.0 over JSON-RPC and HTTP+JSON, which have the same methods and messages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import WireError
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.protocol import V1_0
from trunkline.a2a_wire.v1_0 import json_writer
from trunkline.a2a_wire.v1_0.json_writer import V1EventWriter
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


def _send_response_json(result: task_pb2.Task | message_pb2.Message) -> Json:
    if isinstance(result, message_pb2.Message):
        return {"message": json_writer.message_json(result)}
    return {"task": json_writer.task_json(result)}


def _push_configs_json(page: a2a_pb2.ListTaskPushNotificationConfigsResponse) -> Json:
    return {
        "configs": [json_writer.push_config_json(config) for config in page.configs],
        "nextPageToken": page.next_page_token,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTasks(UnaryMethod):
    """ListTasks: the request decides whether tasks without artifacts have an empty list."""

    write_task: Callable[..., Json]
    """Converts a task; `with_artifacts` writes that member even if it is empty."""

    def bind(self, operations: Operations) -> UnaryHandler:
        """Return the handler of the method."""

        async def handle(caller: Caller, params: object) -> Json:
            request = parser.parse_list(params)
            if self.update_caller is not None:
                caller = self.update_caller(caller, params)
            page = await operations.list_tasks(caller, request)
            return {
                "tasks": [
                    self.write_task(task, with_artifacts=request.include_artifacts)
                    for task in page.tasks
                ],
                "nextPageToken": page.next_page_token,
                "pageSize": page.page_size,
                "totalSize": page.total_size,
            }

        return handle


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonMethods:
    """The methods of a version, for JSON-RPC and HTTP+JSON."""

    version: str
    unary: Sequence[UnaryMethod]
    streams: Sequence[StreamMethod]
    requests: Mapping[str, type[Message]]
    """The message that has the parameters of each method."""

    def bind_unary(self, operations: Operations) -> dict[str, UnaryHandler]:
        """Return the handlers of methods with one result, by name."""
        return {method.name: method.bind(operations) for method in self.unary}

    def bind_streams(self, operations: Operations) -> dict[str, StreamHandler]:
        """Return the handlers of methods with a stream, by name."""
        return {method.name: method.bind(operations) for method in self.streams}


def _method(
    operation: table.UnaryOperation,
    parse: Callable[[object], Any],
    render: Callable[[Any], object],
) -> UnaryMethod:
    return UnaryMethod(name=operation.name, operation=operation, parse=parse, render=render)


_UNARY = (
    _method(table.SEND_MESSAGE, parser.parse_send, _send_response_json),
    _method(table.GET_TASK, parser.parse_get, json_writer.task_json),
    ListTasks(
        name=table.LIST_TASKS.name,
        operation=table.LIST_TASKS,
        parse=parser.parse_list,
        render=table.unchanged,
        write_task=json_writer.task_json,
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
METHODS = JsonMethods(
    version=V1_0,
    unary=_UNARY,
    streams=_STREAMS,
    requests={name: operation.request for name, operation in _OPERATIONS.items()},
)


def build_jsonrpc(operations: Operations, methods: JsonMethods = METHODS) -> JsonRpcVersion:
    """Return A2A v1.0, or another version with its operations, over JSON-RPC."""
    return JsonRpcVersion(
        version=methods.version,
        unary=methods.bind_unary(operations),
        streams=methods.bind_streams(operations),
        operations={name: operation.name for name, operation in _OPERATIONS.items()},
        task_fields={name: operation.task_field for name, operation in _OPERATIONS.items()},
        streaming_sends={"SendMessage": "SendStreamingMessage"},
        error_object=error_object,
    )


class RestV1:
    """A2A v1.0, or another version with its operations, over HTTP+JSON."""

    media_type = "application/a2a+json"
    routes: Mapping[str, Mapping[str, str]] = {
        **SHARED_ROUTES,
        "/tasks": {"GET": "ListTasks"},
        "/extendedAgentCard": {"GET": "GetExtendedAgentCard"},
    }

    def __init__(self, operations: Operations, methods: JsonMethods = METHODS) -> None:
        self.version = methods.version
        self.unary: Mapping[str, UnaryHandler] = methods.bind_unary(operations)
        self.streams: Mapping[str, StreamHandler] = methods.bind_streams(operations)
        self._requests = methods.requests

    def query_fields(self, operation: str) -> Any:  # noqa: ANN401  descriptors have no common type
        """Return the fields that a query may have."""
        return self._requests[operation].DESCRIPTOR.fields

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
