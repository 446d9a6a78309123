"""Reads plain text messages by hand: nearly all are, and the general way takes ten times longer."""

from collections.abc import Sequence
from typing import Any, TypeGuard, TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import event_pb2, message_pb2, push_notification_pb2, task_pb2, task_service_pb2
from trunkline_bridge.bindings import field_violations as shapes
from trunkline_bridge.edge.json_decoder import (
    MAX_VALUES,
    TOO_MANY_VALUES,
    has_more_values,
    nesting_depth,
)
from trunkline_bridge.errors import WireError, invalid_params

_TEXT_FIELDS = {"messageId": "message_id", "contextId": "context_id", "taskId": "task_id"}
_MESSAGE = frozenset({*_TEXT_FIELDS, "role", "parts"})
_CONFIGURATION = frozenset({"returnImmediately", "historyLength", "acceptedOutputModes"})
_PARAMS = frozenset({"message", "configuration"})
# More are read in the general way, which counts them.
_MAX_ITEMS = 100
_INT32 = 2**31


def parse_plain_send(params: object) -> a2a_pb2.SendMessageRequest | None:
    """Return the parameters of SendMessage if there is nothing wrong or uncommon about them."""
    if not (_is_object(params, _PARAMS) and _is_plain_message(params.get("message"))):
        return None
    configuration = params.get("configuration", {})
    if not _is_plain_configuration(configuration):
        return None
    given = params["message"]
    request = a2a_pb2.SendMessageRequest()
    message = request.message
    message.role = message_pb2.ROLE_USER
    for name, field in _TEXT_FIELDS.items():
        if name in given:
            setattr(message, field, given[name])
    for part in given["parts"]:
        message.parts.add(text=part["text"])
    if "configuration" in params:
        _configure(request.configuration, configuration)
    return request


def _configure(made: a2a_pb2.SendMessageConfiguration, given: dict[str, Any]) -> None:
    made.SetInParent()
    if "returnImmediately" in given:
        made.return_immediately = given["returnImmediately"]
    if "historyLength" in given:
        made.history_length = given["historyLength"]
    made.accepted_output_modes.extend(given.get("acceptedOutputModes", ()))


def _is_plain_message(given: object) -> bool:
    return (
        _is_object(given, _MESSAGE)
        and given.get("role") == "ROLE_USER"
        and bool(given.get("messageId"))
        and all(type(given.get(name, "")) is str for name in _TEXT_FIELDS)
        and _are_plain_parts(given.get("parts"))
    )


def _are_plain_parts(given: object) -> bool:
    return (
        type(given) is list
        and 0 < len(given) <= _MAX_ITEMS
        and all(
            type(part) is dict and len(part) == 1 and type(part.get("text")) is str
            for part in given
        )
    )


def _is_plain_configuration(given: object) -> bool:
    if not _is_object(given, _CONFIGURATION):
        return False
    modes = given.get("acceptedOutputModes", [])
    length = given.get("historyLength", 0)
    return (
        type(given.get("returnImmediately", False)) is bool
        and type(length) is int
        and 0 <= length < _INT32
        and type(modes) is list
        and len(modes) <= _MAX_ITEMS
        and all(type(mode) is str for mode in modes)
    )


def _is_object(given: object, names: frozenset[str]) -> TypeGuard[dict[str, Any]]:
    return type(given) is dict and given.keys() <= names


PAGE_SIZES = range(1, 101)
DEFAULT_PAGE_SIZE = 50

# Up to here content can't exceed the 100 levels that protobuf's parsers allow, whatever its shape.
_SAFE_DEPTH = 16
# Nobody mends more at a time.
_MAX_VIOLATIONS = 20
_WEBHOOK = "taskPushNotificationConfig"
_NESTED_WEBHOOK = "pushNotificationConfig"
_FROM_USER = "must be ROLE_USER"
# What is asked for where not all that fits the message is right.
_ASKED_FOR = {"message.role": _FROM_USER}

M = TypeVar("M", bound=ProtoMessage)
Named = TypeVar("Named", a2a_pb2.CancelTaskRequest, a2a_pb2.SubscribeToTaskRequest)
Webhook = TypeVar(
    "Webhook",
    a2a_pb2.GetTaskPushNotificationConfigRequest,
    a2a_pb2.DeleteTaskPushNotificationConfigRequest,
)


