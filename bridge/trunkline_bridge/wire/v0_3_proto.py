"""A2A v0.3's protobuf data and the core's (A2A v1.0), each turned into the other.

gRPC has these as they are, HTTP+JSON as ProtoJSON. What only v1.0 has is left out on the way back.
"""

import base64
import binascii
import re

from google.protobuf import struct_pb2

from trunkline.a2a.v0_3 import a2a_pb2 as old
from trunkline.a2a.v0_3 import task_pb2 as old_task
from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import artifact_pb2, message_pb2, part_pb2, push_notification_pb2, task_pb2
from trunkline_bridge.errors import invalid_params
from trunkline_bridge.projection.states import TURN_ENDS
from trunkline_bridge.wire.v0_3_json import WRAPPED, WRAPPED_VALUE

_TASK = re.compile(r"tasks/([^/]+)")
_CONFIG = re.compile(r"tasks/([^/]+)/pushNotificationConfigs/([^/]*)")


# Requests, to the core.


def core_send(request: old.SendMessageRequest) -> a2a_pb2.SendMessageRequest:
    """Return SendMessage's or SendStreamingMessage's request."""
    core = a2a_pb2.SendMessageRequest(message=core_message(request.request))
    if request.HasField("configuration"):
        given = request.configuration
        core.configuration.accepted_output_modes.extend(given.accepted_output_modes)
        core.configuration.return_immediately = not given.blocking
        if given.history_length:
            core.configuration.history_length = given.history_length
        if given.HasField("push_notification"):
            config = core_push_config(given.push_notification)
            core.configuration.task_push_notification_config.CopyFrom(config)
    if request.HasField("metadata"):
        core.metadata.CopyFrom(request.metadata)
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


def core_message(message: old_task.Message) -> message_pb2.Message:
    """Return a message."""
    core = message_pb2.Message(
        message_id=message.message_id,
        context_id=message.context_id,
        task_id=message.task_id,
        role=message.role,  # type: ignore[arg-type] # the same numbers
        parts=[core_part(part) for part in message.content],
        extensions=message.extensions,
    )
    if message.HasField("metadata"):
        core.metadata.CopyFrom(message.metadata)
    return core


def core_part(part: old_task.Part) -> part_pb2.Part:
    """Return a part."""
    core = part_pb2.Part()
    if part.HasField("metadata"):
        core.metadata.CopyFrom(part.metadata)
    match part.WhichOneof("part"):
        case "text":
            core.text = part.text
        case "file":
            _read_file(part.file, core)
        case "data":
            _read_data(part.data, core)
    return core


def core_push_config(
    config: old_task.PushNotificationConfig,
) -> push_notification_pb2.TaskPushNotificationConfig:
    """Return a webhook, without its task. Of several authentication schemes the first one stays."""
    core = push_notification_pb2.TaskPushNotificationConfig(
        id=config.id, url=config.url, token=config.token
    )
    if config.HasField("authentication"):
        core.authentication.scheme = next(iter(config.authentication.schemes), "")
        core.authentication.credentials = config.authentication.credentials
    return core


def task_named(name: str, *, field: str = "name") -> str:
    """Return the task of a name such as `tasks/TASK`. WireError: it isn't one."""
    found = _TASK.fullmatch(name)
    if found is None:
        raise invalid_params((field, "must be tasks/TASK"))
    return found[1]


def _config_named(name: str) -> tuple[str, str]:
    found = _CONFIG.fullmatch(name)
    return (found[1], found[2]) if found is not None else (task_named(name), "")


# Results, from the core.


def send_response(
    answer: task_pb2.Task | message_pb2.Message,
) -> old.SendMessageResponse:
    """Return what SendMessage answers."""
    if isinstance(answer, message_pb2.Message):
        return old.SendMessageResponse(msg=message(answer))
    return old.SendMessageResponse(task=task(answer))


def stream_response(core: a2a_pb2.StreamResponse) -> old.StreamResponse:
    """Return an event of a stream."""
    match core.WhichOneof("payload"):
        case "task":
            return old.StreamResponse(task=task(core.task))
        case "message":
            return old.StreamResponse(msg=message(core.message))
        case "status_update":
            return old.StreamResponse(status_update=_status_update(core.status_update))
        case _:
            return old.StreamResponse(artifact_update=_artifact_update(core.artifact_update))


def task(core: task_pb2.Task) -> old_task.Task:
    """Return a task."""
    made = old_task.Task(
        id=core.id,
        context_id=core.context_id,
        status=_status(core.status),
        artifacts=[artifact(one) for one in core.artifacts],
        history=[message(one) for one in core.history],
    )
    if core.HasField("metadata"):
        made.metadata.CopyFrom(core.metadata)
    return made


