"""Turns A2A v0.3's protobuf data into the core's."""

import base64
import binascii
import re

from trunkline.a2a.v0_3 import a2a_pb2 as old
from trunkline.a2a.v0_3 import task_pb2 as old_task
from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import artifact_pb2, message_pb2, part_pb2, push_notification_pb2, task_pb2
from trunkline_bridge.errors import invalid_params
from trunkline_bridge.versions.v0_3.json_writer import WRAPPED_DATA_KEY, WRAPPED_VALUE_KEY
from trunkline_bridge.versions.v0_3.proto_writer import find_metadata, to_v0_3_message


def from_v0_3_message(message: old_task.Message) -> message_pb2.Message:
    """Return a message."""
    return message_pb2.Message(
        message_id=message.message_id,
        context_id=message.context_id,
        task_id=message.task_id,
        role=message.role,  # type: ignore[arg-type] # the same numbers
        parts=[from_v0_3_part(part) for part in message.content],
        extensions=message.extensions,
        metadata=find_metadata(message),
    )


def from_v0_3_part(part: old_task.Part) -> part_pb2.Part:
    """Return a part."""
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


def from_v0_3_task(task: old_task.Task) -> task_pb2.Task:
    """Return a task."""
    return task_pb2.Task(
        id=task.id,
        context_id=task.context_id,
        status=_core_status(task.status),
        artifacts=[_core_artifact(one) for one in task.artifacts],
        history=[from_v0_3_message(one) for one in task.history],
        metadata=find_metadata(task),
    )


def from_v0_3_send_response(answer: old.SendMessageResponse) -> a2a_pb2.StreamResponse:
    """Return what SendMessage answers, as an event; without either of the two, an empty one."""
    match answer.WhichOneof("payload"):
        case "task":
            return a2a_pb2.StreamResponse(task=from_v0_3_task(answer.task))
        case "msg":
            return a2a_pb2.StreamResponse(message=from_v0_3_message(answer.msg))
        case _:
            return a2a_pb2.StreamResponse()


def from_v0_3_stream_response(response: old.StreamResponse) -> a2a_pb2.StreamResponse:
    """Return an event of a stream; without any of the four, an empty one."""
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


def _core_status_update(update: old_task.TaskStatusUpdateEvent) -> a2a_pb2.TaskStatusUpdateEvent:
    return a2a_pb2.TaskStatusUpdateEvent(
        task_id=update.task_id,
        context_id=update.context_id,
        status=_core_status(update.status),
        metadata=find_metadata(update),
    )


def _core_artifact_update(
    update: old_task.TaskArtifactUpdateEvent,
) -> a2a_pb2.TaskArtifactUpdateEvent:
    return a2a_pb2.TaskArtifactUpdateEvent(
        task_id=update.task_id,
        context_id=update.context_id,
        artifact=_core_artifact(update.artifact),
        append=update.append,
        last_chunk=update.last_chunk,
        metadata=find_metadata(update),
    )


def _core_status(status: old_task.TaskStatus) -> task_pb2.TaskStatus:
    """A status without its time: whoever reads it needs none, and not all give a good one."""
    # The same numbers; one has another name.
    made = task_pb2.TaskStatus(state=status.state)  # type: ignore[arg-type]
    if status.HasField("update"):
        made.message.CopyFrom(from_v0_3_message(status.update))
    return made


def _core_artifact(artifact: old_task.Artifact) -> artifact_pb2.Artifact:
    return artifact_pb2.Artifact(
        artifact_id=artifact.artifact_id,
        name=artifact.name,
        description=artifact.description,
        parts=[from_v0_3_part(one) for one in artifact.parts],
        extensions=artifact.extensions,
        metadata=find_metadata(artifact),
    )


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
    marked = core.metadata.fields.get(WRAPPED_DATA_KEY)
    if marked is not None and marked.bool_value and WRAPPED_VALUE_KEY in data.data.fields:
        core.data.CopyFrom(data.data.fields[WRAPPED_VALUE_KEY])
        del core.metadata.fields[WRAPPED_DATA_KEY]
        if not core.metadata.fields:
            core.ClearField("metadata")
    else:
        core.data.struct_value.CopyFrom(data.data)


_TASK = re.compile(r"tasks/([^/]+)")
_CONFIG = re.compile(r"tasks/([^/]+)/pushNotificationConfigs/([^/]*)")


