"""Parses the JSON parameters of A2A v1.0's methods; errors name the missing or invalid fields.

Messages with only text are by far the most frequent. They have a separate parser that is ten times
faster.
"""

from collections.abc import Sequence
from typing import Any, TypeGuard, TypeVar

from google.protobuf.json_format import ParseError
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import WireError, invalid_params
from trunkline.json_values import parse_dict
from trunkline.v1 import event_pb2, message_pb2, push_notification_pb2, task_pb2, task_service_pb2
from trunkline_bridge.a2a.operations import field_violations
from trunkline_bridge.http.json_decoder import (
    MAX_VALUES,
    TOO_MANY_VALUES,
    has_more_values,
    nesting_depth,
)

PAGE_SIZES = range(1, 101)
DEFAULT_PAGE_SIZE = 50

# The members that the fast parser knows.
_ID_FIELDS = {"messageId": "message_id", "contextId": "context_id", "taskId": "task_id"}
_MESSAGE = frozenset({*_ID_FIELDS, "role", "parts"})
_CONFIGURATION = frozenset({"returnImmediately", "historyLength", "acceptedOutputModes"})
_PARAMS = frozenset({"message", "configuration"})
# Longer lists go to the general parser, which counts their values.
_MAX_ITEMS = 100
_INT32 = 2**31
# Any content of this depth stays within the 100 levels that protobuf's parsers accept.
_SAFE_DEPTH = 16
# Limit on the violations in one error.
_MAX_VIOLATIONS = 20
_WEBHOOK = "taskPushNotificationConfig"
_NESTED_WEBHOOK = "pushNotificationConfig"
_FROM_USER = "must be ROLE_USER"
# Stricter requirements than the type of a field.
_REQUIREMENTS = {"message.role": _FROM_USER}

M = TypeVar("M", bound=ProtoMessage)
TaskIdRequest = TypeVar("TaskIdRequest", a2a_pb2.CancelTaskRequest, a2a_pb2.SubscribeToTaskRequest)
PushConfigRequest = TypeVar(
    "PushConfigRequest",
    a2a_pb2.GetTaskPushNotificationConfigRequest,
    a2a_pb2.DeleteTaskPushNotificationConfigRequest,
)


def parse_plain_send(params: object) -> a2a_pb2.SendMessageRequest | None:
    """Return the parameters of SendMessage; None unless they are valid and have only text."""
    if not (_is_object(params, _PARAMS) and _is_plain_message(params.get("message"))):
        return None
    configuration = params.get("configuration", {})
    if not _is_plain_configuration(configuration):
        return None
    members = params["message"]
    request = a2a_pb2.SendMessageRequest()
    message = request.message
    message.role = message_pb2.ROLE_USER
    for name, field in _ID_FIELDS.items():
        if name in members:
            setattr(message, field, members[name])
    for part in members["parts"]:
        message.parts.add(text=part["text"])
    if "configuration" in params:
        _configure(request.configuration, configuration)
    return request


def _configure(configuration: a2a_pb2.SendMessageConfiguration, members: dict[str, Any]) -> None:
    configuration.SetInParent()
    if "returnImmediately" in members:
        configuration.return_immediately = members["returnImmediately"]
    if "historyLength" in members:
        configuration.history_length = members["historyLength"]
    configuration.accepted_output_modes.extend(members.get("acceptedOutputModes", ()))


def _is_plain_message(value: object) -> bool:
    return (
        _is_object(value, _MESSAGE)
        and value.get("role") == "ROLE_USER"
        and bool(value.get("messageId"))
        and all(type(value.get(name, "")) is str for name in _ID_FIELDS)
        and _are_plain_parts(value.get("parts"))
    )


def _are_plain_parts(value: object) -> bool:
    return (
        type(value) is list
        and 0 < len(value) <= _MAX_ITEMS
        and all(
            type(part) is dict and len(part) == 1 and type(part.get("text")) is str
            for part in value
        )
    )


def _is_plain_configuration(value: object) -> bool:
    if not _is_object(value, _CONFIGURATION):
        return False
    modes = value.get("acceptedOutputModes", [])
    length = value.get("historyLength", 0)
    return (
        type(value.get("returnImmediately", False)) is bool
        and type(length) is int
        and 0 <= length < _INT32
        and type(modes) is list
        and len(modes) <= _MAX_ITEMS
        and all(type(mode) is str for mode in modes)
    )


def _is_object(value: object, names: frozenset[str]) -> TypeGuard[dict[str, Any]]:
    return type(value) is dict and value.keys() <= names


