"""A2A v0.1 over JSON-RPC. Its clients choose the task ids."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire import operations as wire
from trunkline.a2a_wire.errors import to_wire_error
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.protocol import V0_1
from trunkline.a2a_wire.v0_1 import json_reader, json_writer
from trunkline.a2a_wire.v0_1.json_writer import V01EventWriter
from trunkline.core.task_states import TERMINAL
from trunkline.errors import TaskNotFoundError, UnsupportedOperationError
from trunkline.v1 import message_pb2, task_pb2
from trunkline_bridge.a2a.operations import request_parser as parser
from trunkline_bridge.a2a.operations.field_violations import renamed_fields
from trunkline_bridge.a2a.operations.operation_table import (
    SERVED_OPERATIONS,
    StreamMethod,
    StreamOperation,
    UnaryMethod,
    UnaryOperation,
    unchanged,
)
from trunkline_bridge.a2a.operations.operations import Operations
from trunkline_bridge.a2a.projection import FullEvent, WireEvent
from trunkline_bridge.a2a.streams.task_streams import WireEvents
from trunkline_bridge.a2a.versions.jsonrpc_version import (
    OLDER_VOCABULARY,
    ErrorVocabulary,
    JsonRpcVersion,
    older_names,
    with_cursor_from_metadata,
)
from trunkline_bridge.a2a.versions.v0_1.task_aliases import TaskAliases
from trunkline_bridge.callers.caller import Caller

_VOCABULARY = ErrorVocabulary(
    {
        **OLDER_VOCABULARY,
        **older_names(V0_1),
        "send with returnImmediately": "send with tasks/sendSubscribe",
        "configuration.taskPushNotificationConfig": "pushNotification",
        "configuration.historyLength": "historyLength",
        "configuration.acceptedOutputModes": "acceptedOutputModes",
        "message.contextId": "sessionId",
    },
    codes=range(-32005, -32000),
)
# A push notification config is flat in v1.0 and a nested object here.
_CONFIG = "pushNotificationConfig"
_NESTED_NAMES = {name: f"{_CONFIG}.{name}" for name in ("url", "token", "authentication")}


class _SendRequest(NamedTuple):
    """A message to a task that its client names."""

    client_id: str
    request: a2a_pb2.SendMessageRequest


def _parse_send(params: object) -> _SendRequest:
    client_id, send_params = json_reader.convert_send_params(params)
    return _SendRequest(client_id, parser.parse_send(send_params))


def _parse_subscribe(params: object) -> V01EventWriter:
    """Return the writer of the events, which has the client's task id, the only parameter."""
    return V01EventWriter(json_reader.parse_client_id(params))


def build_jsonrpc(aliases: TaskAliases) -> JsonRpcVersion:
    """Return A2A v0.1 over JSON-RPC."""
    methods = _Methods(aliases)
    calls: Mapping[str, Callable[[Operations, Caller, Any], Awaitable[Json]]] = {
        wire.SEND_MESSAGE.name: methods.send,
        wire.GET_TASK.name: methods.get,
        wire.CANCEL_TASK.name: methods.cancel,
        wire.CREATE_PUSH_CONFIG.name: methods.set_push,
        wire.GET_PUSH_CONFIG.name: methods.get_push,
    }

    def method(operation: UnaryOperation | StreamOperation) -> UnaryMethod | StreamMethod:
        name = operation.wire.jsonrpc_v0_1
        if isinstance(operation, UnaryOperation):
            is_send = operation.wire is wire.SEND_MESSAGE
            return UnaryMethod(
                name=name,
                operation=replace(operation, call=calls[operation.wire.name]),
                parse=_parse_send if is_send else unchanged,
                # A message's task is found by the method itself, which may create it.
                task_field="" if is_send else "id",
                render=lambda _request, result: result,
            )
        if operation.wire is wire.SEND_STREAMING_MESSAGE:
            return StreamMethod(
                name=name,
                operation=replace(operation, open=methods.send_subscribe),
                parse=_parse_send,
                event_writer=lambda request: V01EventWriter(request.client_id),
            )
        return StreamMethod(
            name=name,
            operation=replace(operation, open=methods.resubscribe),
            parse=_parse_subscribe,
            task_field="id",
            event_writer=unchanged,
            update_caller=with_cursor_from_metadata,
        )

    rows = [method(operation) for operation in SERVED_OPERATIONS if operation.wire.jsonrpc_v0_1]
    return JsonRpcVersion(
        version=V0_1,
        methods={row.name: row for row in rows},
        error_object=_VOCABULARY.error_object,
    )


