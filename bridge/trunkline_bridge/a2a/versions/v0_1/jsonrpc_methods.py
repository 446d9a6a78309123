"""A2A v0.1 over JSON-RPC. Its clients choose the task ids."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire import operations as wire
from trunkline.a2a_wire.errors import to_wire_error
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.protocol import V0_1
from trunkline.a2a_wire.v0_1 import json_reader, json_writer
from trunkline.a2a_wire.v0_1.json_writer import V01EventWriter
from trunkline.core.task_states import TERMINAL
from trunkline.errors import TaskNotFoundError, UnsupportedOperationError
from trunkline.v1 import message_pb2, push_notification_pb2, task_pb2
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


class _Named(NamedTuple):
    """A request about a task, and the client's id of the task."""

    client_id: str
    request: Any
    """The request of v1.0. Its method sets the mesh's id of the task."""


def _parse_send(params: object) -> _Named:
    client_id, send_params = json_reader.convert_send_params(params)
    return _Named(client_id, parser.parse_send(send_params))


def _parse_get(params: object) -> _Named:
    client_id = json_reader.parse_client_id(params)
    history = json_reader.convert_history_length(json_reader.require_object(params))
    return _Named(client_id, parser.parse_get({"id": client_id, **history}))


def _parse_cancel(params: object) -> _Named:
    return _Named(json_reader.parse_client_id(params), a2a_pb2.CancelTaskRequest())


def _parse_subscribe(params: object) -> V01EventWriter:
    """Return the writer of the events, which has the client's task id, the only parameter."""
    return V01EventWriter(json_reader.parse_client_id(params))


def _parse_set_push(params: object) -> _Named:
    client_id = json_reader.parse_client_id(params)
    config = json_reader.convert_webhook(params)
    with renamed_fields(_NESTED_NAMES):
        return _Named(client_id, parser.parse_create_push({**config, "taskId": client_id}))


def _parse_get_push(params: object) -> _Named:
    # A request without a config id asks for the task's first webhook.
    request = a2a_pb2.GetTaskPushNotificationConfigRequest()
    return _Named(json_reader.parse_client_id(params), request)


def _render_sent(sent: _Named, result: task_pb2.Task | message_pb2.Message) -> Json:
    if isinstance(result, message_pb2.Message):
        return json_writer.reply_task_json(result, client_id=sent.client_id)
    return _render_task(sent, result)


def _render_task(sent: _Named, task: task_pb2.Task) -> Json:
    return json_writer.task_json(task, client_id=sent.client_id)


def _render_canceled(sent: _Named, task: task_pb2.Task) -> Json:
    del task.history[:]
    return _render_task(sent, task)


def _render_push(sent: _Named, config: push_notification_pb2.TaskPushNotificationConfig) -> Json:
    return json_writer.push_config_json(config, client_id=sent.client_id)


_UNARY: Final[Mapping[str, tuple[Callable[[object], _Named], Callable[..., Json]]]] = {
    wire.SEND_MESSAGE.name: (_parse_send, _render_sent),
    wire.GET_TASK.name: (_parse_get, _render_task),
    wire.CANCEL_TASK.name: (_parse_cancel, _render_canceled),
    wire.CREATE_PUSH_CONFIG.name: (_parse_set_push, _render_push),
    wire.GET_PUSH_CONFIG.name: (_parse_get_push, _render_push),
}
"""The parser and the rendering of each operation with one result."""


def build_jsonrpc(aliases: TaskAliases) -> JsonRpcVersion:
    """Return A2A v0.1 over JSON-RPC."""
    methods = _Methods(aliases)

    def method(operation: UnaryOperation | StreamOperation) -> UnaryMethod | StreamMethod:
        name = operation.wire.jsonrpc_v0_1
        if isinstance(operation, UnaryOperation):
            is_send = operation.wire is wire.SEND_MESSAGE
            parse, render = _UNARY[operation.wire.name]
            return UnaryMethod(
                name=name,
                operation=replace(
                    operation, call=methods.send if is_send else methods.find_and(operation)
                ),
                parse=parse,
                # A message's task is found by the method itself, which may create it.
                task_field="" if is_send else "id",
                render=render,
                field_names=_NESTED_NAMES if operation.wire is wire.CREATE_PUSH_CONFIG else {},
            )
        if operation.wire is wire.SEND_STREAMING_MESSAGE:
            return StreamMethod(
                name=name,
                operation=replace(operation, open=methods.send_subscribe),
                parse=_parse_send,
                event_writer=lambda sent: V01EventWriter(sent.client_id),
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

    async def send(
        self, operations: Operations, caller: Caller, sent: _Named
    ) -> task_pb2.Task | message_pb2.Message:
        """Send a message and return its task, or the reply."""
        client_id, request = sent
        history_length = request.configuration.history_length
        # Read the whole history, because its first message is the message that created the task.
        request.configuration.ClearField("history_length")
        new_task_id = await self._address(operations, caller, client_id, request)
        with _rename_task(client_id, new_task_id or request.message.task_id):
            result = await operations.send_message(caller, request, new_task_id=new_task_id)
        if isinstance(result, task_pb2.Task):
            if new_task_id:
                _check_task_owner(request.message, result)
            del result.history[: max(0, len(result.history) - history_length)]
        return result

    @asynccontextmanager
    async def send_subscribe(
        self, operations: Operations, caller: Caller, sent: _Named
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

    def find_and(
        self, operation: UnaryOperation
    ) -> Callable[[Operations, Caller, _Named], Awaitable[Any]]:
        """Return a method that finds the client's task and performs an operation on it."""
        (field,) = operation.wire.id_fields[:1]

        async def call(operations: Operations, caller: Caller, sent: _Named) -> object:
            task_id = await self._find_task_id(caller, sent.client_id)
            setattr(sent.request, field, task_id)
            with _rename_task(sent.client_id, task_id):
                return await operation.call(operations, caller, sent.request)

        return call

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
            new_task_id = self._aliases.new_task_id(caller, client_id)
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
        new_task_id = self._aliases.new_task_id(caller, client_id)
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
