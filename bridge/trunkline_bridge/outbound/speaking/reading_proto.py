"""Reads what a remote agent sends as A2A v0.3's protobuf messages."""

from trunkline.a2a.v0_3 import a2a_pb2 as old
from trunkline.a2a.v0_3 import task_pb2 as old_task
from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import artifact_pb2, task_pb2
from trunkline_bridge.wire.v0_3_proto import core_message, core_part


def core_task(given: old_task.Task) -> task_pb2.Task:
    """Return a task."""
    made = task_pb2.Task(
        id=given.id,
        context_id=given.context_id,
        status=_core_status(given.status),
        artifacts=[_core_artifact(one) for one in given.artifacts],
        history=[core_message(one) for one in given.history],
    )
    if given.HasField("metadata"):
        made.metadata.CopyFrom(given.metadata)
    return made


def core_response(given: old.StreamResponse) -> a2a_pb2.StreamResponse:
    """Return an event of a stream; without any of the four, as one that holds nothing."""
    made = a2a_pb2.StreamResponse()
    match given.WhichOneof("payload"):
        case "task":
            made.task.CopyFrom(core_task(given.task))
        case "msg":
            made.message.CopyFrom(core_message(given.msg))
        case "status_update":
            update = given.status_update
            made.status_update.task_id = update.task_id
            made.status_update.context_id = update.context_id
            made.status_update.status.CopyFrom(_core_status(update.status))
            if update.HasField("metadata"):
                made.status_update.metadata.CopyFrom(update.metadata)
        case "artifact_update":
            _read_artifact_update(given.artifact_update, made.artifact_update)
    return made


def core_answer(given: old.SendMessageResponse) -> a2a_pb2.StreamResponse:
    """Return what SendMessage answers."""
    made = a2a_pb2.StreamResponse()
    match given.WhichOneof("payload"):
        case "task":
            made.task.CopyFrom(core_task(given.task))
        case "msg":
            made.message.CopyFrom(core_message(given.msg))
    return made


def old_send(
    request: a2a_pb2.SendMessageRequest, message: old_task.Message
) -> old.SendMessageRequest:
    """Return SendMessage's request; `message` is the request's, as v0.3 has it."""
    made = old.SendMessageRequest(request=message)
    made.configuration.accepted_output_modes.extend(request.configuration.accepted_output_modes)
    made.configuration.blocking = not request.configuration.return_immediately
    if request.HasField("metadata"):
        made.metadata.CopyFrom(request.metadata)
    return made


def _read_artifact_update(
    given: old_task.TaskArtifactUpdateEvent, made: a2a_pb2.TaskArtifactUpdateEvent
) -> None:
    made.task_id, made.context_id = given.task_id, given.context_id
    made.artifact.CopyFrom(_core_artifact(given.artifact))
    made.append, made.last_chunk = given.append, given.last_chunk
    if given.HasField("metadata"):
        made.metadata.CopyFrom(given.metadata)


def _core_status(given: old_task.TaskStatus) -> task_pb2.TaskStatus:
    # The same numbers; one has another name.
    made = task_pb2.TaskStatus(state=given.state)  # type: ignore[arg-type]
    if given.HasField("update"):
        made.message.CopyFrom(core_message(given.update))
    return made


def _core_artifact(given: old_task.Artifact) -> artifact_pb2.Artifact:
    made = artifact_pb2.Artifact(
        artifact_id=given.artifact_id,
        name=given.name,
        description=given.description,
        parts=[core_part(one) for one in given.parts],
        extensions=given.extensions,
    )
    if given.HasField("metadata"):
        made.metadata.CopyFrom(given.metadata)
    return made