def parse_message(params: object, *, message_type: type[M]) -> M:
    """Return parameters as a message. Unknown fields are ignored, as A2A requires.

    Raises:
        WireError: the parameters do not fit the message.
    """
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise invalid_params(("params", "must be an object"))
    if has_more_values(params, MAX_VALUES):
        raise invalid_params(("params", TOO_MANY_VALUES))
    if violations := list(field_violations.find_violations(params, message_type.DESCRIPTOR.fields)):
        raise invalid_params(
            *(
                (name, _REQUIREMENTS.get(name, problem))
                for name, problem in violations[:_MAX_VIOLATIONS]
            )
        )
    try:
        return parse_dict(params, message_type(), ignore_unknown_fields=True)
    except ArithmeticError:
        raise invalid_params(("params", "a number is too large")) from None
    # Some values make the parser raise other errors than its own. Its texts are for programmers.
    except (ParseError, RecursionError, TypeError, ValueError):
        is_deep = nesting_depth(params) > _SAFE_DEPTH
        problem = "nested too deeply" if is_deep else "must be those of this method in A2A 1.0"
        raise invalid_params(("params", problem)) from None


def parse_send(params: object) -> a2a_pb2.SendMessageRequest:
    """Return the parameters of SendMessage and SendStreamingMessage."""
    plain = parse_plain_send(params)
    return parse_any_send(params) if plain is None else plain


def parse_any_send(params: object) -> a2a_pb2.SendMessageRequest:
    """Return the parameters of SendMessage, without the fast parser."""
    params = _accept_draft_names(params)
    request = parse_message(params, message_type=a2a_pb2.SendMessageRequest)
    check_send(request)
    if nesting_depth(params) > _SAFE_DEPTH:
        check_nesting(request)
    return request


def parse_get(params: object) -> a2a_pb2.GetTaskRequest:
    """Return the parameters of GetTask."""
    return check_get(parse_message(params, message_type=a2a_pb2.GetTaskRequest))


def parse_cancel(params: object) -> a2a_pb2.CancelTaskRequest:
    """Return the parameters of CancelTask."""
    return check_id(parse_message(params, message_type=a2a_pb2.CancelTaskRequest))


def parse_subscribe(params: object) -> a2a_pb2.SubscribeToTaskRequest:
    """Return the parameters of SubscribeToTask."""
    return check_id(parse_message(params, message_type=a2a_pb2.SubscribeToTaskRequest))


def parse_list(params: object) -> a2a_pb2.ListTasksRequest:
    """Return the parameters of ListTasks with the default page size."""
    return check_list(parse_message(params, message_type=a2a_pb2.ListTasksRequest))


def parse_create_push(params: object) -> push_notification_pb2.TaskPushNotificationConfig:
    """Return the parameters of CreateTaskPushNotificationConfig."""
    kind = push_notification_pb2.TaskPushNotificationConfig
    return check_push_config(parse_message(_flatten_webhook(params), message_type=kind))


def parse_get_push(params: object) -> a2a_pb2.GetTaskPushNotificationConfigRequest:
    """Return the parameters of GetTaskPushNotificationConfig."""
    kind = a2a_pb2.GetTaskPushNotificationConfigRequest
    return check_push_ids(parse_message(params, message_type=kind))


def parse_list_pushes(params: object) -> a2a_pb2.ListTaskPushNotificationConfigsRequest:
    """Return the parameters of ListTaskPushNotificationConfigs."""
    kind = a2a_pb2.ListTaskPushNotificationConfigsRequest
    return check_list_pushes(parse_message(params, message_type=kind))


def parse_delete_push(params: object) -> a2a_pb2.DeleteTaskPushNotificationConfigRequest:
    """Return the parameters of DeleteTaskPushNotificationConfig."""
    kind = a2a_pb2.DeleteTaskPushNotificationConfigRequest
    return check_push_ids(parse_message(params, message_type=kind))


def check_send(request: a2a_pb2.SendMessageRequest) -> a2a_pb2.SendMessageRequest:
    """Return a valid request of SendMessage. WireError: it is invalid."""
    violations = [
        *_message_violations(request.message),
        *_history_violations(request.configuration, "configuration.historyLength"),
    ]
    return _checked(request, violations)


def check_get(request: a2a_pb2.GetTaskRequest) -> a2a_pb2.GetTaskRequest:
    """Return a valid request of GetTask. WireError: it is invalid."""
    violations = [*_required(id=request.id), *_history_violations(request, "historyLength")]
    return _checked(request, violations)


