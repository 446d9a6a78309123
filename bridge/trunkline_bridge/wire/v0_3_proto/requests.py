"""Requests of A2A v0.3's protobuf, each turned into the core's, and of a message back again.

Their tasks and webhooks are named by paths: `tasks/TASK/pushNotificationConfigs/WEBHOOK`.
"""

import re

from trunkline.a2a.v0_3 import a2a_pb2 as old
from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import push_notification_pb2
from trunkline_bridge.errors import invalid_params
from trunkline_bridge.wire.v0_3_proto.reading import core_message, core_push_config
from trunkline_bridge.wire.v0_3_proto.writing import message, metadata_of

_TASK = re.compile(r"tasks/([^/]+)")
_CONFIG = re.compile(r"tasks/([^/]+)/pushNotificationConfigs/([^/]*)")


def core_send(request: old.SendMessageRequest) -> a2a_pb2.SendMessageRequest:
    """Return SendMessage's or SendStreamingMessage's request."""
    core = a2a_pb2.SendMessageRequest(
        message=core_message(request.request), metadata=metadata_of(request)
    )
    if request.HasField("configuration"):
        given = request.configuration
        core.configuration.accepted_output_modes.extend(given.accepted_output_modes)
        core.configuration.return_immediately = not given.blocking
        if given.history_length:
            core.configuration.history_length = given.history_length
        if given.HasField("push_notification"):
            config = core_push_config(given.push_notification)
            core.configuration.task_push_notification_config.CopyFrom(config)
    return core


def core_get(request: old.GetTaskRequest) -> a2a_pb2.GetTaskRequest:
    """Return GetTask's request. WireError: `name` names no task."""
    core = a2a_pb2.GetTaskRequest(id=task_named(request.name))
    if request.history_length:
        # In v0.3, 0 is all there is.
        core.history_length = request.history_length
    return core


def core_cancel(request: old.CancelTaskRequest) -> a2a_pb2.CancelTaskRequest:
    """Return CancelTask's request. WireError: `name` names no task."""
    return a2a_pb2.CancelTaskRequest(id=task_named(request.name))


def core_subscribe(request: old.TaskSubscriptionRequest) -> a2a_pb2.SubscribeToTaskRequest:
    """Return TaskSubscription's request. WireError: `name` names no task."""
    return a2a_pb2.SubscribeToTaskRequest(id=task_named(request.name))


def core_create_push(
    request: old.CreateTaskPushNotificationConfigRequest,
) -> push_notification_pb2.TaskPushNotificationConfig:
    """Return CreateTaskPushNotificationConfig's request. WireError: `parent` names no task."""
    task_id = task_named(request.parent, field="parent")
    core = core_push_config(request.config.push_notification_config)
    core.task_id = task_id
    # The places where a client may have put the webhook's id, the one that is meant for it first.
    named = _CONFIG.fullmatch(request.config.name)
    core.id = request.config_id or core.id or (named[2] if named else "")
    return core


def core_get_push(
    request: old.GetTaskPushNotificationConfigRequest,
) -> a2a_pb2.GetTaskPushNotificationConfigRequest:
    """Return GetTaskPushNotificationConfig's request; `tasks/TASK` alone asks for the only one.

    Raises:
        WireError: `name` names no task.
    """
    task_id, config_id = _config_named(request.name)
    return a2a_pb2.GetTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)


def core_list_push(
    request: old.ListTaskPushNotificationConfigRequest,
) -> a2a_pb2.ListTaskPushNotificationConfigsRequest:
    """Return ListTaskPushNotificationConfig's request. WireError: `parent` names no task."""
    return a2a_pb2.ListTaskPushNotificationConfigsRequest(
        task_id=task_named(request.parent, field="parent"),
        page_size=request.page_size,
        page_token=request.page_token,
    )


def core_delete_push(
    request: old.DeleteTaskPushNotificationConfigRequest,
) -> a2a_pb2.DeleteTaskPushNotificationConfigRequest:
    """Return DeleteTaskPushNotificationConfig's request. WireError: `name` names no webhook."""
    task_id, config_id = _config_named(request.name)
    return a2a_pb2.DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)


def old_send(request: a2a_pb2.SendMessageRequest) -> old.SendMessageRequest:
    """Return the request that sends a message, without a webhook."""
    made = old.SendMessageRequest(request=message(request.message), metadata=metadata_of(request))
    given = request.configuration
    made.configuration.accepted_output_modes.extend(given.accepted_output_modes)
    made.configuration.blocking = not given.return_immediately
    return made


def task_named(name: str, *, field: str = "name") -> str:
    """Return the task of a name such as `tasks/TASK`. WireError: it isn't one."""
    found = _TASK.fullmatch(name)
    if found is None:
        raise invalid_params((field, "must be tasks/TASK"))
    return found[1]


def _config_named(name: str) -> tuple[str, str]:
    found = _CONFIG.fullmatch(name)
    return (found[1], found[2]) if found is not None else (task_named(name), "")
