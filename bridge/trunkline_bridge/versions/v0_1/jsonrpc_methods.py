"""A2A v0.1 over JSON-RPC, the original wire: tasks go by the ids that their clients choose."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace

from trunkline.a2a.v1 import a2a_pb2
from trunkline.errors import TaskNotFoundError, UnsupportedOperationError
from trunkline.task_states import TERMINAL
from trunkline.v1 import message_pb2, task_pb2
from trunkline_bridge.bindings import request_parser as params
from trunkline_bridge.bindings.http_handler import EventsContext
from trunkline_bridge.bindings.jsonrpc_version import (
    OLDER_VOCABULARY,
    ErrorVocabulary,
    find_task_id,
    renamed_fields,
    with_cursor_from_metadata,
)
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.edge.caller import Caller
from trunkline_bridge.errors import WireError, to_wire_error
from trunkline_bridge.protocol import V0_1
from trunkline_bridge.streams.task_streams import WireEvents
from trunkline_bridge.versions.json_values import Json
from trunkline_bridge.versions.v0_1 import json_reader as v0_1_input
from trunkline_bridge.versions.v0_1 import json_writer as v0_1_json
from trunkline_bridge.versions.v0_1.json_writer import V01EventWriter
from trunkline_bridge.versions.v0_1.task_aliases import TaskAliases

_VOCABULARY = ErrorVocabulary(
    {
        **OLDER_VOCABULARY,
        "SendMessage": "tasks/send",
        "SendStreamingMessage": "tasks/sendSubscribe",
        "GetTask": "tasks/get",
        "CancelTask": "tasks/cancel",
        "SubscribeToTask": "tasks/resubscribe",
        "send with returnImmediately": "send with tasks/sendSubscribe",
        "configuration.taskPushNotificationConfig": "pushNotification",
        "configuration.historyLength": "historyLength",
        "configuration.acceptedOutputModes": "acceptedOutputModes",
        "message.contextId": "sessionId",
    },
    codes=range(-32005, -32000),
)
_TASK_METHODS = frozenset(
    {
        "tasks/get",
        "tasks/cancel",
        "tasks/resubscribe",
        "tasks/pushNotification/set",
        "tasks/pushNotification/get",
    }
)
_CONFIG = "pushNotificationConfig"
_FLAT = {name: f"{_CONFIG}.{name}" for name in ("url", "token", "authentication")}


class JsonRpcV01:
    """The methods of v0.1."""

    version = V0_1

    def __init__(self, operations: Operations, aliases: TaskAliases) -> None:
        self.sends = {"tasks/send": "tasks/sendSubscribe"}
        self._operations = operations
        self._aliases = aliases
        self.unary = {
            "tasks/send": self._send,
            "tasks/get": self._get,
            "tasks/cancel": self._cancel,
            "tasks/pushNotification/set": self._set_push,
            "tasks/pushNotification/get": self._get_push,
        }
        self.streams = {
            "tasks/sendSubscribe": self._send_subscribe,
            "tasks/resubscribe": self._resubscribe,
        }

    def find_task_id(self, method: str, given: object) -> str:
        """Return the task that parameters may name."""
        return find_task_id(given, "id") if method in _TASK_METHODS else ""

    def error_object(self, error: WireError) -> Json:
        """Return JSON-RPC's error object; what v0.1 has no code for is an internal error."""
        return _VOCABULARY.error(error)

    async def _send(self, caller: Caller, given: object) -> Json:
        client_id, asked = v0_1_input.convert_send_params(given)
        request = params.parse_send(asked)
        history_length = request.configuration.history_length
        # All of it, to see in it whose message made the task.
        request.configuration.ClearField("history_length")
        new_task_id = await self._address(caller, client_id, request)
        with _rename_task(client_id, new_task_id or request.message.task_id):
            answer = await self._operations.send_message(caller, request, new_task_id=new_task_id)
        if isinstance(answer, message_pb2.Message):
            return v0_1_json.reply_task_json(answer, client_id=client_id)
        if new_task_id:
            _check_task_owner(request.message, answer)
        del answer.history[: max(0, len(answer.history) - history_length)]
        return v0_1_json.task_json(answer, client_id=client_id)

    def _send_subscribe(
        self, caller: Caller, given: object
    ) -> tuple[V01EventWriter, EventsContext]:
        client_id, asked = v0_1_input.convert_send_params(given)
        request = params.parse_send(asked)
        request.configuration.ClearField("history_length")
        return V01EventWriter(client_id), self._sent(caller, client_id, request)

    @asynccontextmanager
    async def _sent(
        self, caller: Caller, client_id: str, request: a2a_pb2.SendMessageRequest
    ) -> AsyncIterator[WireEvents]:
        new_task_id = await self._address(caller, client_id, request)
        task_id = new_task_id or request.message.task_id
        with _rename_task(client_id, task_id):
            async with self._operations.stream_message(
                caller, request, new_task_id=new_task_id
            ) as events:
                own = _check_stream_owner(request.message, events) if new_task_id else events
                yield _rename_task_in_stream(client_id, task_id, own)

    async def _get(self, caller: Caller, given: object) -> Json:
        client_id = v0_1_input.parse_client_id(given)
        task_id = await self._task(caller, client_id)
        history = v0_1_input.convert_history_length(v0_1_input.require_object(given))
        request = params.parse_get({"id": task_id, **history})
        with _rename_task(client_id, task_id):
            task = await self._operations.get_task(caller, request)
        return v0_1_json.task_json(task, client_id=client_id)

    async def _cancel(self, caller: Caller, given: object) -> Json:
        client_id = v0_1_input.parse_client_id(given)
        task_id = await self._task(caller, client_id)
        request = a2a_pb2.CancelTaskRequest(id=task_id)
        with _rename_task(client_id, task_id):
            task = await self._operations.cancel_task(caller, request)
        del task.history[:]
        return v0_1_json.task_json(task, client_id=client_id)

    def _resubscribe(self, caller: Caller, given: object) -> tuple[V01EventWriter, EventsContext]:
        shape = V01EventWriter(v0_1_input.parse_client_id(given))
        return shape, self._resubscribed(with_cursor_from_metadata(caller, given), shape)

    @asynccontextmanager
    async def _resubscribed(
        self, caller: Caller, shape: V01EventWriter
    ) -> AsyncIterator[WireEvents]:
        task_id = await self._task(caller, shape.client_id)
        with _rename_task(shape.client_id, task_id):
            if caller.last_event_id is not None:
                # What was seen before had its indexes, too.
                request = a2a_pb2.GetTaskRequest(id=task_id)
                shape.assign_indexes(await self._operations.get_task(caller, request))
            async with self._operations.subscribe_to_task(
                caller, a2a_pb2.SubscribeToTaskRequest(id=task_id)
            ) as events:
                yield _rename_task_in_stream(shape.client_id, task_id, events)

    async def _set_push(self, caller: Caller, given: object) -> Json:
        client_id = v0_1_input.parse_client_id(given)
        config = v0_1_input.convert_webhook(given)
        task_id = await self._task(caller, client_id)
        with _rename_task(client_id, task_id), renamed_fields(_FLAT):
            request = params.parse_create_push({**config, "taskId": task_id})
            made = await self._operations.create_push_config(caller, request)
        return v0_1_json.push_config_json(made, client_id=client_id)

    async def _get_push(self, caller: Caller, given: object) -> Json:
        client_id = v0_1_input.parse_client_id(given)
        task_id = await self._task(caller, client_id)
        # Without an id it is the first one, whoever set it.
        request = a2a_pb2.GetTaskPushNotificationConfigRequest(task_id=task_id)
        with _rename_task(client_id, task_id):
            config = await self._operations.get_push_config(caller, request)
        return v0_1_json.push_config_json(config, client_id=client_id)

    async def _task(self, caller: Caller, client_id: str) -> str:
        """Return the task that a client's id stands for. TaskNotFoundError: it stands for none."""
        task_id = await self._aliases.find(caller, client_id)
        if not task_id:
            raise TaskNotFoundError(client_id)
        return task_id

    async def _address(
        self, caller: Caller, client_id: str, request: a2a_pb2.SendMessageRequest
    ) -> str:
        """Address a message to the task that its client's id stands for.

        Returns the id of the task that is to be made: an id that is new stands for a new task, and
        one whose task has ended for another task in the same conversation. What was bound, and
        then never made, is made now.
        """
        task_id = await self._aliases.find(caller, client_id)
        if not task_id:
            new_task_id = self._aliases.new_task_id(caller)
            task_id = await self._aliases.bind(caller, client_id, new_task_id)
            if task_id == new_task_id:
                return new_task_id
        task = await self._found(caller, task_id)
        if task is None:
            if task_id == client_id:
                raise TaskNotFoundError(client_id)
            if self._aliases.may_create(caller, task_id):
                return task_id
        elif task.status.state not in TERMINAL:
            request.message.task_id = task_id
            return ""
        else:
            message = request.message
            message.context_id = message.context_id or task.context_id
            message.reference_task_ids.append(task_id)
        new_task_id = self._aliases.new_task_id(caller)
        return await self._aliases.bind(caller, client_id, new_task_id, replaces=task_id)

    async def _found(self, caller: Caller, task_id: str) -> task_pb2.Task | None:
        request = a2a_pb2.GetTaskRequest(id=task_id, history_length=0)
        try:
            return await self._operations.get_task(caller, request)
        except TaskNotFoundError:
            return None