def message(core: message_pb2.Message) -> old_task.Message:
    """Return a message."""
    made = old_task.Message(
        message_id=core.message_id,
        context_id=core.context_id,
        task_id=core.task_id,
        role=core.role,  # type: ignore[arg-type] # the same numbers
        content=[part(one) for one in core.parts],
        extensions=core.extensions,
    )
    if core.HasField("metadata"):
        made.metadata.CopyFrom(core.metadata)
    return made


def artifact(core: artifact_pb2.Artifact) -> old_task.Artifact:
    """Return an artifact."""
    made = old_task.Artifact(
        artifact_id=core.artifact_id,
        name=core.name,
        description=core.description,
        parts=[part(one) for one in core.parts],
        extensions=core.extensions,
    )
    if core.HasField("metadata"):
        made.metadata.CopyFrom(core.metadata)
    return made


def part(core: part_pb2.Part) -> old_task.Part:
    """Return a part."""
    made = old_task.Part()
    if core.HasField("metadata"):
        made.metadata.CopyFrom(core.metadata)
    match core.WhichOneof("content"):
        case "text":
            made.text = core.text
        case "raw":
            made.file.file_with_bytes = base64.b64encode(core.raw)
        case "url":
            made.file.file_with_uri = core.url
        case "data":
            _write_data(core.data, made)
    if made.HasField("file"):
        made.file.mime_type = core.media_type
        made.file.name = core.filename
    return made


def push_config(
    core: push_notification_pb2.TaskPushNotificationConfig,
) -> old_task.TaskPushNotificationConfig:
    """Return a webhook under its name."""
    made = old_task.TaskPushNotificationConfig(
        name=f"tasks/{core.task_id}/pushNotificationConfigs/{core.id}"
    )
    inner = made.push_notification_config
    inner.id, inner.url, inner.token = core.id, core.url, core.token
    if core.HasField("authentication"):
        if core.authentication.scheme:
            inner.authentication.schemes.append(core.authentication.scheme)
        inner.authentication.credentials = core.authentication.credentials
    return made


def push_configs(
    core: a2a_pb2.ListTaskPushNotificationConfigsResponse,
) -> old.ListTaskPushNotificationConfigResponse:
    """Return a page of webhooks."""
    return old.ListTaskPushNotificationConfigResponse(
        configs=[push_config(one) for one in core.configs],
        next_page_token=core.next_page_token,
    )


def _status(core: task_pb2.TaskStatus) -> old_task.TaskStatus:
    # The same numbers; one has another name.
    made = old_task.TaskStatus(state=core.state)  # type: ignore[arg-type]
    if core.HasField("message"):
        made.update.CopyFrom(message(core.message))
    if core.HasField("timestamp"):
        made.timestamp.CopyFrom(core.timestamp)
    return made


def _status_update(core: a2a_pb2.TaskStatusUpdateEvent) -> old_task.TaskStatusUpdateEvent:
    made = old_task.TaskStatusUpdateEvent(
        task_id=core.task_id,
        context_id=core.context_id,
        status=_status(core.status),
        final=core.status.state in TURN_ENDS,
    )
    if core.HasField("metadata"):
        made.metadata.CopyFrom(core.metadata)
    return made


def _artifact_update(core: a2a_pb2.TaskArtifactUpdateEvent) -> old_task.TaskArtifactUpdateEvent:
    made = old_task.TaskArtifactUpdateEvent(
        task_id=core.task_id,
        context_id=core.context_id,
        artifact=artifact(core.artifact),
        append=core.append,
        last_chunk=core.last_chunk,
    )
    if core.HasField("metadata"):
        made.metadata.CopyFrom(core.metadata)
    return made


# Content that the two have differently.


def _read_file(file: old_task.FilePart, core: part_pb2.Part) -> None:
    if file.WhichOneof("file") == "file_with_uri":
        core.url = file.file_with_uri
    else:
        core.raw = _file_content(file.file_with_bytes)
    core.media_type = file.mime_type
    core.filename = file.name


def _file_content(given: bytes) -> bytes:
    """A file's bytes: as they are, or in base64.

    The schema means them as they are, but the reference SDK, and those that follow it, put base64
    into them and can't read anything else; so that is what we write, and here we take both.
    """
    try:
        return base64.b64decode(given, validate=True)
    except binascii.Error:
        return given


def _read_data(data: old_task.DataPart, core: part_pb2.Part) -> None:
    marked = core.metadata.fields.get(WRAPPED)
    if marked is not None and marked.bool_value and WRAPPED_VALUE in data.data.fields:
        core.data.CopyFrom(data.data.fields[WRAPPED_VALUE])
        del core.metadata.fields[WRAPPED]
        if not core.metadata.fields:
            core.ClearField("metadata")
    else:
        core.data.struct_value.CopyFrom(data.data)


def _write_data(value: struct_pb2.Value, made: old_task.Part) -> None:
    if value.WhichOneof("kind") == "struct_value":
        made.data.data.CopyFrom(value.struct_value)
    else:
        made.data.data.fields[WRAPPED_VALUE].CopyFrom(value)
        made.metadata.fields[WRAPPED].bool_value = True
