"""JSON for all A2A versions: compact encoding, times, and members that versions share."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias

from google.protobuf import timestamp_pb2

from trunkline.a2a.v1 import a2a_pb2
from trunkline.core.json_values import struct_json
from trunkline.v1 import artifact_pb2, message_pb2, part_pb2, task_pb2

Json: TypeAlias = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Some readers of event streams (with Python's str.splitlines, for example) end a line at these,
# against the standard. The json module doesn't escape them.
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_LINE_END = re.compile("[\x85\u2028\u2029]")
_ENCODE = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode


def dumps(value: object) -> str:
    """Encode a value as compact JSON in Unicode, on one line."""
    return escape_line_ends(_ENCODE(value))


def escape_line_ends(text: str) -> str:
    """Escape the characters of a JSON text that a reader may interpret as a line end."""
    # The cheap checks come first: most text is ASCII, and most other text has no line end.
    if text.isascii() or _LINE_END.search(text) is None:
        return text
    return text.translate(_LINE_ENDS)


def format_timestamp(time: timestamp_pb2.Timestamp) -> str:
    """Format a time in UTC with milliseconds."""
    return f"{_second(time.seconds)}.{time.nanos // 1_000_000:03d}Z"


# Most times are in the last few seconds.
@lru_cache(maxsize=128)
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


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


def message_members(message: message_pb2.Message, *, role: str, write_part: WritePart) -> Json:
    """Return the members of a message; `role` is the version's name of its role."""
    result: Json = {"messageId": message.message_id}
    if message.context_id:
        result["contextId"] = message.context_id
    if message.task_id:
        result["taskId"] = message.task_id
    result["role"] = role
    result["parts"] = [write_part(part) for part in message.parts]
    add_metadata(result, message)
    if message.extensions:
        result["extensions"] = list(message.extensions)
    if message.reference_task_ids:
        result["referenceTaskIds"] = list(message.reference_task_ids)
    return result


def artifact_members(artifact: artifact_pb2.Artifact, *, write_part: WritePart) -> Json:
    """Return the members of an artifact."""
    result: Json = {"artifactId": artifact.artifact_id}
    if artifact.name:
        result["name"] = artifact.name
    if artifact.description:
        result["description"] = artifact.description
    result["parts"] = [write_part(part) for part in artifact.parts]
    add_metadata(result, artifact)
    if artifact.extensions:
        result["extensions"] = list(artifact.extensions)
    return result


def status_members(status: task_pb2.TaskStatus, *, state: str, write_message: WriteMessage) -> Json:
    """Return the members of a status; `state` is the version's name of its state."""
    result: Json = {"state": state}
    if status.HasField("message"):
        result["message"] = write_message(status.message)
    if status.HasField("timestamp"):
        result["timestamp"] = format_timestamp(status.timestamp)
    return result


def add_metadata(result: Json, message: _WithMetadata) -> Json:
    """Add the metadata of a protobuf message to its JSON; return the JSON."""
    if message.HasField("metadata"):
        result["metadata"] = struct_json(message.metadata)
    return result
