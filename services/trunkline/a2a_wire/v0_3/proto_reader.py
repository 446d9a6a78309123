"""Converts protobuf messages of v0.3 to the core model.

In v0.3 tasks and webhooks have resource names: `tasks/TASK/pushNotificationConfigs/WEBHOOK`.
"""

import base64
import binascii
import re

from trunkline.a2a.v0_3 import a2a_pb2 as v0_3_pb2
from trunkline.a2a.v0_3 import task_pb2 as v0_3_task_pb2
from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import invalid_params
from trunkline.a2a_wire.v0_3.json_writer import WRAPPED_DATA_KEY, WRAPPED_VALUE_KEY
from trunkline.a2a_wire.v0_3.proto_writer import find_metadata, to_v0_3_message
from trunkline.core.json_values import find_member, read_member, remove_member
from trunkline.v1 import artifact_pb2, message_pb2, part_pb2, push_notification_pb2, task_pb2

_TASK = re.compile(r"tasks/([^/]+)")
_CONFIG = re.compile(r"tasks/([^/]+)/pushNotificationConfigs/([^/]*)")


def from_v0_3_message(message: v0_3_task_pb2.Message) -> message_pb2.Message:
    """Convert a message."""
    return message_pb2.Message(
        message_id=message.message_id,
        context_id=message.context_id,
        task_id=message.task_id,
        role=message.role,  # type: ignore[arg-type] # the same numbers
        parts=[from_v0_3_part(part) for part in message.content],
        extensions=message.extensions,
        metadata=find_metadata(message),
    )


def from_v0_3_part(part: v0_3_task_pb2.Part) -> part_pb2.Part:
    """Convert a part."""
    core = part_pb2.Part(metadata=find_metadata(part))
    match part.WhichOneof("part"):
        case "text":
            core.text = part.text
        case "file":
            _read_file(part.file, core)
        case "data":
            _read_data(part.data, core)
    return core


def from_v0_3_push_config(
    config: v0_3_task_pb2.PushNotificationConfig,
) -> push_notification_pb2.TaskPushNotificationConfig:
    """Convert a webhook without its task; of several authentication schemes the first is used."""
    core = push_notification_pb2.TaskPushNotificationConfig(
        id=config.id, url=config.url, token=config.token
    )
    if config.HasField("authentication"):
        core.authentication.scheme = next(iter(config.authentication.schemes), "")
        core.authentication.credentials = config.authentication.credentials
    return core


def from_v0_3_task(task: v0_3_task_pb2.Task) -> task_pb2.Task:
    """Convert a task."""
    return task_pb2.Task(
        id=task.id,
        context_id=task.context_id,
        status=_core_status(task.status),
        artifacts=[_core_artifact(artifact) for artifact in task.artifacts],
        history=[from_v0_3_message(message) for message in task.history],
        metadata=find_metadata(task),
    )


def from_v0_3_send_response(response: v0_3_pb2.SendMessageResponse) -> a2a_pb2.StreamResponse:
    """Convert the response of SendMessage to an event; an empty one gives an empty event."""
    match response.WhichOneof("payload"):
        case "task":
            return a2a_pb2.StreamResponse(task=from_v0_3_task(response.task))
        case "msg":
            return a2a_pb2.StreamResponse(message=from_v0_3_message(response.msg))
        case _:
            return a2a_pb2.StreamResponse()


def from_v0_3_stream_response(response: v0_3_pb2.StreamResponse) -> a2a_pb2.StreamResponse:
    """Convert an event of a stream; an empty one gives an empty event."""
    match response.WhichOneof("payload"):
        case "task":
            return a2a_pb2.StreamResponse(task=from_v0_3_task(response.task))
        case "msg":
            return a2a_pb2.StreamResponse(message=from_v0_3_message(response.msg))
        case "status_update":
            return a2a_pb2.StreamResponse(status_update=_core_status_update(response.status_update))
        case "artifact_update":
            update = _core_artifact_update(response.artifact_update)
            return a2a_pb2.StreamResponse(artifact_update=update)
        case _:
            return a2a_pb2.StreamResponse()


def _core_status_update(
    update: v0_3_task_pb2.TaskStatusUpdateEvent,
) -> a2a_pb2.TaskStatusUpdateEvent:
    return a2a_pb2.TaskStatusUpdateEvent(
        task_id=update.task_id,
        context_id=update.context_id,
        status=_core_status(update.status),
        metadata=find_metadata(update),
    )


def _core_artifact_update(
    update: v0_3_task_pb2.TaskArtifactUpdateEvent,
) -> a2a_pb2.TaskArtifactUpdateEvent:
    return a2a_pb2.TaskArtifactUpdateEvent(
        task_id=update.task_id,
        context_id=update.context_id,
        artifact=_core_artifact(update.artifact),
        append=update.append,
        last_chunk=update.last_chunk,
        metadata=find_metadata(update),
    )


def _core_status(status: v0_3_task_pb2.TaskStatus) -> task_pb2.TaskStatus:
    """Convert a status without its timestamp, which is not needed and often invalid."""
    # The enums have the same numbers.
    result = task_pb2.TaskStatus(state=status.state)  # type: ignore[arg-type]
    if status.HasField("update"):
        result.message.CopyFrom(from_v0_3_message(status.update))
    return result


def _core_artifact(artifact: v0_3_task_pb2.Artifact) -> artifact_pb2.Artifact:
    return artifact_pb2.Artifact(
        artifact_id=artifact.artifact_id,
        name=artifact.name,
        description=artifact.description,
        parts=[from_v0_3_part(part) for part in artifact.parts],
        extensions=artifact.extensions,
        metadata=find_metadata(artifact),
    )


