"""Writes v1.0's data as A2A's form of ProtoJSON.

Unlike json_format's output, required fields are written even if empty, times have milliseconds,
whole numbers have no fraction, and only necessary characters are escaped.
"""

import base64
from collections.abc import Sequence

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
from trunkline.json_values import message_to_dict, value_json
from trunkline.v1 import (
    agent_card_pb2,
    message_pb2,
    part_pb2,
    push_notification_pb2,
    task_pb2,
)


def task_json(task: task_pb2.Task, *, with_artifacts: bool = False) -> Json:
    """Convert a task; `with_artifacts` writes that member even if it is empty."""
    result: Json = {"id": task.id}
    if task.context_id:
        result["contextId"] = task.context_id
    result["status"] = status_json(task.status)
    if task.artifacts or with_artifacts:
        result["artifacts"] = [
            artifact_members(artifact, write_part=_part) for artifact in task.artifacts
        ]
    if task.history:
        result["history"] = [message_json(message) for message in task.history]
    return add_metadata(result, task)


def task_page_json(page: a2a_pb2.ListTasksResponse, *, with_artifacts: bool = False) -> Json:
    """Convert a page of tasks. `with_artifacts` has the same meaning as in `task_json`."""
    return {
        "tasks": [task_json(task, with_artifacts=with_artifacts) for task in page.tasks],
        "nextPageToken": page.next_page_token,
        "pageSize": page.page_size,
        "totalSize": page.total_size,
    }


def message_json(message: message_pb2.Message) -> Json:
    """Convert a message."""
    return message_members(message, role=message_pb2.Role.Name(message.role), write_part=_part)


def send_params_json(request: a2a_pb2.SendMessageRequest) -> Json:
    """Build the parameters of SendMessage, without the tenant."""
    params: Json = {"message": message_json(request.message)}
    config = request.configuration
    configuration: Json = {"returnImmediately": True} if config.return_immediately else {}
    if config.accepted_output_modes:
        configuration["acceptedOutputModes"] = list(config.accepted_output_modes)
    if configuration:
        params["configuration"] = configuration
    return add_metadata(params, request)


def stream_response_json(response: a2a_pb2.StreamResponse) -> Json:
    """Convert an event of a stream."""
    match response.WhichOneof("payload"):
        case "task":
            return {"task": task_json(response.task)}
        case "message":
            return {"message": message_json(response.message)}
        case "status_update":
            return {"statusUpdate": _status_update(response.status_update)}
        case _:
            return {"artifactUpdate": _artifact_update(response.artifact_update)}


class V1EventWriter:
    """Writes the events of a stream in the JSON of v1.0."""

    text_end = '}]},"append":true}}'
    last_text_end = '}]},"append":true,"lastChunk":true}}'

    def text_start(self, artifact: ArtifactView) -> str:
        """Return the JSON of a text delta before its text."""
        members = {"artifactId": artifact.head.artifact_id}
        if artifact.head.name:
            members["name"] = artifact.head.name
        ids = dumps({"taskId": artifact.task_id, "contextId": artifact.context_id})
        return f'{{"artifactUpdate":{ids[:-1]},"artifact":{dumps(members)[:-1]},"parts":[{{"text":'

    def write_event(self, event: WireEvent) -> Sequence[Json]:
        """Return the JSON of an event except a text delta."""
        return (stream_response_json(event.response),)


def push_config_json(config: push_notification_pb2.TaskPushNotificationConfig) -> Json:
    """Convert a webhook."""
    result: Json = {}
    if config.id:
        result["id"] = config.id
    if config.task_id:
        result["taskId"] = config.task_id
    result["url"] = config.url
    if config.token:
        result["token"] = config.token
    if config.HasField("authentication"):
        result["authentication"] = {"scheme": config.authentication.scheme}
        if config.authentication.credentials:
            result["authentication"]["credentials"] = config.authentication.credentials
    return result


def agent_card_json(card: agent_card_pb2.AgentCard) -> Json:
    """Convert a card, with all the members that A2A requires."""
    result: Json = message_to_dict(card)
    for name in ("name", "description", "version"):
        result.setdefault(name, "")
    for name in ("supportedInterfaces", "defaultInputModes", "defaultOutputModes", "skills"):
        result.setdefault(name, [])
    result.setdefault("capabilities", {})
    for skill in result["skills"]:
        for name in ("id", "name", "description"):
            skill.setdefault(name, "")
        skill.setdefault("tags", [])
    for secured in (result, *result["skills"]):
        for requirement in secured.get("securityRequirements", ()):
            # Some clients read `list` without checking that it exists.
            for scopes in requirement.setdefault("schemes", {}).values():
                scopes.setdefault("list", [])
    return result


def status_json(status: task_pb2.TaskStatus) -> Json:
    """Convert a status."""
    state = task_pb2.TaskState.Name(status.state)
    return status_members(status, state=state, write_message=message_json)


def _part(part: part_pb2.Part) -> Json:
    result: Json = {}
    match part.WhichOneof("content"):
        case "text":
            result["text"] = part.text
        case "raw":
            result["raw"] = base64.b64encode(part.raw).decode("ascii")
        case "url":
            result["url"] = part.url
        case "data":
            result["data"] = value_json(part.data)
    add_metadata(result, part)
    if part.filename:
        result["filename"] = part.filename
    if part.media_type:
        result["mediaType"] = part.media_type
    return result


def _status_update(update: a2a_pb2.TaskStatusUpdateEvent) -> Json:
    result: Json = {
        "taskId": update.task_id,
        "contextId": update.context_id,
        "status": status_json(update.status),
    }
    return add_metadata(result, update)


def _artifact_update(update: a2a_pb2.TaskArtifactUpdateEvent) -> Json:
    result: Json = {
        "taskId": update.task_id,
        "contextId": update.context_id,
        "artifact": artifact_members(update.artifact, write_part=_part),
    }
    if update.append:
        result["append"] = True
    if update.last_chunk:
        result["lastChunk"] = True
    return add_metadata(result, update)
