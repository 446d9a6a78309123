"""The operations of A2A: one table that all bindings and protocol versions share.

Each version has its own table of methods: their names, the parsers of their parameters, and the
renderers of their results.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from google.protobuf.message import Message

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import push_notification_pb2
from trunkline_bridge.bindings import request_parser
from trunkline_bridge.bindings.field_violations import renamed_fields
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.edge.caller import Caller
from trunkline_bridge.streams.event_renderer import EventWriter
from trunkline_bridge.streams.task_streams import EventsContext

UnaryHandler: TypeAlias = Callable[[Caller, object], Awaitable[object]]
"""Takes the parameters of a method and returns its result as JSON."""
StreamHandler: TypeAlias = Callable[[Caller, object], tuple[EventWriter, EventsContext]]
"""Takes the parameters of a method and returns its events, with the writer of their JSON."""


def unchanged(value: Any) -> Any:  # noqa: ANN401  any value
    """Return the argument."""
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of A2A, under its v1.0 name."""

    name: str
    request: type[Message]
    """The type of the request in the core model, which has the messages of v1.0."""
    validate: Callable[[Any], Any] = unchanged
    """Returns a valid request, or raises WireError."""
    id_fields: tuple[str, ...] = ()
    """The request's fields for the ids of the task and the push notification config."""

    @property
    def task_field(self) -> str:
        """The JSON name of the field with the task id; empty if the operation has no task."""
        if not self.id_fields:
            return ""
        name: str = self.request.DESCRIPTOR.fields_by_name[self.id_fields[0]].json_name
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaryOperation(Operation):
    """An operation with one result."""

    call: Callable[[Operations, Caller, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOperation(Operation):
    """An operation with a stream of events."""

    open: Callable[[Operations, Caller, Any], EventsContext]


SEND_MESSAGE = UnaryOperation(
    name="SendMessage",
    request=a2a_pb2.SendMessageRequest,
    validate=request_parser.check_send,
    call=Operations.send_message,
)
SEND_STREAMING_MESSAGE = StreamOperation(
    name="SendStreamingMessage",
    request=a2a_pb2.SendMessageRequest,
    validate=request_parser.check_send,
    open=Operations.stream_message,
)
GET_TASK = UnaryOperation(
    name="GetTask",
    request=a2a_pb2.GetTaskRequest,
    validate=request_parser.check_get,
    id_fields=("id",),
    call=Operations.get_task,
)
LIST_TASKS = UnaryOperation(
    name="ListTasks",
    request=a2a_pb2.ListTasksRequest,
    validate=request_parser.check_list,
    call=Operations.list_tasks,
)
CANCEL_TASK = UnaryOperation(
    name="CancelTask",
    request=a2a_pb2.CancelTaskRequest,
    validate=request_parser.check_id,
    id_fields=("id",),
    call=Operations.cancel_task,
)
SUBSCRIBE_TO_TASK = StreamOperation(
    name="SubscribeToTask",
    request=a2a_pb2.SubscribeToTaskRequest,
    validate=request_parser.check_id,
    id_fields=("id",),
    open=Operations.subscribe_to_task,
)
CREATE_PUSH_CONFIG = UnaryOperation(
    name="CreateTaskPushNotificationConfig",
    request=push_notification_pb2.TaskPushNotificationConfig,
    validate=request_parser.check_push_config,
    id_fields=("task_id",),
    call=Operations.create_push_config,
)
GET_PUSH_CONFIG = UnaryOperation(
    name="GetTaskPushNotificationConfig",
    request=a2a_pb2.GetTaskPushNotificationConfigRequest,
    validate=request_parser.check_push_ids,
    id_fields=("task_id", "id"),
    call=Operations.get_push_config,
)
LIST_PUSH_CONFIGS = UnaryOperation(
    name="ListTaskPushNotificationConfigs",
    request=a2a_pb2.ListTaskPushNotificationConfigsRequest,
    validate=request_parser.check_list_pushes,
    id_fields=("task_id",),
    call=Operations.list_push_configs,
)
DELETE_PUSH_CONFIG = UnaryOperation(
    name="DeleteTaskPushNotificationConfig",
    request=a2a_pb2.DeleteTaskPushNotificationConfigRequest,
    validate=request_parser.check_push_ids,
    id_fields=("task_id", "id"),
    call=Operations.delete_push_config,
)
GET_EXTENDED_CARD = UnaryOperation(
    name="GetExtendedAgentCard",
    request=a2a_pb2.GetExtendedAgentCardRequest,
    call=Operations.get_extended_card,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaryMethod:
    """A method with one JSON result, in one protocol version."""

    name: str
    operation: UnaryOperation
    parse: Callable[[object], Any]
    """Parses parameters into a valid request of the operation, or raises WireError."""
    render: Callable[[Any], object]
    """Renders the result of the operation as JSON."""
    field_names: Mapping[str, str] = field(default_factory=dict)
    """The version's names for top-level fields of the request, which errors mention."""
    update_caller: Callable[[Caller, object], Caller] | None = None
    """Adds values to the caller that the request of the operation has no field for."""

    def bind(self, operations: Operations) -> UnaryHandler:
        """Return the handler of the method."""
        if self.field_names:
            return self._bind_renamed(operations)
        if self.update_caller is not None:
            return self._bind_updating(operations, self.update_caller)

        async def handle(caller: Caller, params: object) -> object:
            request = self.parse(params)
            return self.render(await self.operation.call(operations, caller, request))

        return handle

    def _bind_updating(
        self, operations: Operations, update_caller: Callable[[Caller, object], Caller]
    ) -> UnaryHandler:
        async def handle(caller: Caller, params: object) -> object:
            request = self.parse(params)
            caller = update_caller(caller, params)
            return self.render(await self.operation.call(operations, caller, request))

        return handle

    def _bind_renamed(self, operations: Operations) -> UnaryHandler:
        async def handle(caller: Caller, params: object) -> object:
            request = self.parse(params)
            with renamed_fields(self.field_names):
                result = await self.operation.call(operations, caller, request)
            return self.render(result)

        return handle


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMethod:
    """A method with a stream of JSON events, in one protocol version."""

    name: str
    operation: StreamOperation
    parse: Callable[[object], Any]
    """Parses parameters into a valid request of the operation, or raises WireError."""
    event_writer: Callable[[], EventWriter]
    update_caller: Callable[[Caller, object], Caller] | None = None
    """Adds values to the caller that this version has in the parameters, not in headers."""

    def bind(self, operations: Operations) -> StreamHandler:
        """Return the handler of the method."""

        def handle(caller: Caller, params: object) -> tuple[EventWriter, EventsContext]:
            request = self.parse(params)
            if self.update_caller is not None:
                caller = self.update_caller(caller, params)
            return self.event_writer(), self.operation.open(operations, caller, request)

        return handle
