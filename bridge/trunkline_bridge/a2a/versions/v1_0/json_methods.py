"""A2A v1.0 over JSON-RPC and HTTP+JSON, which have the same methods and messages."""

from typing import Any, Final

from trunkline.a2a_wire.errors import WireError
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import Operation
from trunkline.a2a_wire.protocol import V1_0
from trunkline.a2a_wire.v1_0.json_writer import V1EventWriter
from trunkline_bridge.a2a.operations.operation_table import (
    SERVED_OPERATIONS,
    ServedOperation,
    StreamMethod,
    StreamOperation,
    UnaryMethod,
    UnaryOperation,
)
from trunkline_bridge.a2a.versions.jsonrpc_envelope import error_object
from trunkline_bridge.a2a.versions.jsonrpc_version import JsonRpcVersion
from trunkline_bridge.a2a.versions.rest_routes import (
    PathParams,
    Routes,
    put_path_field,
    rest_routes,
)
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.http.messages import rest_error_body


def _method(operation: UnaryOperation | StreamOperation) -> UnaryMethod | StreamMethod:
    name, task_field = operation.wire.name, _task_field(operation.wire)
    if isinstance(operation, StreamOperation):
        return StreamMethod(
            name=name,
            operation=operation,
            parse=operation.parse,
            task_field=task_field,
            event_writer=lambda _request: V1EventWriter(),
        )
    return UnaryMethod(
        name=name,
        operation=operation,
        parse=operation.parse,
        task_field=task_field,
        render=operation.render or (lambda _request, result: operation.wire.response_json(result)),
    )


def _task_field(operation: Operation) -> str:
    """Return the JSON name of the field with the task id; empty if the operation has no task."""
    if not operation.id_fields:
        return ""
    name: str = operation.request.DESCRIPTOR.fields_by_name[operation.id_fields[0]].json_name
    return name


_METHODS: Final = {operation.wire.name: _method(operation) for operation in SERVED_OPERATIONS}
JSONRPC: Final = JsonRpcVersion(version=V1_0, methods=_METHODS, error_object=error_object)


class RestV1:
    """A2A v1.0 over HTTP+JSON."""

    version = V1_0
    media_type = "application/a2a+json"
    routes: Routes = rest_routes((served.wire.path, served) for served in SERVED_OPERATIONS)

    def query_fields(self, operation: ServedOperation) -> Any:  # noqa: ANN401  no common type
        """Return the descriptors of the fields that a query may have."""
        return operation.wire.request.DESCRIPTOR.fields

    def parameters(self, operation: ServedOperation, params: Json, path: PathParams) -> Json:
        """Return the parameters with the path's parameters.

        WireError: both contradict each other.
        """
        fields = operation.wire.request.DESCRIPTOR.fields_by_name
        names = operation.wire.id_fields
        for name, value in zip(names, (path.task_id, path.config_id), strict=False):
            put_path_field(params, fields[name], value)
        return params

    def choose_method(
        self, operation: ServedOperation, _caller: Caller, _params: Json
    ) -> UnaryMethod | StreamMethod:
        """Return the method of an operation."""
        return _METHODS[operation.wire.name]

    def find_tenant(self, params: Json) -> str:
        """Return the tenant in the parameters, or an empty text."""
        tenant = params.get("tenant")
        return tenant if isinstance(tenant, str) else ""

    def error_body(self, error: WireError) -> Json:
        """Return the body of an error."""
        return rest_error_body(error)
