"""Parses a remote agent's JSON of v1.0 and v0.3, which have different members.

The parser is lenient: it ignores unknown members and timestamps, and accepts the state names of all
versions. Data that is not a message of A2A raises ValueError.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

from google.protobuf.json_format import ParseError

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import WireError
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.v0_3 import json_reader as v0_3_input
from trunkline.json_values import parse_dict
from trunkline.v1 import task_pb2

_Read = TypeVar("_Read", a2a_pb2.StreamResponse, task_pb2.Task)

_PREFIX: Final = "TASK_STATE_"
_SPELLINGS: Final = {"CANCELLED": "CANCELED", "UNKNOWN": "UNSPECIFIED"}
# The `kind` of v0.3's events, and their member names in v1.0.
_KINDS: Final = {
    "task": "task",
    "message": "message",
    "status-update": "statusUpdate",
    "artifact-update": "artifactUpdate",
}
_ARTIFACT: Final = ("artifactId", "name", "description", "metadata", "extensions")
_DELTA_MEMBERS: Final = {"taskId", "contextId", "artifact", "append", "lastChunk"}


def parse_stream_response(value: object) -> a2a_pb2.StreamResponse:
    """Parse an event of a stream, or the response of SendMessage. ValueError: it is invalid."""
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    if (text_delta := _parse_text_delta(value)) is not None:
        return text_delta
    members = {name: value[name] for name in _KINDS.values() if value.get(name) is not None}
    with _raise_value_error():
        result = {
            name: _to_v1_member(name, member)
            for name, member in (members or {_find_kind(value): value}).items()
        }
        return _parse(result, a2a_pb2.StreamResponse())


def parse_task(value: object) -> task_pb2.Task:
    """Parse a task, or the response of SendMessage with a task. ValueError: it is invalid."""
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    wrapped = value.get("task")
    with _raise_value_error():
        return _parse(_task(wrapped if isinstance(wrapped, dict) else value), task_pb2.Task())


def _parse_text_delta(value: Json) -> a2a_pb2.StreamResponse | None:
    """Parse a text delta of v1.0, or return None if the value may be another event.

    A text delta is the most frequent event, and the general parser is slow.
    """
    update = value.get("artifactUpdate")
    if len(value) != 1 or not isinstance(update, dict) or not update.keys() <= _DELTA_MEMBERS:
        return None
    artifact = update.get("artifact")
    if not isinstance(artifact, dict) or not artifact.keys() <= {"artifactId", "name", "parts"}:
        return None
    parts = artifact.get("parts")
    if not isinstance(parts, list) or len(parts) != 1 or not isinstance(parts[0], dict):
        return None
    if parts[0].keys() != {"text"}:
        return None
    response = a2a_pb2.StreamResponse()
    result = response.artifact_update
    try:
        result.task_id, result.context_id = update.get("taskId", ""), update.get("contextId", "")
        result.append, result.last_chunk = (
            update.get("append", False),
            update.get("lastChunk", False),
        )
        result.artifact.artifact_id = artifact.get("artifactId", "")
        result.artifact.name = artifact.get("name", "")
        result.artifact.parts.add(text=parts[0]["text"])
    except (TypeError, ValueError):
        return None
    return response


def _find_kind(value: Json) -> str:
    """Return v1.0's member name for a v0.3 event, by its `kind` or else by its members."""
    kind = value.get("kind")
    if kind is None:
        if "status" in value:
            kind = "status-update" if "taskId" in value else "task"
        elif "artifact" in value:
            kind = "artifact-update"
        elif "parts" in value:
            kind = "message"
    name = _KINDS.get(kind) if isinstance(kind, str) else None
    if name is None:
        raise ValueError("it is neither a task nor a message nor an update of one")
    return name


def _to_v1_member(name: str, value: object) -> object:
    return _READERS[name](value) if isinstance(value, dict) else value


def _task(value: Json) -> Json:
    result = v0_3_input.pick_members(value, ("id", "contextId", "metadata"))
    result["status"] = _status(value.get("status"))
    for name, read in (("artifacts", _artifact), ("history", _message)):
        if isinstance(value.get(name), list):
            result[name] = [read(item) if isinstance(item, dict) else item for item in value[name]]
    return result


def _status(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("its status is missing")
    result: Json = {"state": _state(value.get("state"))}
    if isinstance(value.get("message"), dict):
        result["message"] = _message(value["message"])
    return result


def _state(value: object) -> str:
    if isinstance(value, int) and value in task_pb2.TaskState.values():
        return task_pb2.TaskState.Name(task_pb2.TaskState.ValueType(value))
    word = value.upper().replace("-", "_").removeprefix(_PREFIX) if isinstance(value, str) else ""
    word = _SPELLINGS.get(word, word)
    name = f"{_PREFIX}{word}"
    if name not in task_pb2.TaskState.keys():  # noqa: SIM118  an enum's wrapper is no mapping
        raise ValueError(f"A2A has no state {str(value)[:40]!r}")
    return name


def _status_update(value: Json) -> Json:
    result = v0_3_input.pick_members(value, ("taskId", "contextId", "metadata"))
    return {**result, "status": _status(value.get("status"))}


def _artifact_update(value: Json) -> Json:
    result = v0_3_input.pick_members(
        value, ("taskId", "contextId", "append", "lastChunk", "metadata")
    )
    artifact = value.get("artifact")
    if not isinstance(artifact, dict):
        raise ValueError("its artifact is missing")
    return {**result, "artifact": _artifact(artifact)}


def _artifact(value: Json) -> Json:
    return {**v0_3_input.pick_members(value, _ARTIFACT), "parts": _parts(value.get("parts"))}


def _message(value: Json) -> Json:
    result = v0_3_input.pick_members(
        value, ("messageId", "contextId", "taskId", "metadata", "extensions", "referenceTaskIds")
    )
    # An unknown role is dropped: the sender is the remote agent, and its history is not shown.
    if (role := v0_3_input.convert_role(value.get("role"))) in ("ROLE_USER", "ROLE_AGENT"):
        result["role"] = role
    return {**result, "parts": _parts(value.get("parts"))}


def _parts(value: object) -> object:
    """Convert parts to v1.0's. Parts of v0.3 have a `kind` or a `file`."""
    if not isinstance(value, list):
        return value or []
    if any(isinstance(item, dict) and ("kind" in item or "file" in item) for item in value):
        return v0_3_input.convert_parts(value)
    return value


_READERS: Final[Mapping[str, Callable[[Json], Json]]] = {
    "task": _task,
    "message": _message,
    "statusUpdate": _status_update,
    "artifactUpdate": _artifact_update,
}


def _parse(value: Json, into: _Read) -> _Read:
    return parse_dict(value, into, ignore_unknown_fields=True)


@contextmanager
def _raise_value_error() -> Iterator[None]:
    """Convert errors of the parsers to ValueErrors that show no content."""
    try:
        yield
    except WireError as error:
        raise ValueError(error.text) from None
    except (ParseError, TypeError, RecursionError) as error:
        raise ValueError(f"it does not match the A2A schema ({_first_words(error)})") from None


def _first_words(error: Exception) -> str:
    """Return the start of a parser's message, before any content that it quotes."""
    return str(error).partition("\n")[0].partition(":")[0][:120]
