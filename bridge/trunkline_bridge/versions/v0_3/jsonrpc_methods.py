"""A2A v0.3 over JSON-RPC, and v0.2, whose methods are among those of v0.3."""

from contextlib import AbstractAsyncContextManager

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import message_pb2
from trunkline_bridge.bindings import request_parser as params
from trunkline_bridge.bindings.jsonrpc_envelope import error_object
from trunkline_bridge.bindings.jsonrpc_version import (
    OLDER_VOCABULARY,
    ErrorVocabulary,
    find_task_id,
    renamed_fields,
    with_cursor_from_metadata,
    with_shape,
)
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.edge.caller import Caller
from trunkline_bridge.errors import VERSION_NOT_SUPPORTED, WireError, invalid_params
from trunkline_bridge.protocol import V0_3
from trunkline_bridge.streams.task_streams import WireEvents
from trunkline_bridge.versions import card_json
from trunkline_bridge.versions.json_values import Json
from trunkline_bridge.versions.v0_3 import json_reader as v0_3_input
from trunkline_bridge.versions.v0_3 import json_writer as v0_3_json
from trunkline_bridge.versions.v0_3.json_writer import V03EventWriter

_VOCABULARY = ErrorVocabulary(
    {
        **OLDER_VOCABULARY,
        "SendMessage": "message/send",
        "SendStreamingMessage": "message/stream",
        "GetTask": "tasks/get",
        "CancelTask": "tasks/cancel",
        "SubscribeToTask": "tasks/resubscribe",
        "GetExtendedAgentCard": "agent/getAuthenticatedExtendedCard",
        "returnImmediately": "blocking: false",
        "taskPushNotificationConfig": "pushNotificationConfig",
    },
    codes=range(-32007, -32000),
)
_TASK_FIELDS = {
    "tasks/get": "id",
    "tasks/cancel": "id",
    "tasks/resubscribe": "id",
    "tasks/pushNotificationConfig/set": "taskId",
    "tasks/pushNotificationConfig/get": "id",
    "tasks/pushNotificationConfig/list": "id",
    "tasks/pushNotificationConfig/delete": "id",
}
# A webhook is flat in v1.0, and in an object of its own here.
_CONFIG = "pushNotificationConfig"
_FLAT = {name: f"{_CONFIG}.{name}" for name in ("id", "url", "token", "authentication")}
_IDS = {"taskId": "id", "id": "pushNotificationConfigId"}


class JsonRpcV03:
    """The methods of v0.3."""

    version = V0_3

    def __init__(self, operations: Operations) -> None:
        self.sends = {"message/send": "message/stream"}
        self._operations = operations
        self.unary = {
            "message/send": self._send,
            "tasks/get": self._get,
            "tasks/cancel": self._cancel,
            "tasks/pushNotificationConfig/set": self._set_push,
            "tasks/pushNotificationConfig/get": self._get_push,
            "tasks/pushNotificationConfig/list": self._list_pushes,
            "tasks/pushNotificationConfig/delete": self._delete_push,
            "agent/getAuthenticatedExtendedCard": self._extended_card,
        }
        self.streams = {
            "message/stream": with_shape(self._stream, V03EventWriter),
            "tasks/resubscribe": with_shape(self._resubscribe, V03EventWriter),
        }

    def find_task_id(self, method: str, given: object) -> str:
        """Return the task that parameters may name."""
        return find_task_id(given, _TASK_FIELDS[method]) if method in _TASK_FIELDS else ""

    def error_object(self, error: WireError) -> Json:
        """Return JSON-RPC's error object; what v0.3 has no code for is an internal error."""
        if error.kind is VERSION_NOT_SUPPORTED:
            return error_object(error)
        return _VOCABULARY.error(error)

    async def _send(self, caller: Caller, given: object) -> Json:
        request = params.parse_send(v0_3_input.convert_send_params(given))
        answer = await self._operations.send_message(caller, request)
        if isinstance(answer, message_pb2.Message):
            return v0_3_json.message_json(answer)
        return v0_3_json.task_json(answer)

    def _stream(self, caller: Caller, given: object) -> AbstractAsyncContextManager[WireEvents]:
        request = params.parse_send(v0_3_input.convert_send_params(given))
        return self._operations.stream_message(caller, request)

    async def _get(self, caller: Caller, given: object) -> Json:
        request = params.parse_get(v0_3_input.convert_get_params(given))
        return v0_3_json.task_json(await self._operations.get_task(caller, request))

    async def _cancel(self, caller: Caller, given: object) -> Json:
        request = params.parse_cancel(given)
        return v0_3_json.task_json(await self._operations.cancel_task(caller, request))

    def _resubscribe(
        self, caller: Caller, given: object
    ) -> AbstractAsyncContextManager[WireEvents]:
        request = params.parse_subscribe(given)
        return self._operations.subscribe_to_task(with_cursor_from_metadata(caller, given), request)

    async def _set_push(self, caller: Caller, given: object) -> Json:
        config = given.get(_CONFIG) if isinstance(given, dict) else None
        if not isinstance(given, dict) or not isinstance(config, dict):
            raise invalid_params((_CONFIG, "must be an object"))
        flat = {**v0_3_input.convert_webhook(config), **v0_3_input.pick_members(given, ("taskId",))}
        with renamed_fields(_FLAT):
            request = params.parse_create_push(flat)
            made = await self._operations.create_push_config(caller, request)
        return v0_3_json.push_config_json(made)

    async def _get_push(self, caller: Caller, given: object) -> Json:
        request = a2a_pb2.GetTaskPushNotificationConfigRequest(
            task_id=params.parse_subscribe(given).id, id=_config_id(given)
        )
        with renamed_fields(_IDS):
            config = await self._operations.get_push_config(caller, request)
        return v0_3_json.push_config_json(config)

    async def _list_pushes(self, caller: Caller, given: object) -> list[Json]:
        request = a2a_pb2.ListTaskPushNotificationConfigsRequest(
            task_id=params.parse_subscribe(given).id
        )
        page = await self._operations.list_push_configs(caller, request)
        return [v0_3_json.push_config_json(one) for one in page.configs]

    async def _delete_push(self, caller: Caller, given: object) -> None:
        request = a2a_pb2.DeleteTaskPushNotificationConfigRequest(
            task_id=params.parse_subscribe(given).id, id=_config_id(given)
        )
        with renamed_fields(_IDS):
            await self._operations.delete_push_config(caller, params.check_push_ids(request))

    async def _extended_card(self, caller: Caller, _given: object) -> Json:
        return card_json.v0_3_card_json(await self._operations.get_extended_card(caller))


def _config_id(given: object) -> str:
    config_id = given.get("pushNotificationConfigId") if isinstance(given, dict) else None
    if config_id is None:
        return ""
    if not isinstance(config_id, str):
        raise invalid_params(("pushNotificationConfigId", "must be a string"))
    return config_id
