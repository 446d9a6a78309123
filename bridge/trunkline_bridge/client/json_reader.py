"""Parses a remote agent's JSON, of v1.0 and v0.3, which it tells apart by their shape.

A client reads leniently: unknown members and timestamps are ignored, and states may have the
spelling of any version. Data without a meaning raises ValueError.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

from google.protobuf import json_format

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import task_pb2
from trunkline_bridge.errors import WireError
from trunkline_bridge.versions.json_values import Json
from trunkline_bridge.versions.v0_3 import json_reader as v0_3_input

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


def parse_stream_response(given: object) -> a2a_pb2.StreamResponse:
    """Parse an event of a stream, or the response of SendMessage. ValueError: it is neither."""
    if not isinstance(given, dict):
        raise ValueError("it is not an object")
    if (piece := _text_piece(given)) is not None:
        return piece
    found = {name: given[name] for name in _KINDS.values() if given.get(name) is not None}
    with _raise_value_error():
        made = {
            name: _to_v1_member(name, one)
            for name, one in (found or {_kind_of(given): given}).items()
        }
        return _parse(made, a2a_pb2.StreamResponse())


def parse_task(given: object) -> task_pb2.Task:
    """Parse a task, also one wrapped as in SendMessage's response. ValueError: it is no task."""
    if not isinstance(given, dict):
        raise ValueError("it is not an object")
    wrapped = given.get("task")
    with _raise_value_error():
        return _parse(_task(wrapped if isinstance(wrapped, dict) else given), task_pb2.Task())


def _text_piece(given: Json) -> a2a_pb2.StreamResponse | None:
    """Parse a text delta of v1.0, the most frequent event, without json_format, which is slow.

    None: it is, or may be, another event.
    """
    update = given.get("artifactUpdate")
    if len(given) != 1 or not isinstance(update, dict) or not update.keys() <= _PIECE:
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
    made = response.artifact_update
    try:
        made.task_id, made.context_id = update.get("taskId", ""), update.get("contextId", "")
        made.append, made.last_chunk = update.get("append", False), update.get("lastChunk", False)
        made.artifact.artifact_id = artifact.get("artifactId", "")
        made.artifact.name = artifact.get("name", "")
        made.artifact.parts.add(text=parts[0]["text"])
    except (TypeError, ValueError):
        return None
    return response


_PIECE: Final = {"taskId", "contextId", "artifact", "append", "lastChunk"}


def _kind_of(given: Json) -> str:
    """Return the v1.0 name of a v0.3 event, by its `kind` or else by its members."""
    kind = given.get("kind")
    if kind is None:
        if "status" in given:
            kind = "status-update" if "taskId" in given else "task"
        elif "artifact" in given:
            kind = "artifact-update"
        elif "parts" in given:
            kind = "message"
    name = _KINDS.get(kind) if isinstance(kind, str) else None
    if name is None:
        raise ValueError("it is neither a task nor a message nor an update of one")
    return name


def _to_v1_member(name: str, given: object) -> object:
    return _READERS[name](given) if isinstance(given, dict) else given


def _task(given: Json) -> Json:
    made = v0_3_input.pick_members(given, ("id", "contextId", "metadata"))
    made["status"] = _status(given.get("status"))
    for name, read in (("artifacts", _artifact), ("history", _message)):
        if isinstance(given.get(name), list):
            made[name] = [read(one) if isinstance(one, dict) else one for one in given[name]]
    return made


def _status(given: object) -> object:
    if not isinstance(given, dict):
        raise ValueError("its status is missing")
    made: Json = {"state": _state(given.get("state"))}
    if isinstance(given.get("message"), dict):
        made["message"] = _message(given["message"])
    return made


def _state(given: object) -> str:
    if isinstance(given, int) and given in task_pb2.TaskState.values():
        return task_pb2.TaskState.Name(task_pb2.TaskState.ValueType(given))
    word = given.upper().replace("-", "_").removeprefix(_PREFIX) if isinstance(given, str) else ""
    word = _SPELLINGS.get(word, word)
    name = f"{_PREFIX}{word}"
    if name not in task_pb2.TaskState.keys():  # noqa: SIM118  an enum's wrapper is no mapping
        raise ValueError(f"A2A has no state {str(given)[:40]!r}")
    return name


def _status_update(given: Json) -> Json:
    made = v0_3_input.pick_members(given, ("taskId", "contextId", "metadata"))
    return {**made, "status": _status(given.get("status"))}


def _artifact_update(given: Json) -> Json:
    made = v0_3_input.pick_members(
        given, ("taskId", "contextId", "append", "lastChunk", "metadata")
    )
    artifact = given.get("artifact")
    if not isinstance(artifact, dict):
        raise ValueError("its artifact is missing")
    return {**made, "artifact": _artifact(artifact)}


def _artifact(given: Json) -> Json:
    return {**v0_3_input.pick_members(given, _ARTIFACT), "parts": _parts(given.get("parts"))}


def _message(given: Json) -> Json:
    made = v0_3_input.pick_members(
        given, ("messageId", "contextId", "taskId", "metadata", "extensions", "referenceTaskIds")
    )
    # An unknown role is dropped: the sender is the remote agent, and its history is not shown.
    if (role := v0_3_input.convert_role(given.get("role"))) in ("ROLE_USER", "ROLE_AGENT"):
        made["role"] = role
    return {**made, "parts": _parts(given.get("parts"))}


def _parts(given: object) -> object:
    """Convert parts to v1.0's shape. Parts of v0.3 have a `kind` or a `file`."""
    if not isinstance(given, list):
        return given or []
    if any(isinstance(one, dict) and ("kind" in one or "file" in one) for one in given):
        return v0_3_input.convert_parts(given)
    return given


_READERS: Final[Mapping[str, Callable[[Json], Json]]] = {
    "task": _task,
    "message": _message,
    "statusUpdate": _status_update,
    "artifactUpdate": _artifact_update,
}


def _parse(given: Json, into: _Read) -> _Read:
    return json_format.ParseDict(given, into, ignore_unknown_fields=True)


@contextmanager
def _raise_value_error() -> Iterator[None]:
    """Convert errors of the parsers to ValueErrors that show no content."""
    try:
        yield
    except WireError as error:
        raise ValueError(error.text) from None
    except (json_format.ParseError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it does not match the A2A schema ({_first_words(error)})") from None


def _first_words(error: Exception) -> str:
    """Return the start of a parser's message, before any content that it quotes."""
    return str(error).partition("\n")[0].partition(":")[0][:120]
