"""The operations of A2A as this bridge serves them, for all bindings and protocol versions.

A row adds to the operation of the wire what serves it: the parser of its parameters, the check of a
request, and the method of `Operations` that performs it. The permission that it needs has its name.
Each version of the protocol builds its table of methods from these rows.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire import operations as wire
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import Operation
from trunkline.a2a_wire.v1_0 import json_writer
from trunkline_bridge.a2a.operations import request_parser
from trunkline_bridge.a2a.operations.field_violations import renamed_fields
from trunkline_bridge.a2a.operations.operations import Operations
from trunkline_bridge.a2a.streams.event_renderer import EventWriter
from trunkline_bridge.a2a.streams.task_streams import EventsContext
from trunkline_bridge.callers.caller import Caller


def unchanged(value: Any) -> Any:  # noqa: ANN401  any value
    """Return the argument."""
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedOperation:
    """An operation of A2A that this bridge serves."""

    wire: Operation
    parse: Callable[[object], Any] = unchanged
    """Parses the JSON of v1.0 into a valid request, or raises WireError."""
    check: Callable[[Any], Any] = unchanged
    """Returns a valid request, or raises WireError."""

    @property
    def permission(self) -> str:
        """The permission that callers need, which has the operation's name.

        It is a name of `callers.permissions.METHODS`. A binding has `Authorizer` check it.
        """
        return self.wire.name


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaryOperation(ServedOperation):
    """An operation with one result."""

    call: Callable[[Operations, Caller, Any], Awaitable[Any]]
    render: Callable[[Any, Any], object] | None = None
    """Renders a request and its result in v1.0; without it, the result decides alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOperation(ServedOperation):
    """An operation with a stream of events."""

    open: Callable[[Operations, Caller, Any], EventsContext]


def _render_task_page(request: a2a_pb2.ListTasksRequest, page: a2a_pb2.ListTasksResponse) -> Json:
    # The request decides whether tasks without artifacts have an empty list.
    return json_writer.task_page_json(page, with_artifacts=request.include_artifacts)


SERVED_OPERATIONS: Final[tuple[UnaryOperation | StreamOperation, ...]] = (
    UnaryOperation(
        wire=wire.SEND_MESSAGE,
        parse=request_parser.parse_send,
        check=request_parser.check_send,
        call=Operations.send_message,
    ),
    StreamOperation(
        wire=wire.SEND_STREAMING_MESSAGE,
        parse=request_parser.parse_send,
        check=request_parser.check_send,
        open=Operations.stream_message,
    ),
    UnaryOperation(
        wire=wire.GET_TASK,
        parse=request_parser.parse_get,
        check=request_parser.check_get,
        call=Operations.get_task,
    ),
    UnaryOperation(
        wire=wire.LIST_TASKS,
        parse=request_parser.parse_list,
        check=request_parser.check_list,
        call=Operations.list_tasks,
        render=_render_task_page,
    ),
    UnaryOperation(
        wire=wire.CANCEL_TASK,
        parse=request_parser.parse_cancel,
        check=request_parser.check_id,
        call=Operations.cancel_task,
    ),
    StreamOperation(
        wire=wire.SUBSCRIBE_TO_TASK,
        parse=request_parser.parse_subscribe,
        check=request_parser.check_id,
        open=Operations.subscribe_to_task,
    ),
    UnaryOperation(
        wire=wire.CREATE_PUSH_CONFIG,
        parse=request_parser.parse_create_push,
        check=request_parser.check_push_config,
        call=Operations.create_push_config,
    ),
    UnaryOperation(
        wire=wire.GET_PUSH_CONFIG,
        parse=request_parser.parse_get_push,
        check=request_parser.check_push_ids,
        call=Operations.get_push_config,
    ),
    UnaryOperation(
        wire=wire.LIST_PUSH_CONFIGS,
        parse=request_parser.parse_list_pushes,
        check=request_parser.check_list_pushes,
        call=Operations.list_push_configs,
    ),
    UnaryOperation(
        wire=wire.DELETE_PUSH_CONFIG,
        parse=request_parser.parse_delete_push,
        check=request_parser.check_push_ids,
        call=Operations.delete_push_config,
    ),
    UnaryOperation(
        wire=wire.GET_EXTENDED_CARD,
        call=Operations.get_extended_card,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonMethod:
    """A method with JSON parameters, in one protocol version."""

    name: str
    parse: Callable[[object], Any]
    """Parses parameters into a valid request of the operation, or raises WireError."""
    task_field: str = ""
    """The parameter with the task id; empty if no parameter is a task id of the mesh."""

    def find_task_id(self, params: object) -> str:
        """Return the task id in unparsed parameters, or an empty text."""
        if not self.task_field or not isinstance(params, dict):
            return ""
        task_id = params.get(self.task_field)
        return task_id if isinstance(task_id, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaryMethod(JsonMethod):
    """A method with one result."""

    operation: UnaryOperation
    render: Callable[[Any, Any], object]
    """Renders the result of a request as JSON."""
    field_names: Mapping[str, str] = field(default_factory=dict)
    """The version's names for top-level fields of the request, which errors mention."""

    async def call(self, operations: Operations, caller: Caller, params: object) -> object:
        """Perform the operation and return its result as JSON."""
        request = self.parse(params)
        with renamed_fields(self.field_names) if self.field_names else nullcontext():
            result = await self.operation.call(operations, caller, request)
        return self.render(request, result)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMethod(JsonMethod):
    """A method with a stream of events."""

    operation: StreamOperation
    event_writer: Callable[[Any], EventWriter]
    """Returns the writer of the events that answer a request."""
    update_caller: Callable[[Caller, object], Caller] | None = None
    """Adds values to the caller that this version has in the parameters, not in headers."""

    def open(
        self, operations: Operations, caller: Caller, params: object
    ) -> tuple[EventWriter, EventsContext]:
        """Return the events, which begin when they are entered, and the writer of their JSON."""
        request = self.parse(params)
        if self.update_caller is not None:
            caller = self.update_caller(caller, params)
        return self.event_writer(request), self.operation.open(operations, caller, request)
