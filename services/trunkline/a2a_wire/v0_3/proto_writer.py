"""Converts the core model to protobuf messages of v0.3, without fields that only v1.0 has.

gRPC sends these messages; HTTP+JSON sends them as ProtoJSON.
"""

import base64
from typing import TypeAlias

from trunkline.a2a.v0_3 import a2a_pb2 as v0_3_pb2
from trunkline.a2a.v0_3 import task_pb2 as v0_3_task_pb2
from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.v0_3.json_writer import WRAPPED_DATA_KEY, WRAPPED_VALUE_KEY
from trunkline.core.json_values import update_struct
from trunkline.core.task_states import TURN_END
from trunkline.v1 import (
    artifact_pb2,
    json_pb2,
    message_pb2,
    part_pb2,
    push_notification_pb2,
    task_pb2,
)

_WithMetadata: TypeAlias = (
    a2a_pb2.SendMessageRequest
    | a2a_pb2.TaskStatusUpdateEvent
    | a2a_pb2.TaskArtifactUpdateEvent
    | artifact_pb2.Artifact
    | message_pb2.Message
    | part_pb2.Part
    | task_pb2.Task
    | v0_3_pb2.SendMessageRequest
    | v0_3_task_pb2.Artifact
    | v0_3_task_pb2.Message
    | v0_3_task_pb2.Part
    | v0_3_task_pb2.Task
    | v0_3_task_pb2.TaskArtifactUpdateEvent
    | v0_3_task_pb2.TaskStatusUpdateEvent
)


def to_v0_3_send_response(
    result: task_pb2.Task | message_pb2.Message,
) -> v0_3_pb2.SendMessageResponse:
    """Convert the result of SendMessage to its response."""
    if isinstance(result, message_pb2.Message):
        return v0_3_pb2.SendMessageResponse(msg=to_v0_3_message(result))
    return v0_3_pb2.SendMessageResponse(task=to_v0_3_task(result))


def to_v0_3_stream_response(core: a2a_pb2.StreamResponse) -> v0_3_pb2.StreamResponse:
    """Convert an event of a stream."""
    match core.WhichOneof("payload"):
        case "task":
            return v0_3_pb2.StreamResponse(task=to_v0_3_task(core.task))
        case "message":
            return v0_3_pb2.StreamResponse(msg=to_v0_3_message(core.message))
        case "status_update":
            return v0_3_pb2.StreamResponse(status_update=_status_update(core.status_update))
        case _:
            return v0_3_pb2.StreamResponse(artifact_update=_artifact_update(core.artifact_update))


def to_v0_3_task(core: task_pb2.Task) -> v0_3_task_pb2.Task:
    """Convert a task."""
    return v0_3_task_pb2.Task(
        id=core.id,
        context_id=core.context_id,
        status=_status(core.status),
        artifacts=[to_v0_3_artifact(artifact) for artifact in core.artifacts],
        history=[to_v0_3_message(message) for message in core.history],
        metadata=find_metadata(core),
    )


def to_v0_3_message(core: message_pb2.Message) -> v0_3_task_pb2.Message:
    """Convert a message."""
    return v0_3_task_pb2.Message(
        message_id=core.message_id,
        context_id=core.context_id,
        task_id=core.task_id,
        role=core.role,  # type: ignore[arg-type] # the same numbers
        content=[to_v0_3_part(part) for part in core.parts],
        extensions=core.extensions,
        metadata=find_metadata(core),
    )


def to_v0_3_artifact(core: artifact_pb2.Artifact) -> v0_3_task_pb2.Artifact:
    """Convert an artifact."""
    return v0_3_task_pb2.Artifact(
        artifact_id=core.artifact_id,
        name=core.name,
        description=core.description,
        parts=[to_v0_3_part(part) for part in core.parts],
        extensions=core.extensions,
        metadata=find_metadata(core),
    )


def to_v0_3_part(core: part_pb2.Part) -> v0_3_task_pb2.Part:
    """Convert a part."""
    result = v0_3_task_pb2.Part(metadata=find_metadata(core))
    match core.WhichOneof("content"):
        case "text":
            result.text = core.text
        case "raw":
            result.file.file_with_bytes = base64.b64encode(core.raw)
        case "url":
            result.file.file_with_uri = core.url
        case "data":
            _write_data(core.data, result)
    if result.HasField("file"):
        result.file.mime_type = core.media_type
        result.file.name = core.filename
    return result


def to_v0_3_push_config(
    core: push_notification_pb2.TaskPushNotificationConfig,
) -> v0_3_task_pb2.TaskPushNotificationConfig:
    """Convert a webhook, with its resource name."""
    result = v0_3_task_pb2.TaskPushNotificationConfig(
        name=f"tasks/{core.task_id}/pushNotificationConfigs/{core.id}"
    )
    inner = result.push_notification_config
    inner.id, inner.url, inner.token = core.id, core.url, core.token
    if core.HasField("authentication"):
        if core.authentication.scheme:
            inner.authentication.schemes.append(core.authentication.scheme)
        inner.authentication.credentials = core.authentication.credentials
    return result


def to_v0_3_push_configs(
    core: a2a_pb2.ListTaskPushNotificationConfigsResponse,
) -> v0_3_pb2.ListTaskPushNotificationConfigResponse:
    """Convert a page of webhooks."""
    return v0_3_pb2.ListTaskPushNotificationConfigResponse(
        configs=[to_v0_3_push_config(config) for config in core.configs],
        next_page_token=core.next_page_token,
    )


def _status(core: task_pb2.TaskStatus) -> v0_3_task_pb2.TaskStatus:
    # The enums have the same numbers.
    result = v0_3_task_pb2.TaskStatus(state=core.state)  # type: ignore[arg-type]
    if core.HasField("message"):
        result.update.CopyFrom(to_v0_3_message(core.message))
    if core.HasField("timestamp"):
        result.timestamp.CopyFrom(core.timestamp)
    return result


def _status_update(core: a2a_pb2.TaskStatusUpdateEvent) -> v0_3_task_pb2.TaskStatusUpdateEvent:
    return v0_3_task_pb2.TaskStatusUpdateEvent(
        task_id=core.task_id,
        context_id=core.context_id,
        status=_status(core.status),
        final=core.status.state in TURN_END,
        metadata=find_metadata(core),
    )


def _artifact_update(
    core: a2a_pb2.TaskArtifactUpdateEvent,
) -> v0_3_task_pb2.TaskArtifactUpdateEvent:
    return v0_3_task_pb2.TaskArtifactUpdateEvent(
        task_id=core.task_id,
        context_id=core.context_id,
        artifact=to_v0_3_artifact(core.artifact),
        append=core.append,
        last_chunk=core.last_chunk,
        metadata=find_metadata(core),
    )


def _write_data(value: json_pb2.Value, result: v0_3_task_pb2.Part) -> None:
    if value.WhichOneof("kind") == "struct_value":
        result.data.data.CopyFrom(value.struct_value)
    else:
        result.data.data.members.add(key=WRAPPED_VALUE_KEY, value=value)
        update_struct(result.metadata, {WRAPPED_DATA_KEY: True})


def find_metadata(message: _WithMetadata) -> json_pb2.Struct | None:
    """Return the metadata of a protobuf message; None if it has none."""
    return message.metadata if message.HasField("metadata") else None
