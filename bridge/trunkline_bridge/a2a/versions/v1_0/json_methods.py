"""A2A v1.0 over JSON-RPC and HTTP+JSON, which have the same methods and messages."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from trunkline.a2a_wire.errors import WireError
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import Operation
from trunkline.a2a_wire.protocol import V1_0
from trunkline.a2a_wire.v1_0.json_writer import V1EventWriter
from trunkline_bridge.a2a.operations.operation_table import (
    SERVED_OPERATIONS,
    JsonMethod,
    StreamOperation,
    UnaryOperation,
    bind_methods,
)
from trunkline_bridge.a2a.operations.operations import Operations
from trunkline_bridge.a2a.versions.jsonrpc_envelope import error_object
from trunkline_bridge.a2a.versions.jsonrpc_version import JsonRpcVersion
from trunkline_bridge.a2a.versions.rest_routes import PathParams, put_path_field, rest_routes
from trunkline_bridge.http.messages import rest_error_body


def _renderer(operation: UnaryOperation | StreamOperation) -> Callable[[Any, Any], object]:
    if isinstance(operation, UnaryOperation) and operation.render is not None:
        return operation.render
    return lambda _request, result: operation.wire.response_json(result)


_METHODS: Final = tuple(
    JsonMethod(
        name=operation.wire.name,
        operation=operation,
        parse=operation.parse,
        render=_renderer(operation),
        event_writer=V1EventWriter,
    )
    for operation in SERVED_OPERATIONS
)
_WIRE: Final[Mapping[str, Operation]] = {row.wire.name: row.wire for row in SERVED_OPERATIONS}


def build_jsonrpc(operations: Operations) -> JsonRpcVersion:
    """Return A2A v1.0 over JSON-RPC."""
    return JsonRpcVersion(
        version=V1_0,
        methods=bind_methods(_METHODS, operations),
        operations={name: name for name in _WIRE},
        task_fields={name: _task_member(operation) for name, operation in _WIRE.items()},
        error_object=error_object,
    )


def _task_member(operation: Operation) -> str:
    """Return the JSON name of the field with the task id; empty if the operation has no task."""
    if not operation.id_fields:
        return ""
    name: str = operation.request.DESCRIPTOR.fields_by_name[operation.id_fields[0]].json_name
    return name


class RestV1:
    """A2A v1.0 over HTTP+JSON."""

    version = V1_0
    media_type = "application/a2a+json"
    routes: Mapping[str, Mapping[str, str]] = rest_routes(
        (operation.path, operation) for operation in _WIRE.values()
    )

    def __init__(self, operations: Operations) -> None:
        self.methods = bind_methods(_METHODS, operations)

    def query_fields(self, operation: str) -> Any:  # noqa: ANN401  descriptors have no common type
        """Return the fields that a query may have."""
        return _WIRE[operation].request.DESCRIPTOR.fields

    def parameters(self, operation: str, params: Json, path: PathParams) -> Json:
        """Return the parameters with the path's parameters.

        WireError: both contradict each other.
        """
        fields = _WIRE[operation].request.DESCRIPTOR.fields_by_name
        names = _WIRE[operation].id_fields
        for name, value in zip(names, (path.task_id, path.config_id), strict=False):
            put_path_field(params, fields[name], value)
        return params

    def find_tenant(self, params: Json) -> str:
        """Return the tenant in the parameters, or an empty text."""
        tenant = params.get("tenant")
        return tenant if isinstance(tenant, str) else ""

    def error_body(self, error: WireError) -> Json:
        """Return the body of an error."""
        return rest_error_body(error)
