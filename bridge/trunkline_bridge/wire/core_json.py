"""What A2A v1.0 and v0.3 write alike: the members of messages, artifacts and statuses."""

from collections.abc import Callable
from typing import TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import artifact_pb2, message_pb2, part_pb2, task_pb2
from trunkline_bridge.wire.json_values import Json, struct, timestamp

WritePart: TypeAlias = Callable[[part_pb2.Part], Json]
WriteMessage: TypeAlias = Callable[[message_pb2.Message], Json]
_WithMetadata: TypeAlias = (
    a2a_pb2.SendMessageRequest
    | task_pb2.Task
    | message_pb2.Message
    | part_pb2.Part
    | artifact_pb2.Artifact
    | a2a_pb2.TaskStatusUpdateEvent
    | a2a_pb2.TaskArtifactUpdateEvent
)


def message_members(message: message_pb2.Message, *, role: str, part: WritePart) -> Json:
    """Return a message's members; `role` is who speaks, in the version's word."""
    result: Json = {"messageId": message.message_id}
    if message.context_id:
        result["contextId"] = message.context_id
    if message.task_id:
        result["taskId"] = message.task_id
    result["role"] = role
    result["parts"] = [part(one) for one in message.parts]
    add_metadata(result, message)
    if message.extensions:
        result["extensions"] = list(message.extensions)
    if message.reference_task_ids:
        result["referenceTaskIds"] = list(message.reference_task_ids)
    return result


def artifact_members(artifact: artifact_pb2.Artifact, *, part: WritePart) -> Json:
    """Return an artifact's members."""
    result: Json = {"artifactId": artifact.artifact_id}
    if artifact.name:
        result["name"] = artifact.name
    if artifact.description:
        result["description"] = artifact.description
    result["parts"] = [part(one) for one in artifact.parts]
    add_metadata(result, artifact)
    if artifact.extensions:
        result["extensions"] = list(artifact.extensions)
    return result


def status_members(status: task_pb2.TaskStatus, *, state: str, message: WriteMessage) -> Json:
    """Return a status's members; `state` is its state, in the version's word."""
    result: Json = {"state": state}
    if status.HasField("message"):
        result["message"] = message(status.message)
    if status.HasField("timestamp"):
        result["timestamp"] = timestamp(status.timestamp)
    return result


def add_metadata(result: Json, message: _WithMetadata) -> Json:
    """Put the metadata of a message into its JSON; return that."""
    if message.HasField("metadata"):
        result["metadata"] = struct(message.metadata)
    return result
