"""Valid HTTP requests of every method, version and binding, as a base for mutations."""

from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Targets:
    """The ids of an ended and a waiting task, which the requests refer to."""

    ended: str
    waiting: str


def json_rpc(targets: Targets) -> list[tuple[str, Json]]:
    """Valid parameters of every method of every version, by its version."""
    new = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    more = {**new, "taskId": targets.waiting, "metadata": {"a": [1, {"b": None}]}}
    old = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hello"}]}
    data = {"kind": "data", "data": {"n": [1, 2]}, "metadata": {"k": "v"}}
    file = {"kind": "file", "file": {"bytes": "AAEC", "mimeType": "x/y", "name": "a"}}
    webhook = {
        "url": "https://203.0.113.1/hook",
        "token": "t",
        "authentication": {"scheme": "Basic"},
    }
    old_hook = {**webhook, "authentication": {"schemes": ["Bearer"], "credentials": "c"}}
    configuration = {"acceptedOutputModes": ["text/plain"], "historyLength": 3}
    ended, waiting = {"id": targets.ended}, {"id": targets.waiting}
    first = {
        "id": "chosen",
        "sessionId": "s",
        "message": {**old, "parts": [{"type": "text", "text": "hello"}]},
    }
    calls: list[tuple[str, str, Json]] = [
        (
            "1.0",
            "SendMessage",
            {"message": new, "configuration": configuration, "metadata": {"k": 1}},
        ),
        (
            "1.0",
            "SendMessage",
            {
                "message": {
                    **new,
                    "parts": [{"data": {"n": 1}}, {"raw": "AAEC"}, {"url": "https://a.b/c"}],
                }
            },
        ),
        ("1.0", "SendMessage", {"message": more, "configuration": {"returnImmediately": True}}),
        ("1.0", "SendStreamingMessage", {"message": new, "configuration": configuration}),
        (
            "1.0",
            "SendMessage",
            {"message": new, "configuration": {"taskPushNotificationConfig": webhook}},
        ),
        ("1.0", "GetTask", {**ended, "historyLength": 1}),
        (
            "1.0",
            "ListTasks",
            {
                "pageSize": 2,
                "status": "TASK_STATE_COMPLETED",
                "includeArtifacts": True,
                "statusTimestampAfter": "2026-01-01T00:00:00Z",
                "contextId": "c",
                "pageToken": "",
            },
        ),
        ("1.0", "CancelTask", {**waiting, "metadata": {}}),
        ("1.0", "SubscribeToTask", waiting),
        ("1.0", "CreateTaskPushNotificationConfig", {"taskId": targets.waiting, **webhook}),
        ("1.0", "GetTaskPushNotificationConfig", {"taskId": targets.waiting, "id": "x"}),
        ("1.0", "ListTaskPushNotificationConfigs", {"taskId": targets.waiting, "pageSize": 3}),
        ("1.0", "DeleteTaskPushNotificationConfig", {"taskId": targets.waiting, "id": "x"}),
        ("1.0", "GetExtendedAgentCard", {}),
        (
            "0.3",
            "message/send",
            {
                "message": {**old, "parts": [*old["parts"], data, file]},
                "configuration": {"blocking": True, "historyLength": 1},
            },
        ),
        ("0.3", "message/stream", {"message": {**old, "kind": "message", "contextId": "c"}}),
        (
            "0.3",
            "message/send",
            {"message": old, "configuration": {"pushNotificationConfig": old_hook}},
        ),
        ("0.3", "tasks/get", {**ended, "historyLength": 2}),
        ("0.3", "tasks/cancel", waiting),
        ("0.3", "tasks/resubscribe", waiting),
        (
            "0.3",
            "tasks/pushNotificationConfig/set",
            {"taskId": targets.waiting, "pushNotificationConfig": old_hook},
        ),
        ("0.3", "tasks/pushNotificationConfig/get", {**waiting, "pushNotificationConfigId": "x"}),
        ("0.3", "tasks/pushNotificationConfig/list", waiting),
        (
            "0.3",
            "tasks/pushNotificationConfig/delete",
            {**waiting, "pushNotificationConfigId": "x"},
        ),
        ("0.3", "agent/getAuthenticatedExtendedCard", {}),
        ("0.1", "tasks/send", {**first, "historyLength": 2, "metadata": {"k": 1}}),
        ("0.1", "tasks/sendSubscribe", {**first, "acceptedOutputModes": ["text"]}),
        ("0.1", "tasks/send", {**first, "pushNotification": old_hook}),
        ("0.1", "tasks/get", {"id": "chosen", "historyLength": 1}),
        ("0.1", "tasks/cancel", {"id": "chosen"}),
        ("0.1", "tasks/resubscribe", {"id": "chosen"}),
        ("0.1", "tasks/pushNotification/set", {"id": "chosen", "pushNotificationConfig": old_hook}),
        ("0.1", "tasks/pushNotification/get", {"id": "chosen"}),
    ]
    return [
        (version, {"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
        for version, method, params in calls
    ]


def rest(targets: Targets) -> list[tuple[str, str, Json | None]]:
    """Valid requests of HTTP+JSON in both versions: method, target and body."""
    new = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    old = {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hello"}]}
    webhook = {"url": "https://203.0.113.1/hook", "token": "t"}
    send: Json = {"message": new, "configuration": {"historyLength": 1}}
    before: Json = {"message": old, "configuration": {"blocking": True}}
    ended, open_ = f"/tasks/{targets.ended}", f"/tasks/{targets.waiting}"
    old_config: Json = {"config": {"pushNotificationConfig": webhook}}
    queried = "/tasks?pageSize=2&status=TASK_STATE_COMPLETED&includeArtifacts=true&contextId=c"
    return [
        ("POST", "/message:send", send),
        ("POST", "/message:stream", send),
        ("POST", "/echo/message:send", send),
        ("GET", f"{ended}?historyLength=1", None),
        ("GET", queried, None),
        ("GET", "/tasks?statusTimestampAfter=2026-01-01T00:00:00Z&pageToken=x", None),
        ("POST", f"{open_}:cancel", {"metadata": {"k": "v"}}),
        ("GET", f"{open_}:subscribe", None),
        ("POST", f"{open_}:subscribe", {}),
        ("POST", f"{open_}/pushNotificationConfigs", webhook),
        ("GET", f"{open_}/pushNotificationConfigs?pageSize=1", None),
        ("GET", f"{open_}/pushNotificationConfigs/x", None),
        ("DELETE", f"{open_}/pushNotificationConfigs/x", None),
        ("GET", "/extendedAgentCard", None),
        ("POST", "/v1/message:send", before),
        ("POST", "/v1/message:stream", before),
        ("GET", f"/v1{ended}?historyLength=1", None),
        ("POST", f"/v1{open_}:cancel", {}),
        ("GET", f"/v1{open_}:subscribe", None),
        ("POST", f"/v1{open_}/pushNotificationConfigs", old_config),
        ("GET", f"/v1{open_}/pushNotificationConfigs", None),
        ("GET", "/v1/card", None),
        ("GET", "/.well-known/agent-card.json", None),
        ("GET", "/.well-known/agent.json", None),
        ("GET", "/healthz", None),
    ]
