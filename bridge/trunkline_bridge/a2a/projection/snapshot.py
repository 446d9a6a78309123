"""Projects a task's snapshot to the Task that A2A clients see."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire import named_artifacts as views
from trunkline.a2a_wire.roles import RoleAssigner, set_task_outcome
from trunkline.a2a_wire.wire_events import FullEvent
from trunkline.v1 import artifact_pb2, event_pb2, snapshot_pb2, task_pb2
from trunkline_bridge.a2a.projection.links import RELATIVE_LINKS, FileLinks
from trunkline_bridge.a2a.projection.plain_answer import (
    View,
    count_plain_final_events,
    plain_artifacts,
)


class _ShownArtifact(NamedTuple):
    """An artifact that clients see, with the sequence of its first event."""

    first_sequence: int
    artifact: artifact_pb2.Artifact


def project_task(
    snapshot: snapshot_pb2.TaskSnapshot,
    *,
    history_length: int | None = None,
    include_artifacts: bool = True,
    links: FileLinks = RELATIVE_LINKS,
    view: View = View.DETAILED,
) -> task_pb2.Task:
    """Return the task of a snapshot, with the artifacts that clients see.

    A client that applied every event up to `snapshot.sequence` has the same artifacts and status.

    Args:
        snapshot: The state of the task at one event of its journal.
        history_length: Number of the latest messages to include; None includes all.
        include_artifacts: False omits the artifacts.
        links: Replaces references to files by URLs.
        view: What clients see.
    """
    source = snapshot.task
    task = task_pb2.Task(id=source.id, context_id=source.context_id)
    task.status.CopyFrom(source.status)
    history = source.history if history_length is None else source.history[-history_length:]
    task.history.extend([] if history_length == 0 else history)
    if source.HasField("metadata"):
        task.metadata.CopyFrom(source.metadata)
    set_task_outcome(task)
    if include_artifacts:
        task.artifacts.extend(_list_artifacts(snapshot, view))
    return links.task_to_urls(task)


def snapshot_event(
    snapshot: snapshot_pb2.TaskSnapshot,
    *,
    history_length: int | None = None,
    links: FileLinks = RELATIVE_LINKS,
    view: View = View.DETAILED,
) -> FullEvent:
    """Return the event that has the whole task: the first one of a stream that is not resumed."""
    task = project_task(snapshot, history_length=history_length, links=links, view=view)
    response = a2a_pb2.StreamResponse(task=task)
    return FullEvent(snapshot.sequence, 0, response, snapshot.epoch or 1)


def has_answer(snapshot: snapshot_pb2.TaskSnapshot) -> bool:
    """Return whether the task itself, not a child, has begun an answer."""
    return any(
        info.kind == event_pb2.ARTIFACT_KIND_ANSWER and not info.HasField("origin")
        for info in snapshot.artifacts
    )


def count_final_events(snapshot: snapshot_pb2.TaskSnapshot, view: View = View.DETAILED) -> int:
    """Return the number of wire events into which a task's last status is projected."""
    if view is View.PLAIN:
        return count_plain_final_events(snapshot)
    is_completed = snapshot.task.status.state == task_pb2.TASK_STATE_COMPLETED
    return 2 if is_completed and has_answer(snapshot) else 1


def _list_artifacts(
    snapshot: snapshot_pb2.TaskSnapshot, view: View
) -> Iterable[artifact_pb2.Artifact]:
    """Return the artifacts that clients see, in the order of their first event."""
    if view is View.PLAIN:
        return plain_artifacts(snapshot)
    by_sequence = [
        *_written_artifacts(snapshot),
        *_plan_artifacts(snapshot),
        *_tool_artifacts(snapshot),
    ]
    by_sequence.sort(key=lambda shown: shown.first_sequence)
    artifacts = [shown.artifact for shown in by_sequence]
    state = snapshot.task.status.state
    if state == task_pb2.TASK_STATE_COMPLETED and has_answer(snapshot):
        # Its event is the one before the task's last.
        artifacts.append(views.current_result_artifact())
    return artifacts


def _written_artifacts(snapshot: snapshot_pb2.TaskSnapshot) -> Iterator[_ShownArtifact]:
    """Yield the artifacts that agents wrote."""
    steps = views.child_steps(snapshot)
    roles = RoleAssigner()
    for source, info in zip(snapshot.task.artifacts, snapshot.artifacts, strict=True):
        origin = info.origin if info.HasField("origin") else None
        if not views.is_shown(info.kind, origin):
            continue
        role = roles.assign(info.kind, origin, info.turn)
        artifact = views.artifact_head(source, info.kind, origin, steps, role)
        artifact.parts.extend(source.parts)
        if not artifact.parts:
            # A2A requires at least one part.
            artifact.parts.add(text="")
        yield _ShownArtifact(info.first_sequence, artifact)


def _plan_artifacts(snapshot: snapshot_pb2.TaskSnapshot) -> Iterator[_ShownArtifact]:
    for plan in snapshot.plans:
        name = views.PLAN_UPDATE if plan.steps else views.PLAN_STREAMING
        artifact = views.plan_artifact(plan.plan_id, name)
        if plan.steps:
            artifact.parts.add(text=views.whole_plan(plan.text, plan.steps))
        else:
            artifact.parts.add(text=views.PLAN_OPENING + plan.text)
        yield _ShownArtifact(plan.first_sequence, artifact)


def _tool_artifacts(snapshot: snapshot_pb2.TaskSnapshot) -> Iterator[_ShownArtifact]:
    """Yield the notifications of tool calls. Each is complete with its first event."""
    for call in snapshot.tool_calls:
        start = views.tool_start_artifact(call.started)
        yield _ShownArtifact(call.first_sequence, start)
        if call.HasField("finished"):
            complete = views.tool_complete_artifact(call.finished)
            yield _ShownArtifact(call.first_sequence, complete)
