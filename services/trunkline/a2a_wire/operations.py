"""The operations of A2A: the one table that the server and the client have, for all versions.

A row has the names of an operation, its place over HTTP+JSON, its messages, and the functions that
read and write them. The core model has the messages of v1.0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote, urlencode

from google.protobuf import empty_pb2
from google.protobuf.json_format import ParseError
from google.protobuf.message import Message

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.response_reader import parse_stream_response, parse_task
from trunkline.a2a_wire.v0_3 import json_reader as v0_3_json
from trunkline.a2a_wire.v0_3 import methods as v0_3
from trunkline.a2a_wire.v0_3.methods import V03Method
from trunkline.a2a_wire.v1_0 import json_writer
from trunkline.json_values import message_to_dict, parse_dict
from trunkline.v1 import agent_card_pb2, message_pb2, push_notification_pb2, task_pb2

_TASK: Final = "/tasks/{id}"
_CONFIGS: Final = "/tasks/{taskId}/pushNotificationConfigs"


def _unchanged(value: object) -> object:
    return value


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation of A2A."""

    name: str
    """The method over JSON-RPC and gRPC in v1.0."""
    request: type[Message]
    response: type[Message]
    """The response over gRPC in v1.0; for a stream, each event."""
    http_methods: tuple[str, ...]
    """The methods of HTTP that servers accept; a client tries the first one first."""
    path: str
    """The path over HTTP+JSON, with the fields of the request that it has in braces."""
    response_json: Callable[[Any], Json | None]
    """Converts a response to the JSON of v1.0, or is None if the operation has no result."""
    params_json: Callable[[Any], Json] = message_to_dict
    """Converts a request to the JSON of v1.0."""
    read_json: Callable[[object], Any] = _unchanged
    """Reads the JSON of a response in any version; without a reader, returns it. ValueError: the
    value is not such a response."""
    is_stream: bool = False
    is_slow: bool = False
    """The agent may work for as long as it likes before it responds."""
    check: Callable[[Json], None] = lambda _: None
    """Checks the JSON of a response. ValueError: it lacks what A2A requires."""
    v0_3: V03Method | None = None
    jsonrpc_v0_3: str = ""
    """The method over JSON-RPC in v0.3, if v0.3 names it without defining its messages."""
    jsonrpc_v0_1: str = ""
    """The method over JSON-RPC in v0.1, or empty if v0.1 has none."""

    @cached_property
    def id_fields(self) -> tuple[str, ...]:
        """The fields of the request with the ids of the task and the push notification config."""
        fields = self.request.DESCRIPTOR.fields
        return tuple(field.name for field in fields if f"{{{field.json_name}}}" in self.path)

    @property
    def method_names(self) -> tuple[str, str, str]:
        """The methods over JSON-RPC in v1.0, v0.3 and v0.1; empty if the version lacks it."""
        older = self.jsonrpc_v0_3 or (self.v0_3.jsonrpc if self.v0_3 is not None else "")
        return self.name, older, self.jsonrpc_v0_1

    def http_target(self, params: Mapping[str, Any]) -> tuple[str, Json]:
        """Return the path and query for parameters, and the parameters that the body has."""
        rest = dict(params)
        path = self.path
        for name in params:
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(rest.pop(name)), safe=""))
        if self.http_methods[0] == "POST":
            return path, rest
        query = {name: _query_text(value) for name, value in rest.items()}
        return (f"{path}?{urlencode(query)}" if query else path), {}


def find_task_problem(task: object) -> str:
    """Return why a value is not a task, with the member at fault, or an empty text."""
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
    """Return why a value is not a webhook of a task, or an empty text."""
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


def _send_response_json(
    result: task_pb2.Task | message_pb2.Message | a2a_pb2.StreamResponse,
) -> Json:
    """Convert what answers a message: an agent's server has it alone, a client as an event."""
    if isinstance(result, a2a_pb2.StreamResponse):
        return json_writer.stream_response_json(result)
    if isinstance(result, message_pb2.Message):
        return {"message": json_writer.message_json(result)}
    return {"task": json_writer.task_json(result)}


def _push_configs_json(response: a2a_pb2.ListTaskPushNotificationConfigsResponse) -> Json:
    return {
        "configs": [json_writer.push_config_json(config) for config in response.configs],
        "nextPageToken": response.next_page_token,
    }


def _read_config(value: object) -> push_notification_pb2.TaskPushNotificationConfig:
    nested = value.get("pushNotificationConfig") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(nested, dict):
        raise ValueError("it is no push notification config")
    task = v0_3_json.pick_members(value, ("taskId",))
    config = push_notification_pb2.TaskPushNotificationConfig()
    try:
        return parse_dict({**v0_3_json.convert_webhook(nested), **task}, config)
    except ParseError:
        raise ValueError("its push notification config does not match the A2A schema") from None


def _read_configs(value: object) -> a2a_pb2.ListTaskPushNotificationConfigsResponse:
    if not isinstance(value, list):
        raise ValueError("it is no list of push notification configs")
    return a2a_pb2.ListTaskPushNotificationConfigsResponse(
        configs=[_read_config(entry) for entry in value]
    )


def _no_result(_response: object) -> None:
    return None