def parse_message(params: object, *, message_type: type[M]) -> M:
    """Return parameters as a message; unknown fields are ignored, as A2A wants it.

    Raises:
        WireError: they don't fit the message.
    """
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise invalid_params(("params", "must be an object"))
    if has_more_values(params, MAX_VALUES):
        raise invalid_params(("params", TOO_MANY_VALUES))
    if found := list(shapes.find_violations(params, message_type.DESCRIPTOR.fields)):
        raise invalid_params(
            *((name, _ASKED_FOR.get(name, said)) for name, said in found[:_MAX_VIOLATIONS])
        )
    try:
        return json_format.ParseDict(params, message_type(), ignore_unknown_fields=True)
    except ArithmeticError:
        raise invalid_params(("params", "a number is too large")) from None
    # The parser lets others than its own error out for some values that don't fit, and its texts
    # are for those who know protobuf.
    except (json_format.ParseError, AttributeError, RecursionError, TypeError, ValueError):
        is_deep = nesting_depth(params) > _SAFE_DEPTH
        problem = "nested too deeply" if is_deep else "must be as A2A 1.0 has them for this method"
        raise invalid_params(("params", problem)) from None


def parse_send(params: object) -> a2a_pb2.SendMessageRequest:
    """Return the parameters of SendMessage and SendStreamingMessage."""
    plain = parse_plain_send(params)
    return parse_any_send(params) if plain is None else plain


def parse_any_send(params: object) -> a2a_pb2.SendMessageRequest:
    """Return them whatever they hold; for those that `read_plain_send` takes, the same."""
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
    """Return the parameters of ListTasks, its page size filled in."""
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
    """Return a request that has what A2A requires of it. WireError: it hasn't."""
    violations = [
        *_message_violations(request.message),
        *_history_violations(request.configuration, "configuration.historyLength"),
    ]
    return _checked(request, violations)


def check_get(request: a2a_pb2.GetTaskRequest) -> a2a_pb2.GetTaskRequest:
    """Do the same for GetTask."""
    violations = [*_required(id=request.id), *_history_violations(request, "historyLength")]
    return _checked(request, violations)


def check_id(request: Named) -> Named:
    """Do the same for CancelTask and SubscribeToTask."""
    return _checked(request, _required(id=request.id))


def check_list(request: a2a_pb2.ListTasksRequest) -> a2a_pb2.ListTasksRequest:
    """Do the same for ListTasks, and fill its page size in."""
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
    """Do the same for CreateTaskPushNotificationConfig."""
    return _checked(config, _required(taskId=config.task_id, url=config.url))


def check_push_ids(request: Webhook) -> Webhook:
    """Do the same for Get- and DeleteTaskPushNotificationConfig."""
    return _checked(request, _required(taskId=request.task_id, id=request.id))


def check_list_pushes(
    request: a2a_pb2.ListTaskPushNotificationConfigsRequest,
) -> a2a_pb2.ListTaskPushNotificationConfigsRequest:
    """Do the same for ListTaskPushNotificationConfigs."""
    violations = _required(taskId=request.task_id)
    if request.page_size < 0:
        violations.append(("pageSize", "must not be negative"))
    return _checked(request, violations)


def check_nesting(request: a2a_pb2.SendMessageRequest) -> None:
    """Refuse content that would be nested too deeply where the mesh wraps it deepest."""
    try:
        # Putting messages into one another parses, too.
        created = event_pb2.TaskCreated(message=request.message, metadata=request.metadata)
        batch = event_pb2.EventBatch(events=[event_pb2.Event(created=created)])
        wrapped = task_service_pb2.WatchTaskResponse(batches=[batch])
        task_service_pb2.WatchTaskResponse.FromString(wrapped.SerializeToString())
    except (DecodeError, ValueError):
        problem: WireError = invalid_params(("message", "is nested too deeply"))
        raise problem from None


def _accept_draft_names(params: object) -> object:
    """Take what release candidates of A2A 1.0 had from v0.3, and some clients still send."""
    configuration = params.get("configuration") if isinstance(params, dict) else None
    if not isinstance(params, dict) or not isinstance(configuration, dict):
        return params
    made = dict(configuration)
    if isinstance(made.get("blocking"), bool):
        made.setdefault("returnImmediately", not made["blocking"])
    webhook = made.get(_WEBHOOK, made.get(_NESTED_WEBHOOK))
    if webhook is not None:
        made[_WEBHOOK] = _flatten_webhook(webhook)
    return {**params, "configuration": made}


def _flatten_webhook(webhook: object) -> object:
    """A webhook may be in an object of its own, beside its task."""
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
