"""A2A v1.1 over JSON-RPC and HTTP+JSON: the methods of v1.0 with generations."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from trunkline.a2a.v1_1 import a2a_pb2 as v1_1_pb2
from trunkline_bridge.bindings import operation_table as table
from trunkline_bridge.bindings import request_parser as parser
from trunkline_bridge.edge.caller import Caller
from trunkline_bridge.protocol import V1_1
from trunkline_bridge.versions.json_values import Json
from trunkline_bridge.versions.v1_0 import json_methods as v1_0
from trunkline_bridge.versions.v1_1 import json_writer, messages
from trunkline_bridge.versions.v1_1.json_writer import V11EventWriter

_UNARY: Mapping[str, tuple[Callable[[Caller, object], Caller], Callable[[Any], Json]]] = {
    table.SEND_MESSAGE.name: (messages.read_send_json, json_writer.send_response_json),
    table.GET_TASK.name: (messages.read_get_json, json_writer.task_json),
    table.CANCEL_TASK.name: (messages.read_no_json, json_writer.task_json),
}
_LIST_TASKS = v1_0.ListTasks(
    name=table.LIST_TASKS.name,
    operation=table.LIST_TASKS,
    parse=parser.parse_list,
    render=table.unchanged,
    write_task=json_writer.task_json,
    update_caller=messages.read_list_json,
)
_STREAMS = {
    table.SEND_STREAMING_MESSAGE.name: messages.read_send_json,
    table.SUBSCRIBE_TO_TASK.name: messages.read_no_json,
}
# The requests that have fields which v1.0 does not have.
_REQUESTS: Mapping[str, type[Message]] = {
    table.GET_TASK.name: v1_1_pb2.GetTaskRequest,
    table.LIST_TASKS.name: v1_1_pb2.ListTasksRequest,
}


def _build_methods() -> v1_0.JsonMethods:
    unary = [_change(method) for method in v1_0.METHODS.unary]
    streams = [
        replace(method, update_caller=_STREAMS[method.name], event_writer=V11EventWriter)
        for method in v1_0.METHODS.streams
    ]
    requests = {**v1_0.METHODS.requests, **_REQUESTS}
    return v1_0.JsonMethods(version=V1_1, unary=unary, streams=streams, requests=requests)


def _change(method: table.UnaryMethod) -> table.UnaryMethod:
    """Return the method as v1.1 has it; most are those of v1.0."""
    if method.name == _LIST_TASKS.name:
        return _LIST_TASKS
    if method.name not in _UNARY:
        return method
    update_caller, render = _UNARY[method.name]
    return replace(method, update_caller=update_caller, render=render)


METHODS = _build_methods()
