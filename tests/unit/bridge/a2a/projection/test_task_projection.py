"""Tests of the projection beyond its vectors: unknown and empty artifacts, ids of events."""

import pytest

from trunkline.v1 import artifact_pb2, event_pb2, snapshot_pb2, task_pb2
from trunkline_bridge.a2a.projection import (
    EventId,
    TaskProjection,
    project_task,
)


def snapshot_with(*artifacts: artifact_pb2.Artifact) -> snapshot_pb2.TaskSnapshot:
    snapshot = snapshot_pb2.TaskSnapshot(sequence=9, agent="tested")
    snapshot.task.id = "jrnl0001-task"
    snapshot.task.context_id = "ctx"
    snapshot.task.status.state = task_pb2.TASK_STATE_WORKING
    for number in range(3):
        snapshot.task.history.add(message_id=f"m-{number}")
    for artifact in artifacts:
        snapshot.task.artifacts.append(artifact)
        snapshot.artifacts.add(artifact_id=artifact.artifact_id, first_sequence=3)
    return snapshot


def batch(first_sequence: int, *events: event_pb2.Event) -> event_pb2.EventBatch:
    header = event_pb2.BatchHeader(task_id="jrnl0001-task", first_sequence=first_sequence)
    return event_pb2.EventBatch(header=header, events=events)


def delta(*texts: str, last: bool = False) -> event_pb2.Event:
    content = event_pb2.ArtifactDelta(artifact_id="artifact-1", texts=texts, last=last)
    return event_pb2.Event(delta=content)


def test_an_empty_artifact_has_one_empty_text() -> None:
    snapshot = snapshot_with(artifact_pb2.Artifact(artifact_id="artifact-1"))
    (artifact,) = project_task(snapshot).artifacts
    assert [part.WhichOneof("content") for part in artifact.parts] == ["text"]


def test_an_append_to_an_unknown_artifact_creates_it() -> None:
    (event,) = TaskProjection().apply(batch(5, delta("text")))
    update = event.response.artifact_update
    assert (update.artifact.artifact_id, update.append) == ("artifact-1", False)


def test_event_ids_contain_the_journals_epoch() -> None:
    projection = TaskProjection(snapshot_with(artifact_pb2.Artifact(artifact_id="artifact-1")))
    first, second = (
        batch(10, delta("a")),
        batch(11, delta("b"), event_pb2.Event(tool_started=event_pb2.ToolStarted())),
    )
    first.header.epoch, second.header.epoch = 1, 3
    events = [*projection.apply(first), *projection.apply(second)]
    assert [event.id for event in events] == ["10.0", "11.0-3", "12.0-3"]
    assert [EventId.parse(event.id) for event in events] == [(10, 0, 1), (11, 0, 3), (12, 0, 3)]


@pytest.mark.parametrize(
    "text", ["", "1", "0.0", "1.0-0", "1.0-", "1.0-01", "-1.0", "1.0-1-1", "٣.0"]
)
def test_an_invalid_event_id_is_none(text: str) -> None:
    assert EventId.parse(text) is None
