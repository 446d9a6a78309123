"""HTTP+JSON as A2A v1.0 has it: the same messages as over JSON-RPC, without the envelope."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import push_notification_pb2
from trunkline_bridge.bindings.jsonrpc_version import StreamOpener, with_shape
from trunkline_bridge.bindings.operation_table import Methods, UnaryMethod
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.bindings.rest_request import Place, put_path_field
from trunkline_bridge.edge.http import rest_error_body
from trunkline_bridge.errors import WireError
from trunkline_bridge.versions.json_values import Json
from trunkline_bridge.versions.v1_0.json_writer import V1EventWriter

# Descriptors' types have nothing in common.
_Fields: TypeAlias = Any

_REQUESTS: Mapping[str, Any] = {
    "SendMessage": a2a_pb2.SendMessageRequest,
    "SendStreamingMessage": a2a_pb2.SendMessageRequest,
    "GetTask": a2a_pb2.GetTaskRequest,
    "ListTasks": a2a_pb2.ListTasksRequest,
    "CancelTask": a2a_pb2.CancelTaskRequest,
    "SubscribeToTask": a2a_pb2.SubscribeToTaskRequest,
    "CreateTaskPushNotificationConfig": push_notification_pb2.TaskPushNotificationConfig,
    "GetTaskPushNotificationConfig": a2a_pb2.GetTaskPushNotificationConfigRequest,
    "ListTaskPushNotificationConfigs": a2a_pb2.ListTaskPushNotificationConfigsRequest,
    "DeleteTaskPushNotificationConfig": a2a_pb2.DeleteTaskPushNotificationConfigRequest,
    "GetExtendedAgentCard": a2a_pb2.GetExtendedAgentCardRequest,
}
# The fields that a path names instead of the body: of the task, and of the configuration.
_OF_TASK = ("id",)
_OF_CONFIG = ("task_id", "id")
_IN_PATH: Mapping[str, tuple[str, ...]] = {
    "GetTask": _OF_TASK,
    "CancelTask": _OF_TASK,
    "SubscribeToTask": _OF_TASK,
    "CreateTaskPushNotificationConfig": ("task_id",),
    "GetTaskPushNotificationConfig": _OF_CONFIG,
    "ListTaskPushNotificationConfigs": ("task_id",),
    "DeleteTaskPushNotificationConfig": _OF_CONFIG,
}


class RestV1:
    """A2A v1.0 over HTTP+JSON."""

    media_type = "application/a2a+json"

    def __init__(self, operations: Operations) -> None:
        methods = Methods(operations)
        self.unary: Mapping[str, UnaryMethod] = methods.unary
        self.streams: Mapping[str, StreamOpener] = {
            name: with_shape(one, V1EventWriter) for name, one in methods.streams.items()
        }

    def fields(self, operation: str) -> _Fields:
        """Return the fields that a query may have."""
        return _REQUESTS[operation].DESCRIPTOR.fields

    def parameters(self, operation: str, given: Json, place: Place) -> Json:
        """Return the parameters, with those that the path names. WireError: they contradict it."""
        fields = _REQUESTS[operation].DESCRIPTOR.fields_by_name
        in_path = _IN_PATH.get(operation, ())
        for name, value in zip(in_path, (place.task_id, place.config_id), strict=False):
            put_path_field(given, fields[name], value)
        return given

    def tenant(self, given: Json) -> str:
        """Return the tenant that parameters name."""
        tenant = given.get("tenant")
        return tenant if isinstance(tenant, str) else ""

    def error_body(self, error: WireError) -> Json:
        """Return the body of an error."""
        return rest_error_body(error)