def from_v0_3_send(request: old.SendMessageRequest) -> a2a_pb2.SendMessageRequest:
    """Return SendMessage's or SendStreamingMessage's request."""
    core = a2a_pb2.SendMessageRequest(
        message=from_v0_3_message(request.request), metadata=find_metadata(request)
    )
    if request.HasField("configuration"):
        given = request.configuration
        core.configuration.accepted_output_modes.extend(given.accepted_output_modes)
        core.configuration.return_immediately = not given.blocking
        if given.history_length:
            core.configuration.history_length = given.history_length
        if given.HasField("push_notification"):
            config = from_v0_3_push_config(given.push_notification)
            core.configuration.task_push_notification_config.CopyFrom(config)
    return core


def from_v0_3_get(request: old.GetTaskRequest) -> a2a_pb2.GetTaskRequest:
    """Return GetTask's request. WireError: `name` names no task."""
    core = a2a_pb2.GetTaskRequest(id=parse_task_name(request.name))
    if request.history_length:
        # In v0.3, 0 is all there is.
        core.history_length = request.history_length
    return core


def from_v0_3_cancel(request: old.CancelTaskRequest) -> a2a_pb2.CancelTaskRequest:
    """Return CancelTask's request. WireError: `name` names no task."""
    return a2a_pb2.CancelTaskRequest(id=parse_task_name(request.name))


def from_v0_3_subscribe(request: old.TaskSubscriptionRequest) -> a2a_pb2.SubscribeToTaskRequest:
    """Return TaskSubscription's request. WireError: `name` names no task."""
    return a2a_pb2.SubscribeToTaskRequest(id=parse_task_name(request.name))


def from_v0_3_create_push(
    request: old.CreateTaskPushNotificationConfigRequest,
) -> push_notification_pb2.TaskPushNotificationConfig:
    """Return CreateTaskPushNotificationConfig's request. WireError: `parent` names no task."""
    task_id = parse_task_name(request.parent, field="parent")
    core = from_v0_3_push_config(request.config.push_notification_config)
    core.task_id = task_id
    # The places where a client may have put the webhook's id, the one that is meant for it first.
    named = _CONFIG.fullmatch(request.config.name)
    core.id = request.config_id or core.id or (named[2] if named else "")
    return core


def from_v0_3_get_push(
    request: old.GetTaskPushNotificationConfigRequest,
) -> a2a_pb2.GetTaskPushNotificationConfigRequest:
    """Return GetTaskPushNotificationConfig's request; `tasks/TASK` alone asks for the only one.

    Raises:
        WireError: `name` names no task.
    """
    task_id, config_id = _parse_config_name(request.name)
    return a2a_pb2.GetTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)


def from_v0_3_list_push(
    request: old.ListTaskPushNotificationConfigRequest,
) -> a2a_pb2.ListTaskPushNotificationConfigsRequest:
    """Return ListTaskPushNotificationConfig's request. WireError: `parent` names no task."""
    return a2a_pb2.ListTaskPushNotificationConfigsRequest(
        task_id=parse_task_name(request.parent, field="parent"),
        page_size=request.page_size,
        page_token=request.page_token,
    )


def from_v0_3_delete_push(
    request: old.DeleteTaskPushNotificationConfigRequest,
) -> a2a_pb2.DeleteTaskPushNotificationConfigRequest:
    """Return DeleteTaskPushNotificationConfig's request. WireError: `name` names no webhook."""
    task_id, config_id = _parse_config_name(request.name)
    return a2a_pb2.DeleteTaskPushNotificationConfigRequest(task_id=task_id, id=config_id)


def to_v0_3_send(request: a2a_pb2.SendMessageRequest) -> old.SendMessageRequest:
    """Return the request that sends a message, without a webhook."""
    made = old.SendMessageRequest(
        request=to_v0_3_message(request.message), metadata=find_metadata(request)
    )
    given = request.configuration
    made.configuration.accepted_output_modes.extend(given.accepted_output_modes)
    made.configuration.blocking = not given.return_immediately
    return made


def parse_task_name(name: str, *, field: str = "name") -> str:
    """Return the task of a name such as `tasks/TASK`. WireError: it isn't one."""
    found = _TASK.fullmatch(name)
    if found is None:
        raise invalid_params((field, "must be tasks/TASK"))
    return found[1]


def _parse_config_name(name: str) -> tuple[str, str]:
    found = _CONFIG.fullmatch(name)
    return (found[1], found[2]) if found is not None else (parse_task_name(name), "")
