"""Projects a task's snapshot to the Task that A2A clients see."""

from collections.abc import Iterator

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import artifact_pb2, event_pb2, snapshot_pb2, task_pb2
from trunkline_bridge.projection import named_artifacts as views
from trunkline_bridge.projection.links import RELATIVE_LINKS, FileLinks
from trunkline_bridge.projection.wire_events import FullEvent


def project_task(
    snapshot: snapshot_pb2.TaskSnapshot,
    *,
    history_length: int | None = None,
    include_artifacts: bool = True,
    links: FileLinks = RELATIVE_LINKS,
) -> task_pb2.Task:
    """Return the task of a snapshot, with the artifacts that clients see.

    A client that applied every event up to `snapshot.sequence` has the same artifacts and status.

    Args:
        snapshot: The state of the task at one event of its journal.
        history_length: Number of the latest messages to include; None includes all.
        include_artifacts: False omits the artifacts.
        links: Replaces references to files by URLs.
    """
    source = snapshot.task
    task = task_pb2.Task(id=source.id, context_id=source.context_id)
    task.status.CopyFrom(source.status)
    history = source.history if history_length is None else source.history[-history_length:]
    task.history.extend([] if history_length == 0 else history)
    if source.HasField("metadata"):
        task.metadata.CopyFrom(source.metadata)
    if include_artifacts:
        task.artifacts.extend(_artifacts(snapshot))
    return links.task_to_urls(task)


def snapshot_event(
    snapshot: snapshot_pb2.TaskSnapshot,
    *,
    history_length: int | None = None,
    links: FileLinks = RELATIVE_LINKS,
) -> FullEvent:
    """Return the event that has the whole task: the first one of a stream that is not resumed."""
    task = project_task(snapshot, history_length=history_length, links=links)
    response = a2a_pb2.StreamResponse(task=task)
    return FullEvent(snapshot.sequence, 0, response, snapshot.epoch or 1)


def has_answer(snapshot: snapshot_pb2.TaskSnapshot) -> bool:
    """Return whether the task itself, not a child, has begun an answer."""
    return any(
        info.kind == event_pb2.ARTIFACT_KIND_ANSWER and not info.HasField("origin")
        for info in snapshot.artifacts
    )


def count_final_events(snapshot: snapshot_pb2.TaskSnapshot) -> int:
    """Return the number of wire events into which a task's last status is projected."""
    is_completed = snapshot.task.status.state == task_pb2.TASK_STATE_COMPLETED
    return 2 if is_completed and has_answer(snapshot) else 1


def _artifacts(snapshot: snapshot_pb2.TaskSnapshot) -> list[artifact_pb2.Artifact]:
    """Return the artifacts that clients see, in the order of their first event."""
    by_sequence = [
        *_written_artifacts(snapshot),
        *_plan_artifacts(snapshot),
        *_tool_artifacts(snapshot),
    ]
    artifacts = [artifact for _, artifact in sorted(by_sequence, key=lambda entry: entry[0])]
    state = snapshot.task.status.state
    if state == task_pb2.TASK_STATE_COMPLETED and has_answer(snapshot):
        artifacts.append(views.current_result_artifact())
    return artifacts


def _written_artifacts(
    snapshot: snapshot_pb2.TaskSnapshot,
) -> Iterator[tuple[int, artifact_pb2.Artifact]]:
    """Yield the artifacts that agents wrote, each with the sequence of its first event."""
    steps = views.child_steps(snapshot)
    for source, info in zip(snapshot.task.artifacts, snapshot.artifacts, strict=True):
        origin = info.origin if info.HasField("origin") else None
        if not views.is_shown(info.kind, origin):
            continue
        artifact = views.artifact_head(source, info.kind, origin, steps)
        artifact.parts.extend(source.parts)
        if not artifact.parts:
            # A2A requires at least one part.
            artifact.parts.add(text="")
        yield info.first_sequence, artifact


def _plan_artifacts(
    snapshot: snapshot_pb2.TaskSnapshot,
) -> Iterator[tuple[int, artifact_pb2.Artifact]]:
    for plan in snapshot.plans:
        artifact = artifact_pb2.Artifact(artifact_id=plan.plan_id)
        if plan.steps:
            artifact.name = views.PLAN_UPDATE
            artifact.parts.add(text=views.whole_plan(plan.text, plan.steps))
        else:
            artifact.name = views.PLAN_STREAMING
            artifact.parts.add(text=views.PLAN_OPENING + plan.text)
        yield plan.first_sequence, artifact


def _tool_artifacts(
    snapshot: snapshot_pb2.TaskSnapshot,
) -> Iterator[tuple[int, artifact_pb2.Artifact]]:
    for call in snapshot.tool_calls:
        yield call.first_sequence, views.tool_start_artifact(call.started)
        if call.HasField("finished"):
            yield call.first_sequence, views.tool_complete_artifact(call.finished)