class _Methods:
    """The methods of v0.1. The client chooses the task ids, so each method resolves an alias."""

    def __init__(self, aliases: TaskAliases) -> None:
        self._aliases = aliases

    async def send(self, operations: Operations, caller: Caller, sent: _SendRequest) -> Json:
        """Send a message and return its task, or the reply as a task."""
        client_id, request = sent
        history_length = request.configuration.history_length
        # Read the whole history, because its first message is the message that created the task.
        request.configuration.ClearField("history_length")
        new_task_id = await self._address(operations, caller, client_id, request)
        with _rename_task(client_id, new_task_id or request.message.task_id):
            result = await operations.send_message(caller, request, new_task_id=new_task_id)
        if isinstance(result, message_pb2.Message):
            return json_writer.reply_task_json(result, client_id=client_id)
        task = result
        if new_task_id:
            _check_task_owner(request.message, task)
        del task.history[: max(0, len(task.history) - history_length)]
        return json_writer.task_json(task, client_id=client_id)

    @asynccontextmanager
    async def send_subscribe(
        self, operations: Operations, caller: Caller, sent: _SendRequest
    ) -> AsyncIterator[WireEvents]:
        """Send a message and stream its task."""
        client_id, request = sent
        request.configuration.ClearField("history_length")
        new_task_id = await self._address(operations, caller, client_id, request)
        task_id = new_task_id or request.message.task_id
        with _rename_task(client_id, task_id):
            async with (
                operations.stream_message(caller, request, new_task_id=new_task_id) as events,
                aclosing(events),
            ):
                if new_task_id:
                    events = await _check_stream_owner(request.message, events)
                yield _rename_task_in_stream(client_id, task_id, events)

    async def get(self, operations: Operations, caller: Caller, params: object) -> Json:
        """Return a task."""
        client_id = json_reader.parse_client_id(params)
        task_id = await self._find_task_id(caller, client_id)
        history = json_reader.convert_history_length(json_reader.require_object(params))
        request = parser.parse_get({"id": task_id, **history})
        with _rename_task(client_id, task_id):
            task = await operations.get_task(caller, request)
        return json_writer.task_json(task, client_id=client_id)

    async def cancel(self, operations: Operations, caller: Caller, params: object) -> Json:
        """Cancel a task and return it."""
        client_id = json_reader.parse_client_id(params)
        task_id = await self._find_task_id(caller, client_id)
        request = a2a_pb2.CancelTaskRequest(id=task_id)
        with _rename_task(client_id, task_id):
            task = await operations.cancel_task(caller, request)
        del task.history[:]
        return json_writer.task_json(task, client_id=client_id)

    @asynccontextmanager
    async def resubscribe(
        self, operations: Operations, caller: Caller, writer: V01EventWriter
    ) -> AsyncIterator[WireEvents]:
        """Stream a task."""
        task_id = await self._find_task_id(caller, writer.client_id)
        with _rename_task(writer.client_id, task_id):
            if caller.last_event_id is not None:
                # Artifacts that the client has seen keep their indexes.
                request = a2a_pb2.GetTaskRequest(id=task_id)
                task = await operations.get_task(caller, request)
                writer.assign_indexes(task)
            async with operations.subscribe_to_task(
                caller, a2a_pb2.SubscribeToTaskRequest(id=task_id)
            ) as events:
                yield _rename_task_in_stream(writer.client_id, task_id, events)

    async def set_push(self, operations: Operations, caller: Caller, params: object) -> Json:
        """Register a webhook of a task."""
        client_id = json_reader.parse_client_id(params)
        config = json_reader.convert_webhook(params)
        task_id = await self._find_task_id(caller, client_id)
        with _rename_task(client_id, task_id), renamed_fields(_NESTED_NAMES):
            request = parser.parse_create_push({**config, "taskId": task_id})
            created = await operations.create_push_config(caller, request)
        return json_writer.push_config_json(created, client_id=client_id)

    async def get_push(self, operations: Operations, caller: Caller, params: object) -> Json:
        """Return a webhook of a task."""
        client_id = json_reader.parse_client_id(params)
        task_id = await self._find_task_id(caller, client_id)
        # A request without a config id asks for the task's first webhook.
        request = a2a_pb2.GetTaskPushNotificationConfigRequest(task_id=task_id)
        with _rename_task(client_id, task_id):
            config = await operations.get_push_config(caller, request)
        return json_writer.push_config_json(config, client_id=client_id)

    async def _find_task_id(self, caller: Caller, client_id: str) -> str:
        """Return the mesh's id of a client's task. TaskNotFoundError: the id is unknown."""
        task_id = await self._aliases.find(caller, client_id)
        if not task_id:
            raise TaskNotFoundError(client_id)
        return task_id

    async def _address(
        self,
        operations: Operations,
        caller: Caller,
        client_id: str,
        request: a2a_pb2.SendMessageRequest,
    ) -> str:
        """Resolve the client's task id; return the id of the task to create, or an empty string.

        In the second case the task exists, and its id is set in the message. An unknown client id
        gets a new task. If its task has ended, it gets another task in the same context. If its
        task was allocated but never created, that id is returned again.
        """
        task_id = await self._aliases.find(caller, client_id)
        if not task_id:
            new_task_id = self._aliases.new_task_id(caller)
            task_id = await self._aliases.bind(caller, client_id, new_task_id)
            if task_id == new_task_id:
                return new_task_id
        task = await _find_task(operations, caller, task_id)
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


