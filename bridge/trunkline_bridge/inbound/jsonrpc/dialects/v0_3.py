"""A2A v0.3 over JSON-RPC, and v0.2, whose methods are among those of v0.3."""

from contextlib import AbstractAsyncContextManager

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import message_pb2
from trunkline_bridge.errors import VERSION_NOT_SUPPORTED, WireError, invalid_params
from trunkline_bridge.inbound.caller import Caller
from trunkline_bridge.inbound.jsonrpc.dialects.dialect import (
    OLDER_WORDS,
    Words,
    fields_called,
    shaped,
    task_named,
    with_cursor,
)
from trunkline_bridge.inbound.jsonrpc.envelope import error_object
from trunkline_bridge.inbound.operations import Operations
from trunkline_bridge.inbound.reading import params
from trunkline_bridge.inbound.streaming.streams import WireEvents
from trunkline_bridge.wire import card_json, v0_3_input, v0_3_json
from trunkline_bridge.wire.json_values import Json
from trunkline_bridge.wire.v0_3_json import V03Shape
from trunkline_bridge.wire.versions import V0_3

_WORDS = Words(
    {
        **OLDER_WORDS,
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
_OF_A_TASK = {
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


class V03:
    """The methods of v0.3."""

    version = V0_3

    def __init__(self, operations: Operations) -> None:
        self.sends = {"message/send": "message/stream"}
        self._operations = operations
        self.answers = {
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
            "message/stream": shaped(self._stream, V03Shape),
            "tasks/resubscribe": shaped(self._resubscribe, V03Shape),
        }

    def task_of(self, method: str, given: object) -> str:
        """Return the task that parameters may name."""
        return task_named(given, _OF_A_TASK[method]) if method in _OF_A_TASK else ""

    def error(self, error: WireError) -> Json:
        """Return JSON-RPC's error object; what v0.3 has no code for is an internal error."""
        if error.row is VERSION_NOT_SUPPORTED:
            return error_object(error)
        return _WORDS.error(error)

    async def _send(self, caller: Caller, given: object) -> Json:
        request = params.read_send(v0_3_input.send_params(given))
        answer = await self._operations.send(caller, request)
        if isinstance(answer, message_pb2.Message):
            return v0_3_json.message_json(answer)
        return v0_3_json.task(answer)

    def _stream(self, caller: Caller, given: object) -> AbstractAsyncContextManager[WireEvents]:
        request = params.read_send(v0_3_input.send_params(given))
        return self._operations.stream(caller, request)

    async def _get(self, caller: Caller, given: object) -> Json:
        request = params.read_get(v0_3_input.get_params(given))
        return v0_3_json.task(await self._operations.get(caller, request))

    async def _cancel(self, caller: Caller, given: object) -> Json:
        request = params.read_cancel(given)
        return v0_3_json.task(await self._operations.cancel(caller, request))

    def _resubscribe(
        self, caller: Caller, given: object
    ) -> AbstractAsyncContextManager[WireEvents]:
        request = params.read_subscribe(given)
        return self._operations.subscribe(with_cursor(caller, given), request)

    async def _set_push(self, caller: Caller, given: object) -> Json:
        config = given.get(_CONFIG) if isinstance(given, dict) else None
        if not isinstance(given, dict) or not isinstance(config, dict):
            raise invalid_params((_CONFIG, "must be an object"))
        flat = {**v0_3_input.webhook(config), **v0_3_input.picked(given, ("taskId",))}
        with fields_called(_FLAT):
            request = params.read_create_push(flat)
            made = await self._operations.create_push_config(caller, request)
        return v0_3_json.push_config(made)

    async def _get_push(self, caller: Caller, given: object) -> Json:
        request = a2a_pb2.GetTaskPushNotificationConfigRequest(
            task_id=params.read_subscribe(given).id, id=_config_id(given)
        )
        with fields_called(_IDS):
            config = await self._operations.get_push_config(caller, request)
        return v0_3_json.push_config(config)

    async def _list_pushes(self, caller: Caller, given: object) -> list[Json]:
        request = a2a_pb2.ListTaskPushNotificationConfigsRequest(
            task_id=params.read_subscribe(given).id
        )
        page = await self._operations.list_push_configs(caller, request)
        return [v0_3_json.push_config(one) for one in page.configs]

    async def _delete_push(self, caller: Caller, given: object) -> None:
        request = a2a_pb2.DeleteTaskPushNotificationConfigRequest(
            task_id=params.read_subscribe(given).id, id=_config_id(given)
        )
        with fields_called(_IDS):
            await self._operations.delete_push_config(caller, params.check_push_ids(request))

    async def _extended_card(self, caller: Caller, _given: object) -> Json:
        return card_json.v0_3_card(await self._operations.extended_card(caller))


def _config_id(given: object) -> str:
    config_id = given.get("pushNotificationConfigId") if isinstance(given, dict) else None
    if config_id is None:
        return ""
    if not isinstance(config_id, str):
        raise invalid_params(("pushNotificationConfigId", "must be a string"))
    return config_id
