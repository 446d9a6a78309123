"""The operations with one response, as a client calls them over each binding of A2A v1.0."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from google.protobuf.message import Message

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.v1_0 import json_writer
from trunkline.json_values import message_to_dict
from trunkline.v1 import agent_card_pb2, push_notification_pb2, task_pb2


class RemoteOperation(NamedTuple):
    """An operation with one response."""

    name: str
    """The JSON-RPC method and the gRPC method."""
    http_method: str
    path: str
    """The path over HTTP+JSON, with fields of the request in braces."""
    parse: Callable[[bytes], Any]
    """Parses the response over gRPC."""
    write: Callable[[Any], Json]
    """Converts the response over gRPC to the JSON of the other bindings."""
    is_slow: bool = False
    """The agent may work for as long as it likes before it responds."""
    check: Callable[[Json], None] = lambda _: None
    """Checks the JSON of a response. ValueError: it lacks what A2A requires."""

    def params(self, request: Message) -> Json:
        """Return the parameters of a request as JSON, without the tenant."""
        if isinstance(request, a2a_pb2.SendMessageRequest):
            return json_writer.send_params_json(request)
        if isinstance(request, push_notification_pb2.TaskPushNotificationConfig):
            return json_writer.push_config_json(request)
        return message_to_dict(request)

    def http_target(self, params: Mapping[str, Any]) -> tuple[str, Json]:
        """Return the path and query for the parameters, and those that the body has."""
        rest = dict(params)
        path = self.path
        for name in params:
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(rest.pop(name)), safe=""))
        if self.http_method == "POST":
            return path, rest
        query = {name: _query_text(value) for name, value in rest.items()}
        return (f"{path}?{urlencode(query)}" if query else path), {}


def find_task_problem(task: object) -> str:
    """Return why a value is no task, by its member; empty if it is one."""
    if not isinstance(task, dict):
        return "is no object"
    if not (isinstance(task.get("id"), str) and task["id"]):
        return "has no id"
    status = task.get("status")
    state = status.get("state") if isinstance(status, dict) else None
    if not (isinstance(state, str) and state):
        return "has no status.state"
    return ""


def find_webhook_problem(config: object) -> str:
    """Return why a value is no webhook of a task; empty if it is one."""
    if not isinstance(config, dict):
        return "is no object"
    return "" if isinstance(config.get("url"), str) and config["url"] else "has no url"


def _check_task(value: Json) -> None:
    if problem := find_task_problem(value):
        raise ValueError(f"its task {problem}")


def _check_send_response(value: Json) -> None:
    if not isinstance(value.get("message"), dict):
        _check_task(value.get("task", value))


def _check_list(name: str) -> Callable[[Json], None]:
    def check(value: Json) -> None:
        if not isinstance(value.get(name) or [], list):
            raise ValueError(f"its {name} are no list")

    return check


def _query_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _empty(_: bytes) -> None:
    return None


def _list_tasks_json(response: a2a_pb2.ListTasksResponse) -> Json:
    return {
        "tasks": [json_writer.task_json(task) for task in response.tasks],
        "nextPageToken": response.next_page_token,
        "pageSize": response.page_size,
        "totalSize": response.total_size,
    }


def _list_push_configs_json(response: a2a_pb2.ListTaskPushNotificationConfigsResponse) -> Json:
    result: Json = {"configs": [json_writer.push_config_json(entry) for entry in response.configs]}
    if response.next_page_token:
        result["nextPageToken"] = response.next_page_token
    return result


_TASK: Final = "/tasks/{id}"
_CONFIGS: Final = "/tasks/{taskId}/pushNotificationConfigs"
_parse_task: Final = task_pb2.Task.FromString
_parse_config: Final = push_notification_pb2.TaskPushNotificationConfig.FromString

SEND_MESSAGE: Final = RemoteOperation(
    "SendMessage",
    "POST",
    "/message:send",
    # SendMessageResponse has the first two members of StreamResponse, with the same numbers.
    a2a_pb2.StreamResponse.FromString,
    json_writer.stream_response_json,
    is_slow=True,
    check=_check_send_response,
)
GET_TASK: Final = RemoteOperation(
    "GetTask", "GET", _TASK, _parse_task, json_writer.task_json, check=_check_task
)
CANCEL_TASK: Final = RemoteOperation(
    "CancelTask",
    "POST",
    f"{_TASK}:cancel",
    _parse_task,
    json_writer.task_json,
    check=_check_task,
)
LIST_TASKS: Final = RemoteOperation(
    "ListTasks",
    "GET",
    "/tasks",
    a2a_pb2.ListTasksResponse.FromString,
    _list_tasks_json,
    check=_check_list("tasks"),
)
CREATE_PUSH_CONFIG: Final = RemoteOperation(
    "CreateTaskPushNotificationConfig",
    "POST",
    _CONFIGS,
    _parse_config,
    json_writer.push_config_json,
)
GET_PUSH_CONFIG: Final = RemoteOperation(
    "GetTaskPushNotificationConfig",
    "GET",
    f"{_CONFIGS}/{{id}}",
    _parse_config,
    json_writer.push_config_json,
)
LIST_PUSH_CONFIGS: Final = RemoteOperation(
    "ListTaskPushNotificationConfigs",
    "GET",
    _CONFIGS,
    a2a_pb2.ListTaskPushNotificationConfigsResponse.FromString,
    _list_push_configs_json,
    check=_check_list("configs"),
)
DELETE_PUSH_CONFIG: Final = RemoteOperation(
    "DeleteTaskPushNotificationConfig",
    "DELETE",
    f"{_CONFIGS}/{{id}}",
    _empty,
    lambda _: {},
)
GET_EXTENDED_CARD: Final = RemoteOperation(
    "GetExtendedAgentCard",
    "GET",
    "/extendedAgentCard",
    agent_card_pb2.AgentCard.FromString,
    json_writer.agent_card_json,
)