async def _find_task(operations: Operations, caller: Caller, task_id: str) -> task_pb2.Task | None:
    request = a2a_pb2.GetTaskRequest(id=task_id, history_length=0)
    try:
        return await operations.get_task(caller, request)
    except TaskNotFoundError:
        return None


async def _check_stream_owner(message: message_pb2.Message, events: WireEvents) -> WireEvents:
    """Return the events of a new task, after the first ones have arrived.

    Raises:
        UnsupportedOperationError: a concurrent message created the task instead.
    """
    first = await anext(events, ())
    for event in first[:1]:
        if isinstance(event, FullEvent) and event.response.HasField("task"):
            _check_task_owner(message, event.response.task)
    return _with_first(first, events)


async def _with_first(first: Sequence[WireEvent], events: WireEvents) -> WireEvents:
    async with aclosing(events):
        yield first
        del first
        async for ready in events:
            yield ready


def _check_task_owner(message: message_pb2.Message, task: task_pb2.Task) -> None:
    """Raise UnsupportedOperationError if a concurrent message created the task instead."""
    if task.history and task.history[0].message_id != message.message_id:
        problem = "another message is creating this task; send this message after the response"
        raise UnsupportedOperationError("a message to a task that is being created", problem)


async def _rename_task_in_stream(client_id: str, task_id: str, events: WireEvents) -> WireEvents:
    """Yield events, with the client's task id in errors.

    Errors go to the consumer of the events, so a block around the generator can't rename them.
    """
    with _rename_task(client_id, task_id):
        async with aclosing(events):
            async for ready in events:
                yield ready


@contextmanager
def _rename_task(client_id: str, task_id: str) -> Iterator[None]:
    """Replace the mesh's task id by the client's in errors."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  every error becomes a WireError
        wire_error = to_wire_error(error)
        if not task_id:
            raise wire_error from None
        metadata = {
            name: value.replace(task_id, client_id) for name, value in wire_error.metadata.items()
        }
        text = wire_error.text.replace(task_id, client_id)
        raise replace(wire_error, text=text, metadata=metadata) from None
