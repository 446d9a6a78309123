"""A2A v0.3 over HTTP+JSON: its gRPC methods with messages as ProtoJSON, unlike its JSON-RPC."""

from collections.abc import Mapping
from functools import partial
from typing import Any

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
    BoundMethods,
    StreamHandler,
    StreamOperation,
    UnaryHandler,
    UnaryOperation,
)
from trunkline_bridge.a2a.operations.operations import Operations
from trunkline_bridge.a2a.streams.event_renderer import EventWriter
from trunkline_bridge.a2a.streams.task_streams import EventsContext
from trunkline_bridge.a2a.versions.grpc_service import GrpcMethod
from trunkline_bridge.a2a.versions.rest_routes import PathParams, put_path_field, rest_routes
from trunkline_bridge.a2a.versions.v0_3.grpc_methods import SERVICE, v0_3_error_name
from trunkline_bridge.a2a.versions.v0_3.jsonrpc_methods import build_jsonrpc
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.http.messages import rest_error_body

_METHODS = {method.operation.wire.name: method for method in SERVICE.methods}
# Both spellings that ProtoJSON accepts.
_WEBHOOK = ("pushNotificationConfig", "push_notification_config")


class RestV03:
    """A2A v0.3 over HTTP+JSON."""

    version = V0_3
    media_type = "application/json"
    routes: Mapping[str, Mapping[str, str]] = rest_routes(
        (operation.v0_3.path or operation.path, operation)
        for operation in wire.OPERATIONS
        if operation.v0_3 is not None
    )

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._jsonrpc = build_jsonrpc(operations).methods
        unary: dict[str, UnaryHandler] = {}
        streams: dict[str, StreamHandler] = {}
        for name, method in _METHODS.items():
            operation = method.operation
            if isinstance(operation, StreamOperation):
                streams[name] = partial(self._open, method, operation)
            else:
                unary[name] = partial(self._call, method, operation)
        self.methods = BoundMethods(unary, streams)

    def query_fields(self, operation: str) -> Any:  # noqa: ANN401  descriptors have no common type
        """Return the fields that a query may have."""
        return _METHODS[operation].request.DESCRIPTOR.fields

    def parameters(self, operation: str, params: Json, path: PathParams) -> Json:
        """Return the parameters with the path's parameters.

        WireError: both contradict each other.
        """
        if operation == wire.CREATE_PUSH_CONFIG.name:
            params = _wrap_config(params)
        method = _METHODS[operation].operation.wire.v0_3
        if method is not None and method.name_field:
            field = method.request.DESCRIPTOR.fields_by_name[method.name_field]
            config = f"/pushNotificationConfigs/{path.config_id}" if path.config_id else ""
            put_path_field(params, field, f"tasks/{path.task_id}{config}")
        return params

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

    async def _call(
        self, method: GrpcMethod, operation: UnaryOperation, caller: Caller, params: object
    ) -> object:
        if operation.wire is wire.GET_EXTENDED_CARD:
            # SDKs of v0.3 expect the JSON of JSON-RPC here. SDKs of v1.0 expect the JSON of
            # protobuf.
            return merged_card_json(await self._operations.get_extended_card(caller))
        if operation.wire is wire.SEND_MESSAGE and _is_jsonrpc_message(params):
            return await self._jsonrpc.unary["message/send"](caller, params)
        request = _parse(method, caller, params)
        message = method.from_core(await operation.call(self._operations, caller, request))
        if uses_raw_file_bytes(caller.user_agent):
            decode_file_bytes(message)
        return proto_message_json(message)

    def _open(
        self, method: GrpcMethod, operation: StreamOperation, caller: Caller, params: object
    ) -> tuple[EventWriter, EventsContext]:
        if _is_jsonrpc_message(params):
            return self._jsonrpc.streams["message/stream"](caller, params)
        events = operation.open(self._operations, caller, _parse(method, caller, params))
        return V03ProtoEventWriter(uses_raw_files=uses_raw_file_bytes(caller.user_agent)), events


def _parse(method: GrpcMethod, caller: Caller, params: object) -> Any:  # noqa: ANN401  any request
    message = parser.parse_message(params, message_type=method.request)
    if uses_raw_file_bytes(caller.user_agent):
        encode_file_bytes(message)
    request = method.check(method.to_core(message))
    if isinstance(request, a2a_pb2.SendMessageRequest):
        parser.check_nesting(request)
    return request


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