async def _check_stream_owner(message: message_pb2.Message, events: WireEvents) -> WireEvents:
    """Events of a task that a message was to make, once it is seen that it did."""
    async with aclosing(events):
        async for ready in events:
            for event in ready[:1]:
                if event.response.HasField("task"):
                    _check_task_owner(message, event.response.task)
            yield ready


def _check_task_owner(message: message_pb2.Message, task: task_pb2.Task) -> None:
    """Refuse a message under a new id if another one, at the same moment, has made the task."""
    if task.history and task.history[0].message_id != message.message_id:
        problem = "another message has just begun it; send this one when that is answered"
        raise UnsupportedOperationError("a message to a task that begins", problem)


async def _rename_task_in_stream(client_id: str, task_id: str, events: WireEvents) -> WireEvents:
    """Events whose errors call a task what its client does: whoever sends them catches these."""
    with _rename_task(client_id, task_id):
        async with aclosing(events):
            async for ready in events:
                yield ready


@contextmanager
def _rename_task(client_id: str, task_id: str) -> Iterator[None]:
    """Have errors call a task what its client does."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  every error becomes one of the wire's
        said = to_wire_error(error)
        if not task_id:
            raise said from None
        metadata = {
            name: value.replace(task_id, client_id) for name, value in said.metadata.items()
        }
        text = said.text.replace(task_id, client_id)
        raise replace(said, text=text, metadata=metadata) from None