def check_id(request: TaskIdRequest) -> TaskIdRequest:
    """Return a valid request of CancelTask or SubscribeToTask. WireError: it is invalid."""
    return _checked(request, _required(id=request.id))


def check_list(request: a2a_pb2.ListTasksRequest) -> a2a_pb2.ListTasksRequest:
    """Return a valid request of ListTasks; set its page size if it has none. WireError: invalid."""
    violations = _history_violations(request, "historyLength")
    if not request.HasField("page_size"):
        request.page_size = DEFAULT_PAGE_SIZE
    if request.page_size not in PAGE_SIZES:
        violations.append(("pageSize", "must be 1..100"))
    if request.status not in task_pb2.TaskState.values():
        violations.append(("status", f"must be one of {', '.join(task_pb2.TaskState.keys()[1:])}"))
    return _checked(request, violations)


def check_push_config(
    config: push_notification_pb2.TaskPushNotificationConfig,
) -> push_notification_pb2.TaskPushNotificationConfig:
    """Return a valid push notification config. WireError: it is invalid."""
    return _checked(config, _required(taskId=config.task_id, url=config.url))


def check_push_ids(request: PushConfigRequest) -> PushConfigRequest:
    """Return a valid request to get or delete a push notification config. WireError: invalid."""
    return _checked(request, _required(taskId=request.task_id, id=request.id))


def check_list_pushes(
    request: a2a_pb2.ListTaskPushNotificationConfigsRequest,
) -> a2a_pb2.ListTaskPushNotificationConfigsRequest:
    """Return a valid request to list push notification configs. WireError: it is invalid."""
    violations = _required(taskId=request.task_id)
    if request.page_size < 0:
        violations.append(("pageSize", "must not be negative"))
    return _checked(request, violations)


def check_nesting(request: a2a_pb2.SendMessageRequest) -> None:
    """Check that protobuf can parse a message in the deepest envelope that the mesh uses.

    Raises:
        WireError: the message is nested too deeply.
    """
    try:
        created = event_pb2.TaskCreated(message=request.message, metadata=request.metadata)
        batch = event_pb2.EventBatch(events=[event_pb2.Event(created=created)])
        wrapped = task_service_pb2.WatchTaskResponse(batches=[batch])
        task_service_pb2.WatchTaskResponse.FromString(wrapped.SerializeToString())
    except (DecodeError, ValueError):
        problem: WireError = invalid_params(("message", "is nested too deeply"))
        raise problem from None


def _accept_draft_names(params: object) -> object:
    """Accept names of release candidates of A2A 1.0, which some clients still send."""
    configuration = params.get("configuration") if isinstance(params, dict) else None
    if not isinstance(params, dict) or not isinstance(configuration, dict):
        return params
    converted = dict(configuration)
    if isinstance(converted.get("blocking"), bool):
        converted.setdefault("returnImmediately", not converted["blocking"])
    webhook = converted.get(_WEBHOOK, converted.get(_NESTED_WEBHOOK))
    if webhook is not None:
        converted[_WEBHOOK] = _flatten_webhook(webhook)
    return {**params, "configuration": converted}


def _flatten_webhook(webhook: object) -> object:
    """Return a webhook with its fields at the top level; drafts have them in a nested object."""
    nested = webhook.get(_NESTED_WEBHOOK) if isinstance(webhook, dict) else None
    if not isinstance(webhook, dict) or not isinstance(nested, dict) or "url" in webhook:
        return webhook
    return {**nested, **webhook}


def _message_violations(message: message_pb2.Message) -> list[tuple[str, str]]:
    violations = []
    if not message.message_id:
        violations.append(("message.messageId", "is required"))
    if message.role != message_pb2.ROLE_USER:
        violations.append(("message.role", _FROM_USER))
    if not message.parts:
        violations.append(("message.parts", "needs at least one part"))
    violations += [
        (f"message.parts[{index}]", "has no content: give text, raw, url or data")
        for index, part in enumerate(message.parts)
        if part.WhichOneof("content") is None
    ]
    return violations


def _required(**fields: str) -> list[tuple[str, str]]:
    return [(name, "is required") for name, value in fields.items() if not value]


def _checked(request: M, violations: Sequence[tuple[str, str]]) -> M:
    if violations:
        raise invalid_params(*violations[:_MAX_VIOLATIONS])
    return request


def _history_violations(
    request: a2a_pb2.SendMessageConfiguration | a2a_pb2.GetTaskRequest | a2a_pb2.ListTasksRequest,
    name: str,
) -> list[tuple[str, str]]:
    return [(name, "must not be negative")] if request.history_length < 0 else []
