"""Writes core data as the JSON of A2A v0.1.

Artifacts have an index instead of an id, messages have no id, and events have no `kind`. The client
chooses the task's id. A context is called a session.
"""

from collections.abc import Mapping, Sequence

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.json_values import Json, add_metadata, dumps, status_members
from trunkline.a2a_wire.named_artifacts import TOOL_START, tool_complete_id
from trunkline.a2a_wire.roles import ArtifactRole, set_role
from trunkline.a2a_wire.v0_3 import json_writer as v0_3_json
from trunkline.a2a_wire.wire_events import V0_1_TURN_END, ArtifactView, WireEvent
from trunkline.v1 import artifact_pb2, message_pb2, push_notification_pb2, task_pb2

# v0.1 has fewer states; a later one is written as the nearest.
_STATE_NAMES: Mapping[task_pb2.TaskState.ValueType, str] = {
    **v0_3_json.STATE_NAMES,
    task_pb2.TASK_STATE_REJECTED: "failed",
    task_pb2.TASK_STATE_AUTH_REQUIRED: "input-required",
}


class ArtifactIndexes:
    """The indexes of a task's artifacts: 0 for the first; an artifact's index never changes.

    The indexes must be the same in a stream and in the task. The artifact for the end of a tool
    call follows that for its start in the task, but comes later in a stream. So the start reserves
    the index of the end.
    """

    def __init__(self) -> None:
        self._indexes: dict[str, int] = {}

    def find_or_assign(self, artifact: artifact_pb2.Artifact) -> int:
        """Return the index of an artifact; assign the next one if it is new."""
        artifact_id = artifact.artifact_id
        index = self._indexes.get(artifact_id)
        if index is None:
            index = self._indexes[artifact_id] = len(self._indexes)
            if artifact.name == TOOL_START:
                self._indexes[tool_complete_id(artifact_id)] = index + 1
        return index


def send_params_json(message: message_pb2.Message, *, client_id: str) -> Json:
    """Build the parameters of tasks/send."""
    params: Json = {"id": client_id}
    if message.context_id:
        params["sessionId"] = message.context_id
    return {**params, "message": _message(message)}


def task_json(task: task_pb2.Task, *, client_id: str) -> Json:
    """Convert a task."""
    result: Json = {
        "id": client_id,
        "sessionId": task.context_id,
        "status": _status(task.status),
    }
    if task.artifacts:
        indexes = ArtifactIndexes()
        result["artifacts"] = [
            _artifact(artifact, indexes.find_or_assign(artifact)) for artifact in task.artifacts
        ]
    if task.history:
        result["history"] = [_message(message) for message in task.history]
    return add_metadata(result, task)


def reply_task_json(message: message_pb2.Message, *, client_id: str) -> Json:
    """Convert a direct reply to a completed task, because every reply in v0.1 has a task."""
    return {
        "id": client_id,
        "sessionId": message.context_id,
        "status": _reply_status(message),
        "artifacts": [_artifact(_reply_artifact(message), 0)],
    }


def push_config_json(
    config: push_notification_pb2.TaskPushNotificationConfig, *, client_id: str
) -> Json:
    """Convert a webhook; a task has only one, so it has no id."""
    webhook = v0_3_json.webhook_json(config)
    webhook.pop("id", None)
    return {"id": client_id, "pushNotificationConfig": webhook}


class V01EventWriter:
    """Writes the events of one stream in the JSON of v0.1.

    A status that ends the turn is `final`: a stream of v0.1 ends there.
    """

    text_end = "}]}}"
    last_text_end = '}],"lastChunk":true}}'

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self._indexes = ArtifactIndexes()

    def assign_indexes(self, message: task_pb2.Task) -> None:
        """Assign indexes to the artifacts that precede the first event of the stream."""
        for artifact in message.artifacts:
            self._indexes.find_or_assign(artifact)

    def text_start(self, artifact: ArtifactView) -> str:
        """Return the JSON of a text delta before its text."""
        content: Json = {"name": artifact.head.name} if artifact.head.name else {}
        content |= {"index": self._indexes.find_or_assign(artifact.head), "append": True}
        text = '"parts":[{"type":"text","text":'
        return f'{dumps({"id": self.client_id})[:-1]},"artifact":{dumps(content)[:-1]},{text}'

    def write_event(self, event: WireEvent) -> Sequence[Json]:
        """Return the JSON of an event except a text delta.

        A snapshot and a direct reply become several objects.
        """
        response = event.response
        match response.WhichOneof("payload"):
            case "task":
                return list(self._snapshot(response.task))
            case "message":
                return self._reply(response.message)
            case "status_update":
                update = response.status_update
                return (add_metadata(self._status(update.status), update),)
            case _:
                return (self._update(response.artifact_update),)

    def _snapshot(self, message: task_pb2.Task) -> Sequence[Json]:
        events = [] if message.status.state in V0_1_TURN_END else [self._status(message.status)]
        for artifact in message.artifacts:
            content = _artifact(artifact, self._indexes.find_or_assign(artifact))
            events.append({"id": self.client_id, "artifact": content})
        return events

    def _reply(self, message: message_pb2.Message) -> Sequence[Json]:
        content = _artifact(_reply_artifact(message), 0, last=True)
        return (
            {"id": self.client_id, "artifact": content},
            {"id": self.client_id, "status": _reply_status(message), "final": True},
        )

    def _status(self, status: task_pb2.TaskStatus) -> Json:
        is_final = status.state in V0_1_TURN_END
        return {"id": self.client_id, "status": _status(status), "final": is_final}

    def _update(self, update: a2a_pb2.TaskArtifactUpdateEvent) -> Json:
        index = self._indexes.find_or_assign(update.artifact)
        content = _artifact(update.artifact, index, append=update.append, last=update.last_chunk)
        result: Json = {"id": self.client_id, "artifact": content}
        return add_metadata(result, update)


def _status(status: task_pb2.TaskStatus) -> Json:
    return status_members(status, state=_STATE_NAMES[status.state], write_message=_message)


def _reply_status(message: message_pb2.Message) -> Json:
    return {"state": _STATE_NAMES[task_pb2.TASK_STATE_COMPLETED], "message": _message(message)}


def _reply_artifact(message: message_pb2.Message) -> artifact_pb2.Artifact:
    return set_role(artifact_pb2.Artifact(parts=message.parts), ArtifactRole.ANSWER)


def _message(message: message_pb2.Message) -> Json:
    parts = [v0_3_json.part_json(part, kind_key="type") for part in message.parts]
    return add_metadata({"role": v0_3_json.role_name(message), "parts": parts}, message)


def _artifact(
    artifact: artifact_pb2.Artifact, index: int, *, append: bool = False, last: bool = False
) -> Json:
    result: Json = {}
    if artifact.name:
        result["name"] = artifact.name
    if artifact.description:
        result["description"] = artifact.description
    result["index"] = index
    if append:
        result["append"] = True
    result["parts"] = [v0_3_json.part_json(part, kind_key="type") for part in artifact.parts]
    if last:
        result["lastChunk"] = True
    return add_metadata(result, artifact)
