"""Reads the parameters that v1.1 adds, and converts the core model, which is v1.0's, to v1.1.

Each message of v1.1 has the fields of v1.0 and more, so bytes of one are valid for the other.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from trunkline.a2a.v1_1 import a2a_pb2 as v1_1_pb2
from trunkline_bridge.bindings.field_violations import find_violations
from trunkline_bridge.edge.caller import Caller
from trunkline_bridge.errors import invalid_params
from trunkline_bridge.projection import FullEvent, GenerationParameters, WireEvent

M = TypeVar("M", bound=Message)

_UNSET: Final = GenerationParameters()
# A page has up to 100 tasks. Of each it has the end of the timeline, unless the request says more.
_LISTED: Final = GenerationParameters(timeline_length=3)


class _AddedFields:
    """The fields of a message that v1.0 does not have, each with the parameter that it sets."""

    def __init__(
        self,
        message_type: type[Message],
        parameters: Mapping[str, str],
        *,
        where: str = "",
        default: GenerationParameters = _UNSET,
    ) -> None:
        """`where` is the path of the message in the request."""
        by_name = message_type.DESCRIPTOR.fields_by_name
        self._fields: list[tuple[Any, str]] = [
            (by_name[name], parameter) for name, parameter in parameters.items()
        ]
        self._where = where
        self._default = default

    def read_json(self, members: object) -> GenerationParameters:
        """Return the parameters in the members of a JSON object. WireError: they are invalid."""
        if not isinstance(members, Mapping):
            return self._default
        fields = [field for field, _ in self._fields]
        if violations := list(find_violations(members, fields, name=self._where)):
            raise invalid_params(*violations)
        values = {
            parameter: members.get(field.json_name, members.get(field.name))
            for field, parameter in self._fields
        }
        return self._check(
            {name: int(value) for name, value in values.items() if value is not None}
        )

    def read_message(self, message: Message) -> GenerationParameters:
        """Return the parameters in a protobuf message. WireError: they are invalid."""
        return self._check(
            {
                parameter: getattr(message, field.name)
                for field, parameter in self._fields
                if message.HasField(field.name)
            }
        )

    def _check(self, values: Mapping[str, int]) -> GenerationParameters:
        if values.get("timeline_length", 0) < 0:
            name = f"{self._where}.timelineLength" if self._where else "timelineLength"
            raise invalid_params((name, "must not be negative"))
        return self._default._replace(**values)


_SEND = _AddedFields(
    v1_1_pb2.SendMessageConfiguration,
    {"if_generation_match": "expected", "timeline_length": "timeline_length"},
    where="configuration",
)
_GET = _AddedFields(
    v1_1_pb2.GetTaskRequest,
    {"current_generation": "current", "timeline_length": "timeline_length"},
)
_LIST = _AddedFields(
    v1_1_pb2.ListTasksRequest, {"timeline_length": "timeline_length"}, default=_LISTED
)


def read_no_json(caller: Caller, _params: object) -> Caller:
    """Return a caller of a method to which v1.1 adds no parameters."""
    return caller._replace(generations=_UNSET)


def read_send_json(caller: Caller, params: object) -> Caller:
    """Return a caller with what v1.1 adds to the parameters of SendMessage."""
    configuration = params.get("configuration") if isinstance(params, dict) else None
    return caller._replace(generations=_SEND.read_json(configuration))


def read_get_json(caller: Caller, params: object) -> Caller:
    """Return a caller with what v1.1 adds to the parameters of GetTask."""
    return caller._replace(generations=_GET.read_json(params))


def read_list_json(caller: Caller, params: object) -> Caller:
    """Return a caller with what v1.1 adds to the parameters of ListTasks."""
    return caller._replace(generations=_LIST.read_json(params))


def read_message(caller: Caller, request: Message) -> Caller:
    """Return a caller with what v1.1 adds to the message of a method."""
    if isinstance(request, v1_1_pb2.SendMessageRequest):
        generations = _SEND.read_message(request.configuration)
    elif isinstance(request, v1_1_pb2.GetTaskRequest):
        generations = _GET.read_message(request)
    elif isinstance(request, v1_1_pb2.ListTasksRequest):
        generations = _LIST.read_message(request)
    else:
        generations = _UNSET
    return caller._replace(generations=generations)


def to_core(request: Message, core_type: type[M]) -> M:
    """Return a request of v1.1 as the core message, without the added fields."""
    core = core_type.FromString(request.SerializeToString())
    core.DiscardUnknownFields()
    return core


def to_stream_response(event: WireEvent) -> v1_1_pb2.StreamResponse:
    """Return an event with its generation."""
    if event.response.HasField("task"):
        return v1_1_pb2.StreamResponse(task=task_of_event(event))
    response = v1_1_pb2.StreamResponse.FromString(event.response.SerializeToString())
    if response.HasField("status_update"):
        response.status_update.generation = event.generation
    elif response.HasField("artifact_update"):
        response.artifact_update.generation = event.generation
    return response


def task_of_event(event: WireEvent) -> v1_1_pb2.Task:
    """Return the task of an event that has one: a snapshot, or the creation of the task."""
    if isinstance(event, FullEvent) and event.task is not None:
        return event.task
    task = v1_1_pb2.Task.FromString(event.response.task.SerializeToString())
    task.generation = event.generation
    for message in task.history:
        task.timeline.add(message=message, generation=event.generation)
    return task
