"""Turns A2A v0.3's protobuf data into the core's."""

import base64
import binascii

from trunkline.a2a.v0_3 import a2a_pb2 as old
from trunkline.a2a.v0_3 import task_pb2 as old_task
from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import artifact_pb2, message_pb2, part_pb2, push_notification_pb2, task_pb2
from trunkline_bridge.wire.v0_3_json import WRAPPED, WRAPPED_VALUE
from trunkline_bridge.wire.v0_3_proto.writing import metadata_of


def core_message(message: old_task.Message) -> message_pb2.Message:
    """Return a message."""
    return message_pb2.Message(
        message_id=message.message_id,
        context_id=message.context_id,
        task_id=message.task_id,
        role=message.role,  # type: ignore[arg-type] # the same numbers
        parts=[core_part(part) for part in message.content],
        extensions=message.extensions,
        metadata=metadata_of(message),
    )


def core_part(part: old_task.Part) -> part_pb2.Part:
    """Return a part."""
    core = part_pb2.Part(metadata=metadata_of(part))
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


def core_task(task: old_task.Task) -> task_pb2.Task:
    """Return a task."""
    return task_pb2.Task(
        id=task.id,
        context_id=task.context_id,
        status=_core_status(task.status),
        artifacts=[_core_artifact(one) for one in task.artifacts],
        history=[core_message(one) for one in task.history],
        metadata=metadata_of(task),
    )


def core_answer(answer: old.SendMessageResponse) -> a2a_pb2.StreamResponse:
    """Return what SendMessage answers, as an event; without either of the two, an empty one."""
    match answer.WhichOneof("payload"):
        case "task":
            return a2a_pb2.StreamResponse(task=core_task(answer.task))
        case "msg":
            return a2a_pb2.StreamResponse(message=core_message(answer.msg))
        case _:
            return a2a_pb2.StreamResponse()


def core_response(response: old.StreamResponse) -> a2a_pb2.StreamResponse:
    """Return an event of a stream; without any of the four, an empty one."""
    match response.WhichOneof("payload"):
        case "task":
            return a2a_pb2.StreamResponse(task=core_task(response.task))
        case "msg":
            return a2a_pb2.StreamResponse(message=core_message(response.msg))
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
        metadata=metadata_of(update),
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
        metadata=metadata_of(update),
    )


def _core_status(status: old_task.TaskStatus) -> task_pb2.TaskStatus:
    """A status without its time: whoever reads it needs none, and not all give a good one."""
    # The same numbers; one has another name.
    made = task_pb2.TaskStatus(state=status.state)  # type: ignore[arg-type]
    if status.HasField("update"):
        made.message.CopyFrom(core_message(status.update))
    return made


def _core_artifact(artifact: old_task.Artifact) -> artifact_pb2.Artifact:
    return artifact_pb2.Artifact(
        artifact_id=artifact.artifact_id,
        name=artifact.name,
        description=artifact.description,
        parts=[core_part(one) for one in artifact.parts],
        extensions=artifact.extensions,
        metadata=metadata_of(artifact),
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
    marked = core.metadata.fields.get(WRAPPED)
    if marked is not None and marked.bool_value and WRAPPED_VALUE in data.data.fields:
        core.data.CopyFrom(data.data.fields[WRAPPED_VALUE])
        del core.metadata.fields[WRAPPED]
        if not core.metadata.fields:
            core.ClearField("metadata")
    else:
        core.data.struct_value.CopyFrom(data.data)
