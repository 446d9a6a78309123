"""A2A v1.0 over JSON-RPC."""

from trunkline_bridge.bindings.jsonrpc_envelope import error_object
from trunkline_bridge.bindings.jsonrpc_version import find_task_id, with_shape
from trunkline_bridge.bindings.operation_table import TASK_FIELDS, Methods
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.errors import WireError
from trunkline_bridge.protocol import V1_0
from trunkline_bridge.versions.json_values import Json
from trunkline_bridge.versions.v1_0.json_writer import V1EventWriter


class JsonRpcV10:
    """The methods of v1.0."""

    version = V1_0

    def __init__(self, operations: Operations) -> None:
        self.sends = {"SendMessage": "SendStreamingMessage"}
        methods = Methods(operations)
        self.unary = methods.unary
        self.streams = {
            name: with_shape(stream, V1EventWriter) for name, stream in methods.streams.items()
        }

    def find_task_id(self, method: str, params: object) -> str:
        """Return the task that parameters may name."""
        return find_task_id(params, TASK_FIELDS[method]) if method in TASK_FIELDS else ""

    def error_object(self, error: WireError) -> Json:
        """Return JSON-RPC's error object."""
        return error_object(error)
