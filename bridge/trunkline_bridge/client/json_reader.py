"""Reads what a remote agent sends as JSON, v1.0's and v0.3's told apart by their shape.

As a client we are lenient: unknown members are left out, times aren't read at all, states may be
spelled as any version spells them. What has no meaning is a ValueError.
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
# The members of v1.0's events, and what v0.3 calls each.
_KINDS: Final = {
    "task": "task",
    "message": "message",
    "status-update": "statusUpdate",
    "artifact-update": "artifactUpdate",
}
_ARTIFACT: Final = ("artifactId", "name", "description", "metadata", "extensions")


def parse_stream_response(given: object) -> a2a_pb2.StreamResponse:
    """Return an event of a stream, or what SendMessage answers. ValueError: it is none."""
    if not isinstance(given, dict):
        raise ValueError("it is no object")
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
    """Return a task; one that is wrapped, as SendMessage's is, will do. ValueError: it is none."""
    if not isinstance(given, dict):
        raise ValueError("it is no object")
    wrapped = given.get("task")
    with _raise_value_error():
        return _parse(_task(wrapped if isinstance(wrapped, dict) else given), task_pb2.Task())


def _text_piece(given: Json) -> a2a_pb2.StreamResponse | None:
    """Return the most frequent event of v1.0, a piece of text, without the walk through ProtoJSON.

    None: it is something else, or may be.
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
    """The name of a v0.3 object among v1.0's events; where `kind` is missing its members tell."""
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
    # Who speaks is known: it is the remote agent, or in the history of a task of no account.
    if (role := v0_3_input.convert_role(given.get("role"))) in ("ROLE_USER", "ROLE_AGENT"):
        made["role"] = role
    return {**made, "parts": _parts(given.get("parts"))}


def _parts(given: object) -> object:
    """The parts as v1.0 has them: those of v0.3 say what kind they are, or have a `file`."""
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
    """Make whatever is raised for data that isn't as it should be a ValueError, without content."""
    try:
        yield
    except WireError as error:
        raise ValueError(error.text) from None
    except (json_format.ParseError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is not as A2A has it ({_first_words(error)})") from None


def _first_words(error: Exception) -> str:
    """What a parser says, without the content that it may go on to show."""
    return str(error).partition("\n")[0].partition(":")[0][:120]
