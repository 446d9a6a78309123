"""A2A v1.0's methods by name: parameters in, JSON results or streams of events out."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from trunkline.v1 import message_pb2
from trunkline_bridge.errors import METHOD_NOT_FOUND, PUSH_NOTIFICATION_NOT_SUPPORTED, WireError
from trunkline_bridge.inbound import params
from trunkline_bridge.inbound.caller import Caller
from trunkline_bridge.inbound.operations import NO_PUSH, Operations
from trunkline_bridge.inbound.streaming.streams import WireEvents
from trunkline_bridge.wire import json_values, v1_json

Answer: TypeAlias = Callable[[Caller, object], Awaitable[json_values.Json]]
Stream: TypeAlias = Callable[[Caller, object], AbstractAsyncContextManager[WireEvents]]

# Methods of older versions, and the ones of v1.0 that do the same.
_OLDER: Mapping[str, str] = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/list": "ListTasks",
    "tasks/cancel": "CancelTask",
    "tasks/resubscribe": "SubscribeToTask",
    "tasks/send": "SendMessage",
    "tasks/sendSubscribe": "SendStreamingMessage",
    "agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
}
# What concerns one task; all else needs its agent to be there.
OF_A_TASK = frozenset({"GetTask", "CancelTask", "SubscribeToTask"})
_NAME_LENGTH = 100


class Methods:
    """The methods: `answers` return a result, `streams` open a stream."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self.answers: Mapping[str, Answer] = {
            "SendMessage": self._send_message,
            "GetTask": self._get_task,
            "ListTasks": self._list_tasks,
            "CancelTask": self._cancel_task,
            "CreateTaskPushNotificationConfig": self._no_push,
            "GetTaskPushNotificationConfig": self._no_push,
            "ListTaskPushNotificationConfigs": self._no_push,
            "DeleteTaskPushNotificationConfig": self._no_push,
            "GetExtendedAgentCard": self._get_extended_card,
        }
        self.streams: Mapping[str, Stream] = {
            "SendStreamingMessage": self._send_streaming_message,
            "SubscribeToTask": self._subscribe_to_task,
        }

    async def _send_message(self, caller: Caller, given: object) -> json_values.Json:
        answer = await self._operations.send(caller, params.read_send(given))
        if isinstance(answer, message_pb2.Message):
            return {"message": v1_json.message_json(answer)}
        return {"task": v1_json.task(answer)}

    async def _get_task(self, caller: Caller, given: object) -> json_values.Json:
        return v1_json.task(await self._operations.get(caller, params.read_get(given)))

    async def _cancel_task(self, caller: Caller, given: object) -> json_values.Json:
        return v1_json.task(await self._operations.cancel(caller, params.read_cancel(given)))

    async def _list_tasks(self, caller: Caller, given: object) -> json_values.Json:
        request = params.read_list(given)
        page = await self._operations.list(caller, request)
        return {
            "tasks": [
                v1_json.task(one, with_artifacts=request.include_artifacts) for one in page.tasks
            ],
            "nextPageToken": page.next_page_token,
            "pageSize": page.page_size,
            "totalSize": page.total_size,
        }

    async def _no_push(self, _caller: Caller, _given: object) -> json_values.Json:
        raise WireError(PUSH_NOTIFICATION_NOT_SUPPORTED, NO_PUSH)

    async def _get_extended_card(self, caller: Caller, _given: object) -> json_values.Json:
        return v1_json.agent_card(await self._operations.extended_card(caller))

    def _send_streaming_message(
        self, caller: Caller, given: object
    ) -> AbstractAsyncContextManager[WireEvents]:
        return self._operations.stream(caller, params.read_send(given))

    def _subscribe_to_task(
        self, caller: Caller, given: object
    ) -> AbstractAsyncContextManager[WireEvents]:
        return self._operations.subscribe(caller, params.read_subscribe(given))


def unknown_method(method: str) -> WireError:
    """Return the error for a method that A2A v1.0 doesn't have; an older one is told its heir."""
    method = method[:_NAME_LENGTH]
    heir = _OLDER.get(method)
    if heir is not None:
        text = f"method {method!r} is of an older A2A; this agent speaks 1.0: send {heir}"
    else:
        text = f"no method {method!r}; A2A 1.0 has SendMessage, SendStreamingMessage and others"
    return WireError(METHOD_NOT_FOUND, text, {"method": method})