SEND_MESSAGE: Final = Operation(
    name="SendMessage",
    request=a2a_pb2.SendMessageRequest,
    response=a2a_pb2.SendMessageResponse,
    http_methods=("POST",),
    path="/message:send",
    params_json=json_writer.send_params_json,
    response_json=_send_response_json,
    read_json=parse_stream_response,
    is_slow=True,
    check=_check_send_response,
    v0_3=v0_3.SEND_MESSAGE,
    jsonrpc_v0_1="tasks/send",
)
SEND_STREAMING_MESSAGE: Final = Operation(
    name="SendStreamingMessage",
    request=a2a_pb2.SendMessageRequest,
    response=a2a_pb2.StreamResponse,
    http_methods=("POST",),
    path="/message:stream",
    params_json=json_writer.send_params_json,
    response_json=json_writer.stream_response_json,
    read_json=parse_stream_response,
    is_stream=True,
    v0_3=v0_3.SEND_STREAMING_MESSAGE,
    jsonrpc_v0_1="tasks/sendSubscribe",
)
GET_TASK: Final = Operation(
    name="GetTask",
    request=a2a_pb2.GetTaskRequest,
    response=task_pb2.Task,
    http_methods=("GET",),
    path=_TASK,
    response_json=json_writer.task_json,
    read_json=parse_task,
    check=_check_task,
    v0_3=v0_3.GET_TASK,
    jsonrpc_v0_1="tasks/get",
)
LIST_TASKS: Final = Operation(
    name="ListTasks",
    request=a2a_pb2.ListTasksRequest,
    response=a2a_pb2.ListTasksResponse,
    http_methods=("GET",),
    path="/tasks",
    response_json=json_writer.task_page_json,
    check=_check_list("tasks"),
    jsonrpc_v0_3="tasks/list",
)
CANCEL_TASK: Final = Operation(
    name="CancelTask",
    request=a2a_pb2.CancelTaskRequest,
    response=task_pb2.Task,
    http_methods=("POST",),
    path=f"{_TASK}:cancel",
    response_json=json_writer.task_json,
    read_json=parse_task,
    check=_check_task,
    v0_3=v0_3.CANCEL_TASK,
    jsonrpc_v0_1="tasks/cancel",
)
SUBSCRIBE_TO_TASK: Final = Operation(
    name="SubscribeToTask",
    request=a2a_pb2.SubscribeToTaskRequest,
    response=a2a_pb2.StreamResponse,
    # A2A's proto file has GET here, the text of the specification POST, and servers accept either.
    http_methods=("POST", "GET"),
    path=f"{_TASK}:subscribe",
    response_json=json_writer.stream_response_json,
    read_json=parse_stream_response,
    is_stream=True,
    v0_3=v0_3.SUBSCRIBE_TO_TASK,
    jsonrpc_v0_1="tasks/resubscribe",
)
CREATE_PUSH_CONFIG: Final = Operation(
    name="CreateTaskPushNotificationConfig",
    request=push_notification_pb2.TaskPushNotificationConfig,
    response=push_notification_pb2.TaskPushNotificationConfig,
    http_methods=("POST",),
    path=_CONFIGS,
    params_json=json_writer.push_config_json,
    response_json=json_writer.push_config_json,
    read_json=_read_config,
    v0_3=v0_3.CREATE_PUSH_CONFIG,
    jsonrpc_v0_1="tasks/pushNotification/set",
)
GET_PUSH_CONFIG: Final = Operation(
    name="GetTaskPushNotificationConfig",
    request=a2a_pb2.GetTaskPushNotificationConfigRequest,
    response=push_notification_pb2.TaskPushNotificationConfig,
    http_methods=("GET",),
    path=f"{_CONFIGS}/{{id}}",
    response_json=json_writer.push_config_json,
    read_json=_read_config,
    v0_3=v0_3.GET_PUSH_CONFIG,
    jsonrpc_v0_1="tasks/pushNotification/get",
)
LIST_PUSH_CONFIGS: Final = Operation(
    name="ListTaskPushNotificationConfigs",
    request=a2a_pb2.ListTaskPushNotificationConfigsRequest,
    response=a2a_pb2.ListTaskPushNotificationConfigsResponse,
    http_methods=("GET",),
    path=_CONFIGS,
    response_json=_push_configs_json,
    read_json=_read_configs,
    check=_check_list("configs"),
    v0_3=v0_3.LIST_PUSH_CONFIGS,
)
DELETE_PUSH_CONFIG: Final = Operation(
    name="DeleteTaskPushNotificationConfig",
    request=a2a_pb2.DeleteTaskPushNotificationConfigRequest,
    response=empty_pb2.Empty,
    http_methods=("DELETE",),
    path=f"{_CONFIGS}/{{id}}",
    response_json=_no_result,
    v0_3=v0_3.DELETE_PUSH_CONFIG,
)
GET_EXTENDED_CARD: Final = Operation(
    name="GetExtendedAgentCard",
    request=a2a_pb2.GetExtendedAgentCardRequest,
    response=agent_card_pb2.AgentCard,
    http_methods=("GET",),
    path="/extendedAgentCard",
    response_json=json_writer.agent_card_json,
    v0_3=v0_3.GET_EXTENDED_CARD,
)
OPERATIONS: Final = (
    SEND_MESSAGE,
    SEND_STREAMING_MESSAGE,
    GET_TASK,
    LIST_TASKS,
    CANCEL_TASK,
    SUBSCRIBE_TO_TASK,
    CREATE_PUSH_CONFIG,
    GET_PUSH_CONFIG,
    LIST_PUSH_CONFIGS,
    DELETE_PUSH_CONFIG,
    GET_EXTENDED_CARD,
)
"""All operations, in the order of the specification."""
