"""Converts core data to v0.3's protobuf data, without fields that only v1.0 has.

gRPC sends these messages; HTTP+JSON sends them as ProtoJSON.
"""

import base64
from typing import TypeAlias

from google.protobuf import struct_pb2

from trunkline.a2a.v0_3 import a2a_pb2 as old
from trunkline.a2a.v0_3 import task_pb2 as old_task
from trunkline.a2a.v1 import a2a_pb2
from trunkline.task_states import TURN_END
from trunkline.v1 import artifact_pb2, message_pb2, part_pb2, push_notification_pb2, task_pb2
from trunkline_bridge.versions.v0_3.json_writer import WRAPPED_DATA_KEY, WRAPPED_VALUE_KEY

_WithMetadata: TypeAlias = (
    a2a_pb2.SendMessageRequest
    | a2a_pb2.TaskStatusUpdateEvent
    | a2a_pb2.TaskArtifactUpdateEvent
    | artifact_pb2.Artifact
    | message_pb2.Message
    | part_pb2.Part
    | task_pb2.Task
    | old.SendMessageRequest
    | old_task.Artifact
    | old_task.Message
    | old_task.Part
    | old_task.Task
    | old_task.TaskArtifactUpdateEvent
    | old_task.TaskStatusUpdateEvent
)


def to_v0_3_send_response(
    answer: task_pb2.Task | message_pb2.Message,
) -> old.SendMessageResponse:
    """Convert the result of sending a message to SendMessage's response."""
    if isinstance(answer, message_pb2.Message):
        return old.SendMessageResponse(msg=to_v0_3_message(answer))
    return old.SendMessageResponse(task=to_v0_3_task(answer))


def to_v0_3_stream_response(core: a2a_pb2.StreamResponse) -> old.StreamResponse:
    """Convert an event of a stream."""
    match core.WhichOneof("payload"):
        case "task":
            return old.StreamResponse(task=to_v0_3_task(core.task))
        case "message":
            return old.StreamResponse(msg=to_v0_3_message(core.message))
        case "status_update":
            return old.StreamResponse(status_update=_status_update(core.status_update))
        case _:
            return old.StreamResponse(artifact_update=_artifact_update(core.artifact_update))


def to_v0_3_task(core: task_pb2.Task) -> old_task.Task:
    """Convert a task."""
    return old_task.Task(
        id=core.id,
        context_id=core.context_id,
        status=_status(core.status),
        artifacts=[to_v0_3_artifact(one) for one in core.artifacts],
        history=[to_v0_3_message(one) for one in core.history],
        metadata=find_metadata(core),
    )


def to_v0_3_message(core: message_pb2.Message) -> old_task.Message:
    """Convert a message."""
    return old_task.Message(
        message_id=core.message_id,
        context_id=core.context_id,
        task_id=core.task_id,
        role=core.role,  # type: ignore[arg-type] # the same numbers
        content=[to_v0_3_part(one) for one in core.parts],
        extensions=core.extensions,
        metadata=find_metadata(core),
    )


def to_v0_3_artifact(core: artifact_pb2.Artifact) -> old_task.Artifact:
    """Convert an artifact."""
    return old_task.Artifact(
        artifact_id=core.artifact_id,
        name=core.name,
        description=core.description,
        parts=[to_v0_3_part(one) for one in core.parts],
        extensions=core.extensions,
        metadata=find_metadata(core),
    )


def to_v0_3_part(core: part_pb2.Part) -> old_task.Part:
    """Convert a part."""
    made = old_task.Part(metadata=find_metadata(core))
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


def to_v0_3_push_config(
    core: push_notification_pb2.TaskPushNotificationConfig,
) -> old_task.TaskPushNotificationConfig:
    """Convert a webhook, with its resource name."""
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


def to_v0_3_push_configs(
    core: a2a_pb2.ListTaskPushNotificationConfigsResponse,
) -> old.ListTaskPushNotificationConfigResponse:
    """Convert a page of webhooks."""
    return old.ListTaskPushNotificationConfigResponse(
        configs=[to_v0_3_push_config(one) for one in core.configs],
        next_page_token=core.next_page_token,
    )


def _status(core: task_pb2.TaskStatus) -> old_task.TaskStatus:
    # The enums have the same numbers.
    made = old_task.TaskStatus(state=core.state)  # type: ignore[arg-type]
    if core.HasField("message"):
        made.update.CopyFrom(to_v0_3_message(core.message))
    if core.HasField("timestamp"):
        made.timestamp.CopyFrom(core.timestamp)
    return made


def _status_update(core: a2a_pb2.TaskStatusUpdateEvent) -> old_task.TaskStatusUpdateEvent:
    return old_task.TaskStatusUpdateEvent(
        task_id=core.task_id,
        context_id=core.context_id,
        status=_status(core.status),
        final=core.status.state in TURN_END,
        metadata=find_metadata(core),
    )


def _artifact_update(core: a2a_pb2.TaskArtifactUpdateEvent) -> old_task.TaskArtifactUpdateEvent:
    return old_task.TaskArtifactUpdateEvent(
        task_id=core.task_id,
        context_id=core.context_id,
        artifact=to_v0_3_artifact(core.artifact),
        append=core.append,
        last_chunk=core.last_chunk,
        metadata=find_metadata(core),
    )


def _write_data(value: struct_pb2.Value, made: old_task.Part) -> None:
    if value.WhichOneof("kind") == "struct_value":
        made.data.data.CopyFrom(value.struct_value)
    else:
        made.data.data.fields[WRAPPED_VALUE_KEY].CopyFrom(value)
        made.metadata.fields[WRAPPED_DATA_KEY].bool_value = True


def find_metadata(message: _WithMetadata) -> struct_pb2.Struct | None:
    """Return the metadata of a protobuf message; None without it."""
    return message.metadata if message.HasField("metadata") else None
