"""A2A v0.3 over HTTP+JSON: its gRPC methods with messages as ProtoJSON, unlike its JSON-RPC."""

from typing import Any, Final

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire import operations as wire
from trunkline.a2a_wire.card_json import merged_card_json
from trunkline.a2a_wire.errors import WireError
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.protocol import V0_3
from trunkline.a2a_wire.v0_3.file_bytes import (
    decode_file_bytes,
    encode_file_bytes,
    uses_raw_file_bytes,
)
from trunkline.a2a_wire.v0_3.proto_json import V03ProtoEventWriter, proto_message_json
from trunkline_bridge.a2a.operations import request_parser as parser
from trunkline_bridge.a2a.operations.operation_table import (
    ServedOperation,
    StreamMethod,
    StreamOperation,
    UnaryMethod,
)
from trunkline_bridge.a2a.versions.grpc_service import GrpcMethod
from trunkline_bridge.a2a.versions.rest_routes import (
    PathParams,
    Routes,
    put_path_field,
    rest_routes,
)
from trunkline_bridge.a2a.versions.v0_3.grpc_methods import SERVICE, v0_3_error_name
from trunkline_bridge.a2a.versions.v0_3.jsonrpc_methods import JSONRPC
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.http.messages import rest_error_body

# Both spellings that ProtoJSON accepts.
_WEBHOOK = ("pushNotificationConfig", "push_notification_config")


class RestV03:
    """A2A v0.3 over HTTP+JSON."""

    version = V0_3
    media_type = "application/json"
    routes: Routes = rest_routes(
        (method.operation.wire.v0_3.path or method.operation.wire.path, method.operation)
        for method in SERVICE.methods
        if method.operation.wire.v0_3 is not None
    )

    def query_fields(self, operation: ServedOperation) -> Any:  # noqa: ANN401  no common type
        """Return the descriptors of the fields that a query may have."""
        return _GRPC_METHODS[operation.wire.name].request.DESCRIPTOR.fields

    def parameters(self, operation: ServedOperation, params: Json, path: PathParams) -> Json:
        """Return the parameters with the path's parameters.

        WireError: both contradict each other.
        """
        if operation.wire is wire.CREATE_PUSH_CONFIG:
            params = _wrap_config(params)
        method = operation.wire.v0_3
        if method is not None and method.name_field:
            field = method.request.DESCRIPTOR.fields_by_name[method.name_field]
            config = f"/pushNotificationConfigs/{path.config_id}" if path.config_id else ""
            put_path_field(params, field, f"tasks/{path.task_id}{config}")
        return params

    def choose_method(
        self, operation: ServedOperation, caller: Caller, params: Json
    ) -> UnaryMethod | StreamMethod:
        """Return the method of an operation, in the JSON that the client uses."""
        name = operation.wire.name
        if name in _JSONRPC_METHODS and _is_jsonrpc_message(params):
            return _JSONRPC_METHODS[name]
        return _METHODS[uses_raw_file_bytes(caller.user_agent)][name]

    def find_tenant(self, _params: Json) -> str:
        """Return nothing: v0.3 has no tenants."""
        return ""

    def error_body(self, error: WireError) -> Json:
        """Return the body of an error, for which v0.3 defines no members.

        JavaScript clients read the members of JSON-RPC, Python clients `type` or the status.
        """
        return {
            "code": error.kind.rpc_code,
            "message": error.text,
            "data": dict(error.metadata),
            "type": v0_3_error_name(error),
            **rest_error_body(error),
        }


def _method(grpc_method: GrpcMethod, *, uses_raw_files: bool) -> UnaryMethod | StreamMethod:
    """Return a method with ProtoJSON of its gRPC messages."""
    operation = grpc_method.operation

    def parse(params: object) -> Any:  # noqa: ANN401  any request
        message = parser.parse_message(params, message_type=grpc_method.request)
        if uses_raw_files:
            encode_file_bytes(message)
        request = grpc_method.check(grpc_method.to_core(message))
        if isinstance(request, a2a_pb2.SendMessageRequest):
            parser.check_nesting(request)
        return request

    def render(_request: object, result: object) -> Json:
        message = grpc_method.from_core(result)
        if uses_raw_files:
            decode_file_bytes(message)
        return proto_message_json(message)

    name = operation.wire.name
    if isinstance(operation, StreamOperation):
        return StreamMethod(
            name=name,
            operation=operation,
            parse=parse,
            event_writer=lambda _request: V03ProtoEventWriter(uses_raw_files=uses_raw_files),
        )
    if operation.wire is wire.GET_EXTENDED_CARD:
        # SDKs of v0.3 expect the JSON of JSON-RPC here. SDKs of v1.0 expect the JSON of protobuf.
        return UnaryMethod(
            name=name,
            operation=operation,
            parse=lambda _params: a2a_pb2.GetExtendedAgentCardRequest(),
            render=lambda _request, card: merged_card_json(card),
        )
    return UnaryMethod(name=name, operation=operation, parse=parse, render=render)


_GRPC_METHODS: Final = {method.operation.wire.name: method for method in SERVICE.methods}
_METHODS: Final = {
    uses_raw_files: {
        name: _method(method, uses_raw_files=uses_raw_files)
        for name, method in _GRPC_METHODS.items()
    }
    for uses_raw_files in (False, True)
}
"""The methods by the encoding of files that a client uses, and by the names of v1.0."""
_JSONRPC_METHODS: Final = {
    method.operation.wire.name: method
    for method in JSONRPC.methods.values()
    if method.operation.wire in (wire.SEND_MESSAGE, wire.SEND_STREAMING_MESSAGE)
}
"""The methods whose message may be in the JSON of JSON-RPC."""


def _is_jsonrpc_message(params: object) -> bool:
    """Return whether a message is in the JSON of JSON-RPC, which has `parts` for `content`.

    Many clients send that JSON here, and expect it in the response.
    """
    message = params.get("message") if isinstance(params, dict) else None
    return isinstance(message, dict) and "parts" in message and "content" not in message


def _wrap_config(params: Json) -> Json:
    """Return the whole request to create a push notification config.

    By the HTTP annotation in the proto file, the body is only the request's field `config`. Some
    clients omit the object inside that as well.
    """
    config = params["config"] if isinstance(params.get("config"), dict) else params
    if "url" in config:
        config = {"pushNotificationConfig": config}
    if any(name in config for name in _WEBHOOK):
        return {**params, "config": config} if "config" in params else {"config": config}
    return params
