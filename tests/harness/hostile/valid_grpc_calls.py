"""Valid gRPC requests of every method, as a base for mutations."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.types import a2a_pb2
from google.protobuf.message import Message

from harness.hostile.valid_http_calls import Targets
from trunkline.json_values import parse_dict

# Methods, the types of their requests, and the fields of these.
_Calls: TypeAlias = Sequence[tuple[str, Any, Any]]

V1: Final = "/lf.a2a.v1.A2AService/"
V0_3: Final = "/a2a.v1.A2AService/"


def grpc_calls(targets: Targets) -> list[tuple[str, Message]]:
    """Valid requests of every method of both packages."""
    text = {"text": "hello"}
    new = {"messageId": "m", "role": "ROLE_USER", "parts": [text, {"data": {"n": [1, None]}}]}
    before = {"messageId": "m", "role": "ROLE_USER", "content": [text]}
    task, config = {"id": targets.waiting}, {"taskId": targets.waiting, "id": "x"}
    name, config_name = (
        f"tasks/{targets.waiting}",
        f"tasks/{targets.waiting}/pushNotificationConfigs/x",
    )
    webhook = {"url": "https://203.0.113.1/hook", "token": "t"}
    v1: _Calls = (
        ("SendMessage", a2a_pb2.SendMessageRequest, {"message": new, "metadata": {"k": "v"}}),
        (
            "SendMessage",
            a2a_pb2.SendMessageRequest,
            {"message": {**new, "taskId": targets.waiting}},
        ),
        ("SendStreamingMessage", a2a_pb2.SendMessageRequest, {"message": new}),
        ("GetTask", a2a_pb2.GetTaskRequest, {"id": targets.ended, "historyLength": 1}),
        (
            "ListTasks",
            a2a_pb2.ListTasksRequest,
            {"pageSize": 3, "statusTimestampAfter": "2026-01-01T00:00:00Z"},
        ),
        ("CancelTask", a2a_pb2.CancelTaskRequest, task),
        ("SubscribeToTask", a2a_pb2.SubscribeToTaskRequest, task),
        (
            "CreateTaskPushNotificationConfig",
            a2a_pb2.TaskPushNotificationConfig,
            {**config, **webhook},
        ),
        ("GetTaskPushNotificationConfig", a2a_pb2.GetTaskPushNotificationConfigRequest, config),
        (
            "ListTaskPushNotificationConfigs",
            a2a_pb2.ListTaskPushNotificationConfigsRequest,
            {"taskId": targets.waiting},
        ),
        (
            "DeleteTaskPushNotificationConfig",
            a2a_pb2.DeleteTaskPushNotificationConfigRequest,
            config,
        ),
        ("GetExtendedAgentCard", a2a_pb2.GetExtendedAgentCardRequest, {}),
    )
    v0_3: _Calls = (
        (
            "SendMessage",
            old.SendMessageRequest,
            {"request": before, "configuration": {"blocking": True}},
        ),
        ("SendStreamingMessage", old.SendMessageRequest, {"request": before}),
        ("GetTask", old.GetTaskRequest, {"name": name, "historyLength": 2}),
        ("CancelTask", old.CancelTaskRequest, {"name": name}),
        ("TaskSubscription", old.TaskSubscriptionRequest, {"name": name}),
        (
            "CreateTaskPushNotificationConfig",
            old.CreateTaskPushNotificationConfigRequest,
            {
                "parent": name,
                "configId": "x",
                "config": {"name": config_name, "pushNotificationConfig": webhook},
            },
        ),
        (
            "GetTaskPushNotificationConfig",
            old.GetTaskPushNotificationConfigRequest,
            {"name": config_name},
        ),
        (
            "ListTaskPushNotificationConfig",
            old.ListTaskPushNotificationConfigRequest,
            {"parent": name},
        ),
        (
            "DeleteTaskPushNotificationConfig",
            old.DeleteTaskPushNotificationConfigRequest,
            {"name": config_name},
        ),
        ("GetAgentCard", old.GetAgentCardRequest, {}),
    )
    return [
        (package + method, parse_dict(fields, kind()))
        for package, calls in ((V1, v1), (V0_3, v0_3))
        for method, kind, fields in calls
    ]
