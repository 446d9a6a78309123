"""Writes core data as the JSON of v0.3 and v0.2: `kind`, lower-case states, `final`.

The media type and file name of texts and of data are omitted, because v0.3 doesn't have them.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.json_values import (
    Json,
    add_metadata,
    artifact_members,
    dumps,
    message_members,
    status_members,
)
from trunkline.a2a_wire.wire_events import ArtifactView, WireEvent
from trunkline.json_values import struct_json, value_json
from trunkline.task_states import TURN_END
from trunkline.v1 import message_pb2, part_pb2, push_notification_pb2, task_pb2

STATE_NAMES: Mapping[task_pb2.TaskState.ValueType, str] = {
    task_pb2.TASK_STATE_UNSPECIFIED: "unknown",
    task_pb2.TASK_STATE_SUBMITTED: "submitted",
    task_pb2.TASK_STATE_WORKING: "working",
    task_pb2.TASK_STATE_COMPLETED: "completed",
    task_pb2.TASK_STATE_FAILED: "failed",
    task_pb2.TASK_STATE_CANCELED: "canceled",
    task_pb2.TASK_STATE_INPUT_REQUIRED: "input-required",
    task_pb2.TASK_STATE_REJECTED: "rejected",
    task_pb2.TASK_STATE_AUTH_REQUIRED: "auth-required",
}
# v0.3 requires an object as data. Other data is wrapped in one, with this mark in the metadata, and
# unwrapped when it is read.
WRAPPED_DATA_KEY = "data_part_compat"
WRAPPED_VALUE_KEY = "value"

# The member that names the kind of a part: `kind` since v0.2, `type` in v0.1.
PartKindKey: TypeAlias = Literal["kind", "type"]


def task_json(task: task_pb2.Task) -> Json:
    """Convert a task."""
    result: Json = {
        "kind": "task",
        "id": task.id,
        "contextId": task.context_id,
        "status": _status(task.status),
    }
    if task.artifacts:
        result["artifacts"] = [
            artifact_members(artifact, write_part=part_json) for artifact in task.artifacts
        ]
    if task.history:
        result["history"] = [message_json(message) for message in task.history]
    return add_metadata(result, task)


def message_json(message: message_pb2.Message) -> Json:
    """Convert a message."""
    return {
        "kind": "message",
        **message_members(message, role=role_name(message), write_part=part_json),
    }


def role_name(message: message_pb2.Message) -> str:
    """Return the name of a message's role."""
    return "user" if message.role == message_pb2.ROLE_USER else "agent"


def part_json(part: part_pb2.Part, *, kind_key: PartKindKey = "kind") -> Json:
    """Convert a part."""
    match part.WhichOneof("content"):
        case "raw":
            content = {"bytes": base64.b64encode(part.raw).decode("ascii")}
            result: Json = {kind_key: "file", "file": _file(content, part)}
        case "url":
            result = {kind_key: "file", "file": _file({"uri": part.url}, part)}
        case "data":
            data = value_json(part.data)
            if not isinstance(data, dict):
                metadata = {**struct_json(part.metadata), WRAPPED_DATA_KEY: True}
                return {kind_key: "data", "data": {WRAPPED_VALUE_KEY: data}, "metadata": metadata}
            result = {kind_key: "data", "data": data}
        case _:
            result = {kind_key: "text", "text": part.text}
    return add_metadata(result, part)


def send_params_json(request: a2a_pb2.SendMessageRequest) -> Json:
    """Build the parameters of message/send."""
    config = request.configuration
    configuration: Json = {"blocking": not config.return_immediately}
    if config.accepted_output_modes:
        configuration["acceptedOutputModes"] = list(config.accepted_output_modes)
    params: Json = {"message": message_json(request.message), "configuration": configuration}
    return add_metadata(params, request)


def stream_response_json(response: a2a_pb2.StreamResponse) -> Json:
    """Convert an event of a stream."""
    match response.WhichOneof("payload"):
        case "task":
            return task_json(response.task)
        case "message":
            return message_json(response.message)
        case "status_update":
            return _status_update(response.status_update)
        case _:
            return _artifact_update(response.artifact_update)


def push_config_json(config: push_notification_pb2.TaskPushNotificationConfig) -> Json:
    """Convert a webhook."""
    return {"taskId": config.task_id, "pushNotificationConfig": webhook_json(config)}


def webhook_json(config: push_notification_pb2.TaskPushNotificationConfig) -> Json:
    """Convert a webhook without its task."""
    result: Json = {}
    if config.id:
        result["id"] = config.id
    result["url"] = config.url
    if config.token:
        result["token"] = config.token
    if config.HasField("authentication"):
        authentication = config.authentication
        members: Json = {"schemes": [authentication.scheme] if authentication.scheme else []}
        if authentication.credentials:
            members["credentials"] = authentication.credentials
        result["authentication"] = members
    return result


class V03EventWriter:
    """Writes the events of a stream in the JSON of v0.3.

    A status that ends the turn is `final`: a stream of v0.3 ends there.
    """

    text_end = '}]},"append":true,"lastChunk":false}'
    last_text_end = '}]},"append":true,"lastChunk":true}'

    def text_start(self, artifact: ArtifactView) -> str:
        """Return the JSON of a text delta before its text."""
        members = {"artifactId": artifact.head.artifact_id}
        if artifact.head.name:
            members["name"] = artifact.head.name
        ids = {
            "kind": "artifact-update",
            "taskId": artifact.task_id,
            "contextId": artifact.context_id,
        }
        text = '"parts":[{"kind":"text","text":'
        return f'{dumps(ids)[:-1]},"artifact":{dumps(members)[:-1]},{text}'

    def write_event(self, event: WireEvent) -> Sequence[Json]:
        """Return the JSON of an event except a text delta."""
        return (stream_response_json(event.response),)


def _file(content: Json, part: part_pb2.Part) -> Json:
    if part.filename:
        content["name"] = part.filename
    if part.media_type:
        content["mimeType"] = part.media_type
    return content


def _status(status: task_pb2.TaskStatus) -> Json:
    return status_members(status, state=STATE_NAMES[status.state], write_message=message_json)


def _status_update(update: a2a_pb2.TaskStatusUpdateEvent) -> Json:
    result: Json = {
        "kind": "status-update",
        "taskId": update.task_id,
        "contextId": update.context_id,
        "status": _status(update.status),
        "final": update.status.state in TURN_END,
    }
    return add_metadata(result, update)


def _artifact_update(update: a2a_pb2.TaskArtifactUpdateEvent) -> Json:
    result: Json = {
        "kind": "artifact-update",
        "taskId": update.task_id,
        "contextId": update.context_id,
        "artifact": artifact_members(update.artifact, write_part=part_json),
        "append": update.append,
        "lastChunk": update.last_chunk,
    }
    return add_metadata(result, update)
