"""A2A v1.0's methods by name: parameters in, JSON results or streams of events out."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from trunkline.v1 import message_pb2
from trunkline_bridge.bindings import request_parser as params
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.edge.caller import Caller
from trunkline_bridge.streams.task_streams import WireEvents
from trunkline_bridge.versions import json_values
from trunkline_bridge.versions.v1_0 import json_writer as v1_json

UnaryMethod: TypeAlias = Callable[[Caller, object], Awaitable[object]]
StreamMethod: TypeAlias = Callable[[Caller, object], AbstractAsyncContextManager[WireEvents]]

# What concerns one task, and which parameter names it; all else needs its agent to be there.
TASK_FIELDS: Mapping[str, str] = {
    "GetTask": "id",
    "CancelTask": "id",
    "SubscribeToTask": "id",
    "CreateTaskPushNotificationConfig": "taskId",
    "GetTaskPushNotificationConfig": "taskId",
    "ListTaskPushNotificationConfigs": "taskId",
    "DeleteTaskPushNotificationConfig": "taskId",
}


class Methods:
    """The methods: `answers` return a result, `streams` open a stream."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self.unary: Mapping[str, UnaryMethod] = {
            "SendMessage": self._send_message,
            "GetTask": self._get_task,
            "ListTasks": self._list_tasks,
            "CancelTask": self._cancel_task,
            "CreateTaskPushNotificationConfig": self._create_push_config,
            "GetTaskPushNotificationConfig": self._get_push_config,
            "ListTaskPushNotificationConfigs": self._list_push_configs,
            "DeleteTaskPushNotificationConfig": self._delete_push_config,
            "GetExtendedAgentCard": self._get_extended_card,
        }
        self.streams: Mapping[str, StreamMethod] = {
            "SendStreamingMessage": self._send_streaming_message,
            "SubscribeToTask": self._subscribe_to_task,
        }

    async def _send_message(self, caller: Caller, given: object) -> json_values.Json:
        answer = await self._operations.send_message(caller, params.parse_send(given))
        if isinstance(answer, message_pb2.Message):
            return {"message": v1_json.message_json(answer)}
        return {"task": v1_json.task_json(answer)}

    async def _get_task(self, caller: Caller, given: object) -> json_values.Json:
        return v1_json.task_json(await self._operations.get_task(caller, params.parse_get(given)))

    async def _cancel_task(self, caller: Caller, given: object) -> json_values.Json:
        return v1_json.task_json(
            await self._operations.cancel_task(caller, params.parse_cancel(given))
        )

    async def _list_tasks(self, caller: Caller, given: object) -> json_values.Json:
        request = params.parse_list(given)
        page = await self._operations.list_tasks(caller, request)
        return {
            "tasks": [
                v1_json.task_json(one, with_artifacts=request.include_artifacts)
                for one in page.tasks
            ],
            "nextPageToken": page.next_page_token,
            "pageSize": page.page_size,
            "totalSize": page.total_size,
        }

    async def _create_push_config(self, caller: Caller, given: object) -> json_values.Json:
        config = params.parse_create_push(given)
        return v1_json.push_config_json(await self._operations.create_push_config(caller, config))

    async def _get_push_config(self, caller: Caller, given: object) -> json_values.Json:
        request = params.parse_get_push(given)
        return v1_json.push_config_json(await self._operations.get_push_config(caller, request))

    async def _list_push_configs(self, caller: Caller, given: object) -> json_values.Json:
        request = params.parse_list_pushes(given)
        page = await self._operations.list_push_configs(caller, request)
        return {
            "configs": [v1_json.push_config_json(one) for one in page.configs],
            "nextPageToken": page.next_page_token,
        }

    async def _delete_push_config(self, caller: Caller, given: object) -> None:
        await self._operations.delete_push_config(caller, params.parse_delete_push(given))

    async def _get_extended_card(self, caller: Caller, _given: object) -> json_values.Json:
        return v1_json.agent_card_json(await self._operations.get_extended_card(caller))

    def _send_streaming_message(
        self, caller: Caller, given: object
    ) -> AbstractAsyncContextManager[WireEvents]:
        return self._operations.stream_message(caller, params.parse_send(given))

    def _subscribe_to_task(
        self, caller: Caller, given: object
    ) -> AbstractAsyncContextManager[WireEvents]:
        return self._operations.subscribe_to_task(caller, params.parse_subscribe(given))
