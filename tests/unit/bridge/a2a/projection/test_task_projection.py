"""Tests of the projection beyond its vectors: history length, snapshots, unknown artifacts."""

import pytest

from trunkline.v1 import artifact_pb2, event_pb2, snapshot_pb2, task_pb2
from trunkline_bridge.a2a.projection import (
    EventId,
    FullEvent,
    TaskProjection,
    TextDelta,
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


def test_history_length_selects_the_latest_messages_in_order() -> None:
    snapshot = snapshot_with()
    lengths = {
        length: [
            message.message_id for message in project_task(snapshot, history_length=length).history
        ]
        for length in (None, 0, 1, 2, 3, 50)
    }
    assert lengths == {
        None: ["m-0", "m-1", "m-2"],
        0: [],
        1: ["m-2"],
        2: ["m-1", "m-2"],
        3: ["m-0", "m-1", "m-2"],
        50: ["m-0", "m-1", "m-2"],
    }


def test_artifacts_can_be_omitted() -> None:
    snapshot = snapshot_with(artifact_pb2.Artifact(artifact_id="artifact-1"))
    assert len(project_task(snapshot).artifacts) == 1
    assert not project_task(snapshot, include_artifacts=False).artifacts


def test_an_empty_artifact_has_one_empty_text() -> None:
    snapshot = snapshot_with(artifact_pb2.Artifact(artifact_id="artifact-1"))
    (artifact,) = project_task(snapshot).artifacts
    assert [part.WhichOneof("content") for part in artifact.parts] == ["text"]


def test_pieces_after_a_snapshot_have_the_artifacts_name() -> None:
    artifact = artifact_pb2.Artifact(artifact_id="artifact-1", name="report")
    projection = TaskProjection(snapshot_with(artifact))
    (piece,) = projection.apply(batch(10, delta("more")))
    assert isinstance(piece, TextDelta)
    update = piece.response.artifact_update
    assert (update.artifact.name, update.append, update.last_chunk) == ("report", True, False)


def test_pieces_after_a_rewind_have_the_remaining_name() -> None:
    artifact = artifact_pb2.Artifact(artifact_id="artifact-1", name="before")
    projection = TaskProjection(snapshot_with(artifact))
    remains = artifact_pb2.Artifact(artifact_id="artifact-1", name="after")
    rewound = event_pb2.Event(rewound=event_pb2.ArtifactRewound(remains=remains))
    events = projection.apply(batch(10, rewound, delta("anew")))
    assert [event.response.artifact_update.artifact.name for event in events] == ["after", "after"]


def test_an_append_to_an_unknown_artifact_creates_it() -> None:
    (event,) = TaskProjection().apply(batch(5, delta("text")))
    update = event.response.artifact_update
    assert (update.artifact.artifact_id, update.append) == ("artifact-1", False)


def test_an_artifact_closed_without_content_has_one_empty_text() -> None:
    (event,) = TaskProjection().apply(batch(5, delta(last=True)))
    update = event.response.artifact_update
    assert [part.text for part in update.artifact.parts] == [""]
    assert update.last_chunk


def test_each_text_of_a_run_has_its_own_sequence() -> None:
    artifact = artifact_pb2.Artifact(artifact_id="artifact-1")
    projection = TaskProjection(snapshot_with(artifact))
    events = projection.apply(batch(10, delta("a", "b", "c", last=True), delta("d")))
    assert [event.id for event in events] == ["10.0", "11.0", "12.0", "13.0"]
    lasts = [event.response.artifact_update.last_chunk for event in events]
    assert lasts == [False, False, True, False]


def test_a_status_without_a_time_has_the_time_of_its_commit() -> None:
    status_batch = batch(5, event_pb2.Event(status=event_pb2.StatusChanged()))
    status_batch.header.time.seconds = 77
    (event,) = TaskProjection().apply(status_batch)
    assert event.response.status_update.status.timestamp.seconds == 77


def test_decisions_children_and_turns_have_no_wire_events() -> None:
    hidden_events = [
        event_pb2.Event(route_decided=event_pb2.RouteDecided(agent="math")),
        event_pb2.Event(child_started=event_pb2.ChildStarted(task_id="jrnl0001-child")),
        event_pb2.Event(child_finished=event_pb2.ChildFinished(task_id="jrnl0001-child")),
        event_pb2.Event(turn_started=event_pb2.TurnStarted(turn=2)),
        event_pb2.Event(approval_requested=event_pb2.ApprovalRequested(approval_id="a")),
        event_pb2.Event(approval_answered=event_pb2.ApprovalAnswered(approval_id="a")),
        event_pb2.Event(),
    ]
    projection = TaskProjection(snapshot_with(artifact_pb2.Artifact(artifact_id="artifact-1")))
    (event,) = projection.apply(batch(10, *hidden_events, delta("loud")))
    assert event.sequence == 10 + len(hidden_events)


def forwarded(kind: event_pb2.ArtifactKind.ValueType, *texts: str) -> event_pb2.EventBatch:
    """Build a batch that a child supervisor wrote, as the parent's journal holds it."""
    event = delta(*texts)
    event.delta.start.kind = kind
    forwarded_batch = batch(10, event)
    forwarded_batch.header.origin.agent = "research"
    forwarded_batch.header.origin.task_id = "jrnl0002-child"
    return forwarded_batch


def test_a_synthesis_of_a_child_supervisor_is_hidden() -> None:
    projection = TaskProjection(snapshot_with())
    assert projection.apply(forwarded(event_pb2.ARTIFACT_KIND_SYNTHESIS, "all", " of it")) == []
    more = forwarded(event_pb2.ARTIFACT_KIND_SYNTHESIS, "again")
    more.events[0].delta.ClearField("start")
    assert projection.apply(more) == []
    remains = artifact_pb2.Artifact(artifact_id="artifact-1")
    more.events[0].rewound.CopyFrom(event_pb2.ArtifactRewound(remains=remains))
    assert projection.apply(more) == []
    own = event_pb2.ARTIFACT_KIND_ANSWER
    assert [event.sequence for event in projection.apply(forwarded(own, "a", "b"))] == [10, 11]


def test_a_snapshot_omits_the_synthesis_of_a_child_supervisor() -> None:
    snapshot = snapshot_with(
        artifact_pb2.Artifact(artifact_id="artifact-1"),
        artifact_pb2.Artifact(artifact_id="artifact-2"),
    )
    for info in snapshot.artifacts:
        info.kind = event_pb2.ARTIFACT_KIND_SYNTHESIS
    snapshot.artifacts[1].origin.task_id = "jrnl0002-child"
    assert [artifact.artifact_id for artifact in project_task(snapshot).artifacts] == ["artifact-1"]
    later = forwarded(event_pb2.ARTIFACT_KIND_SYNTHESIS, "more")
    later.events[0].delta.ClearField("start")
    later.events[0].delta.artifact_id = "artifact-2"
    assert TaskProjection(snapshot).apply(later) == []


def test_the_text_of_a_plan_is_sent_when_it_is_finished() -> None:
    projection = TaskProjection(snapshot_with())
    steps = [event_pb2.PlanStep(step_id="1", text="add")]
    streamed = event_pb2.PlanChanged(plan_id="p", revision=1, texts=["1. ", "add"])
    whole = event_pb2.PlanChanged(plan_id="p", revision=1, steps=steps)
    changes = [event_pb2.Event(plan=streamed), event_pb2.Event(plan=whole)]
    update = projection.apply(batch(10, *changes))[-1]
    assert isinstance(update, FullEvent)
    assert update.response.artifact_update.artifact.parts[0].text == "\u27e61. add\u27e7"


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
