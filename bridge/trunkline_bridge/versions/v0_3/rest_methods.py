"""HTTP+JSON as A2A v0.3 has it: its gRPC methods with messages as JSON, not its JSON-RPC."""

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline_bridge.bindings import request_parser as params
from trunkline_bridge.bindings.grpc_service import GrpcMethod, UnaryGrpcMethod
from trunkline_bridge.bindings.grpc_service import StreamingGrpcMethod as Stream
from trunkline_bridge.bindings.grpc_status import v0_3_error_name
from trunkline_bridge.bindings.http_handler import EventsContext
from trunkline_bridge.bindings.jsonrpc_version import StreamOpener  # noqa: TC001
from trunkline_bridge.bindings.operation_table import UnaryMethod
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.bindings.rest_request import Place, put_path_field
from trunkline_bridge.edge.caller import Caller
from trunkline_bridge.edge.http import rest_error_body
from trunkline_bridge.errors import WireError
from trunkline_bridge.streams.event_renderer import EventWriter
from trunkline_bridge.versions.card_json import merged_card_json
from trunkline_bridge.versions.json_values import Json
from trunkline_bridge.versions.v0_3.file_bytes import (
    decode_file_bytes,
    encode_file_bytes,
    uses_raw_file_bytes,
)
from trunkline_bridge.versions.v0_3.grpc_methods import SERVICE
from trunkline_bridge.versions.v0_3.jsonrpc_methods import JsonRpcV03
from trunkline_bridge.versions.v0_3.proto_json import V03ProtoEventWriter, proto_message_json

# Descriptors' types have nothing in common.
_Fields: TypeAlias = Any

# Operations that v0.3 calls otherwise.
_OTHER_NAMES = {
    "TaskSubscription": "SubscribeToTask",
    "ListTaskPushNotificationConfig": "ListTaskPushNotificationConfigs",
    "GetAgentCard": "GetExtendedAgentCard",
}
_METHODS = {_OTHER_NAMES.get(method.name, method.name): method for method in SERVICE.methods}
# The field that a path names instead of the body, and how.
_TASK = "tasks/{task_id}"
_CONFIG = f"{_TASK}/pushNotificationConfigs/{{config_id}}"
_IN_PATH: Mapping[str, tuple[str, str]] = {
    "GetTask": ("name", _TASK),
    "CancelTask": ("name", _TASK),
    "SubscribeToTask": ("name", _TASK),
    "CreateTaskPushNotificationConfig": ("parent", _TASK),
    "GetTaskPushNotificationConfig": ("name", _CONFIG),
    "ListTaskPushNotificationConfigs": ("parent", _TASK),
    "DeleteTaskPushNotificationConfig": ("name", _CONFIG),
}
# By both spellings of ProtoJSON.
_WEBHOOK = ("pushNotificationConfig", "push_notification_config")


class RestV03:
    """A2A v0.3 over HTTP+JSON."""

    media_type = "application/json"

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._json_rpc = JsonRpcV03(operations)
        unary = {
            name: partial(self._answer, method)
            for name, method in _METHODS.items()
            if isinstance(method, UnaryGrpcMethod)
        }
        self.unary: Mapping[str, UnaryMethod] = {
            **unary,
            "SendMessage": partial(self._send, unary["SendMessage"]),
            "GetExtendedAgentCard": self._get_card,
        }
        self.streams: Mapping[str, StreamOpener] = {
            name: partial(self._open, method)
            for name, method in _METHODS.items()
            if isinstance(method, Stream)
        }

    def fields(self, operation: str) -> _Fields:
        """Return the fields that a query may have."""
        return _METHODS[operation].request.DESCRIPTOR.fields

    def parameters(self, operation: str, given: Json, place: Place) -> Json:
        """Return the parameters, with those that the path names. WireError: they contradict it."""
        if operation == "CreateTaskPushNotificationConfig":
            given = _whole_creation(given)
        if operation in _IN_PATH:
            name, template = _IN_PATH[operation]
            field = _METHODS[operation].request.DESCRIPTOR.fields_by_name[name]
            put_path_field(
                given, field, template.format(task_id=place.task_id, config_id=place.config_id)
            )
        return given

    def tenant(self, _given: Json) -> str:
        """Return nothing: v0.3 has no tenants."""
        return ""

    def error_body(self, error: WireError) -> Json:
        """Return the body of an error: the specification has none, so all that clients look for.

        Those in JavaScript look for JSON-RPC's members, those in Python for `type` or the status.
        """
        return {
            "code": error.kind.rpc_code,
            "message": error.text,
            "data": dict(error.metadata),
            "type": v0_3_error_name(error),
            **rest_error_body(error),
        }

    async def _answer(self, method: UnaryGrpcMethod, caller: Caller, given: object) -> Json:
        answer = await method.call(self._operations, caller, _read(method, caller, given))
        result = method.from_core(answer)
        if uses_raw_file_bytes(caller.user_agent):
            decode_file_bytes(result)
        return proto_message_json(result)

    async def _send(self, answer: UnaryMethod, caller: Caller, given: object) -> object:
        if _is_of_json_rpc(given):
            answer = self._json_rpc.unary["message/send"]
        return await answer(caller, given)

    def _open(
        self, method: Stream, caller: Caller, given: object
    ) -> tuple[EventWriter, EventsContext]:
        if _is_of_json_rpc(given):
            return self._json_rpc.streams["message/stream"](caller, given)
        opening = method.open(self._operations, caller, _read(method, caller, given))
        return V03ProtoEventWriter(with_plain_files=uses_raw_file_bytes(caller.user_agent)), opening

    async def _get_card(self, caller: Caller, _given: object) -> Json:
        # SDKs of v0.3 read it as JSON-RPC has it, those of v1.0 as protobuf: this one is both.
        return merged_card_json(await self._operations.get_extended_card(caller))


def _read(method: GrpcMethod, caller: Caller, given: object) -> Any:  # noqa: ANN401  any of the core
    request = params.parse_message(given, message_type=method.request)
    if uses_raw_file_bytes(caller.user_agent):
        encode_file_bytes(request)
    core = method.check(method.to_core(request))
    if isinstance(core, a2a_pb2.SendMessageRequest):
        params.check_nesting(core)
    return core


def _is_of_json_rpc(given: object) -> bool:
    """Whether a message is as JSON-RPC has it: many send that here, and want the like of it."""
    message = given.get("message") if isinstance(given, dict) else None
    return isinstance(message, dict) and "parts" in message and "content" not in message


def _whole_creation(given: Json) -> Json:
    """Return the whole request to create a webhook, of any of the forms that are sent for it.

    The proto's annotation has the body be what is called `config` in the whole one; and clients
    leave out its wrapping, too.
    """
    config = given["config"] if isinstance(given.get("config"), dict) else given
    if "url" in config:
        config = {"pushNotificationConfig": config}
    if any(name in config for name in _WEBHOOK):
        return {**given, "config": config} if "config" in given else {"config": config}
    return given