def _read_file(file: v0_3_task_pb2.FilePart, core: part_pb2.Part) -> None:
    if file.WhichOneof("file") == "file_with_uri":
        core.url = file.file_with_uri
    else:
        core.raw = _file_content(file.file_with_bytes)
    core.media_type = file.mime_type
    core.filename = file.name


def _file_content(value: bytes) -> bytes:
    """Return a file's content from base64 or raw bytes.

    The schema demands raw bytes, but the reference SDK writes base64.
    """
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        return value


def _read_data(data: v0_3_task_pb2.DataPart, core: part_pb2.Part) -> None:
    is_marked = read_member(core.metadata, WRAPPED_DATA_KEY) is True
    wrapped = find_member(data.data, WRAPPED_VALUE_KEY) if is_marked else None
    if wrapped is not None:
        core.data.CopyFrom(wrapped)
        remove_member(core.metadata, WRAPPED_DATA_KEY)
        if not core.metadata.members:
            core.ClearField("metadata")
    else:
        core.data.struct_value.CopyFrom(data.data)


def from_v0_3_send(request: v0_3_pb2.SendMessageRequest) -> a2a_pb2.SendMessageRequest:
    """Convert a request of SendMessage or SendStreamingMessage."""
    core = a2a_pb2.SendMessageRequest(
        message=from_v0_3_message(request.request), metadata=find_metadata(request)
    )
    if request.HasField("configuration"):
        value = request.configuration
        core.configuration.accepted_output_modes.extend(value.accepted_output_modes)
        core.configuration.return_immediately = not value.blocking
        if value.history_length:
            core.configuration.history_length = value.history_length
        if value.HasField("push_notification"):
            config = from_v0_3_push_config(value.push_notification)
            core.configuration.task_push_notification_config.CopyFrom(config)
    return core


def from_v0_3_get(request: v0_3_pb2.GetTaskRequest) -> a2a_pb2.GetTaskRequest:
    """Convert a request of GetTask. WireError: `name` names no task."""
    core = a2a_pb2.GetTaskRequest(id=parse_task_name(request.name))
    if request.history_length:
        # In v0.3, 0 means no limit.
        core.history_length = request.history_length
    return core


def from_v0_3_cancel(request: v0_3_pb2.CancelTaskRequest) -> a2a_pb2.CancelTaskRequest:
    """Convert a request of CancelTask. WireError: `name` names no task."""
    return a2a_pb2.CancelTaskRequest(id=parse_task_name(request.name))


def from_v0_3_subscribe(
    request: v0_3_pb2.TaskSubscriptionRequest,
) -> a2a_pb2.SubscribeToTaskRequest:
    """Convert a request of TaskSubscription. WireError: `name` names no task."""
    return a2a_pb2.SubscribeToTaskRequest(id=parse_task_name(request.name))


def from_v0_3_create_push(
    request: v0_3_pb2.CreateTaskPushNotificationConfigRequest,
) -> push_notification_pb2.TaskPushNotificationConfig:
    """Convert a request to create a webhook. WireError: `parent` names no task."""
    task_id = parse_task_name(request.parent, field="parent")
    core = from_v0_3_push_config(request.config.push_notification_config)
    core.task_id = task_id
    # Clients put the webhook's id in one of these; the first is the specified one.
    match = _CONFIG.fullmatch(request.config.name)
    core.id = request.config_id or core.id or (match[2] if match else "")
    return core


def from_v0_3_get_push(
    request: v0_3_pb2.GetTaskPushNotificationConfigRequest,
) -> a2a_pb2.GetTaskPushNotificationConfigRequest:
    """Convert a request for a webhook; `tasks/TASK` alone is the first webhook of the task.

    Raises:
        WireError: `name` names no task.
    """
    task_id, config_id = _parse_config_name(request.name)
    return a2a_pb2.GetTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)


def from_v0_3_list_push(
    request: v0_3_pb2.ListTaskPushNotificationConfigRequest,
) -> a2a_pb2.ListTaskPushNotificationConfigsRequest:
    """Convert a request for a task's webhooks. WireError: `parent` names no task."""
    return a2a_pb2.ListTaskPushNotificationConfigsRequest(
        task_id=parse_task_name(request.parent, field="parent"),
        page_size=request.page_size,
        page_token=request.page_token,
    )


def from_v0_3_delete_push(
    request: v0_3_pb2.DeleteTaskPushNotificationConfigRequest,
) -> a2a_pb2.DeleteTaskPushNotificationConfigRequest:
    """Convert a request to delete a webhook. WireError: `name` names no task."""
    task_id, config_id = _parse_config_name(request.name)
    return a2a_pb2.DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)


def to_v0_3_send(request: a2a_pb2.SendMessageRequest) -> v0_3_pb2.SendMessageRequest:
    """Convert a send request to v0.3's, without a webhook."""
    result = v0_3_pb2.SendMessageRequest(
        request=to_v0_3_message(request.message), metadata=find_metadata(request)
    )
    value = request.configuration
    result.configuration.accepted_output_modes.extend(value.accepted_output_modes)
    result.configuration.blocking = not value.return_immediately
    return result


def parse_task_name(name: str, *, field: str = "name") -> str:
    """Return the task id of a resource name `tasks/TASK`. WireError: it has another form."""
    match = _TASK.fullmatch(name)
    if match is None:
        raise invalid_params((field, "must be tasks/TASK"))
    return match[1]


def _parse_config_name(name: str) -> tuple[str, str]:
    match = _CONFIG.fullmatch(name)
    return (match[1], match[2]) if match is not None else (parse_task_name(name), "")
