"""A2A v1.0 over JSON-RPC."""

from trunkline_bridge.errors import WireError
from trunkline_bridge.inbound.jsonrpc.dialects.dialect import shaped, task_named
from trunkline_bridge.inbound.jsonrpc.envelope import error_object
from trunkline_bridge.inbound.methods import OF_A_TASK, Methods
from trunkline_bridge.inbound.operations import Operations
from trunkline_bridge.wire.json_values import Json
from trunkline_bridge.wire.v1_json import V1Shape
from trunkline_bridge.wire.versions import V1_0


class V10:
    """The methods of v1.0."""

    version = V1_0

    def __init__(self, operations: Operations) -> None:
        self.sends = {"SendMessage": "SendStreamingMessage"}
        methods = Methods(operations)
        self.answers = methods.answers
        self.streams = {name: shaped(stream, V1Shape) for name, stream in methods.streams.items()}

    def task_of(self, method: str, params: object) -> str:
        """Return the task that parameters may name."""
        return task_named(params, OF_A_TASK[method]) if method in OF_A_TASK else ""

    def error(self, error: WireError) -> Json:
        """Return JSON-RPC's error object."""
        return error_object(error)
