"""The roles of artifacts and the outcome of a task, in streams and in stored tasks alike."""

from collections.abc import Sequence

import pytest

from trunkline.a2a_wire.roles import artifact_kind
from trunkline.core.json_values import read_member, read_text, update_struct
from trunkline.journal.fold import Fold
from trunkline.v1 import artifact_pb2, event_pb2, message_pb2, task_pb2
from trunkline_bridge.a2a.projection import TaskProjection, project_task

TASK = "jrnl0001-task"
PROGRESS = event_pb2.ARTIFACT_KIND_PROGRESS
ANSWER = event_pb2.ARTIFACT_KIND_ANSWER
UNNAMED = event_pb2.ARTIFACT_KIND_UNSPECIFIED


def created() -> event_pb2.Event:
    message = message_pb2.Message(message_id="m-1", role=message_pb2.ROLE_USER)
    return event_pb2.Event(created=event_pb2.TaskCreated(context_id="c", message=message))


def turn(number: int) -> event_pb2.Event:
    message = message_pb2.Message(message_id=f"m-{number}", role=message_pb2.ROLE_USER)
    return event_pb2.Event(turn_started=event_pb2.TurnStarted(message=message, turn=number))


def begin(artifact_id: str, kind: event_pb2.ArtifactKind.ValueType = UNNAMED) -> event_pb2.Event:
    start = event_pb2.ArtifactStart(name=artifact_id, kind=kind)
    delta = event_pb2.ArtifactDelta(artifact_id=artifact_id, start=start, texts=["x"])
    return event_pb2.Event(delta=delta)


def status(state: task_pb2.TaskState.ValueType, outcome: str = "") -> event_pb2.Event:
    changed = event_pb2.StatusChanged(status=task_pb2.TaskStatus(state=state))
    if outcome:
        update_struct(changed.metadata, {"trunkline/outcome": outcome})
    return event_pb2.Event(status=changed)


def seal(events: Sequence[event_pb2.Event]) -> list[event_pb2.EventBatch]:
    return [
        event_pb2.EventBatch(
            header=event_pb2.BatchHeader(task_id=TASK, epoch=1, first_sequence=number, count=1),
            events=[event],
        )
        for number, event in enumerate(events, start=1)
    ]


def role_of(artifact: artifact_pb2.Artifact) -> str:
    return read_text(artifact.metadata, "trunkline/role")


def roles_at_each_event(*events: event_pb2.Event) -> dict[str, str]:
    """Return the roles by artifact id; those of the stream equal those of the stored task."""
    fold, projection = Fold(TASK), TaskProjection()
    streamed: dict[str, str] = {}
    for batch in seal(events):
        resumed = TaskProjection(fold.snapshot()) if fold.sequence else TaskProjection()
        fold.apply(batch)
        wire = [event.response for event in projection.apply(batch)]
        assert [event.response for event in resumed.apply(batch)] == wire
        for response in wire:
            update = response.artifact_update
            if update.artifact.artifact_id and not update.append:
                artifact = update.artifact
                streamed[artifact.artifact_id] = role_of(artifact)
        stored = {
            artifact.artifact_id: role_of(artifact)
            for artifact in project_task(fold.snapshot()).artifacts
        }
        assert stored == streamed
    return streamed


def test_each_turn_has_its_answer() -> None:
    events = [
        created(),
        begin("first", ANSWER),
        status(task_pb2.TASK_STATE_INPUT_REQUIRED),
        turn(2),
        begin("second", ANSWER),
        begin("third"),
        status(task_pb2.TASK_STATE_COMPLETED),
    ]
    assert roles_at_each_event(*events) == {
        "first": "answer",
        "second": "answer",
        "third": "stream",
        "current_result": "notice",
    }


@pytest.mark.parametrize(
    ("state", "said", "expected"),
    [
        (task_pb2.TASK_STATE_COMPLETED, "", "complete"),
        (task_pb2.TASK_STATE_COMPLETED, "partial", "partial"),
        (task_pb2.TASK_STATE_COMPLETED, "perfect", "complete"),
        (task_pb2.TASK_STATE_FAILED, "partial", "failed"),
        (task_pb2.TASK_STATE_REJECTED, "", "failed"),
        (task_pb2.TASK_STATE_CANCELED, "", "failed"),
        (task_pb2.TASK_STATE_WORKING, "", None),
        (task_pb2.TASK_STATE_INPUT_REQUIRED, "", None),
    ],
)
def test_the_last_status_and_the_task_say_the_outcome(
    state: task_pb2.TaskState.ValueType, said: str, expected: str | None
) -> None:
    fold, projection = Fold(TASK), TaskProjection()
    for batch in seal([created(), status(state, said)]):
        fold.apply(batch)
        *_, last = projection.apply(batch)
    for metadata in (last.response.status_update.metadata, project_task(fold.snapshot()).metadata):
        assert read_member(metadata, "trunkline/outcome") == expected


@pytest.mark.parametrize(
    ("name", "role", "kind"),
    [
        ("anything", "plan", event_pb2.ARTIFACT_KIND_PLAN),
        ("anything", "notice", event_pb2.ARTIFACT_KIND_NOTICE),
        ("anything", "stream", PROGRESS),
        ("execution_plan_update", "answer", UNNAMED),
        ("anything", "of another kind", UNNAMED),
        ("execution_plan_update", "", event_pb2.ARTIFACT_KIND_PLAN),
        ("partial_result", "", event_pb2.ARTIFACT_KIND_SYNTHESIS),
        ("report", "", UNNAMED),
    ],
)
def test_a_remote_agents_artifact_has_the_kind_of_its_role_or_name(
    name: str, role: str, kind: event_pb2.ArtifactKind.ValueType
) -> None:
    artifact = artifact_pb2.Artifact(artifact_id="a", name=name)
    if role:
        update_struct(artifact.metadata, {"trunkline/role": role})
    assert artifact_kind(artifact) == kind
