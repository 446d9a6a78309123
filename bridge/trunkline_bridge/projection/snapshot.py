"""Projects a task's snapshot to the Task that A2A clients see."""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a.v1_1 import a2a_pb2 as v1_1_pb2
from trunkline.v1 import artifact_pb2, event_pb2, snapshot_pb2, task_pb2
from trunkline_bridge.projection import named_artifacts as views
from trunkline_bridge.projection.links import RELATIVE_LINKS, FileLinks
from trunkline_bridge.projection.plain_answer import (
    View,
    count_plain_final_events,
    plain_artifacts,
)
from trunkline_bridge.projection.roles import RoleAssigner, set_task_outcome
from trunkline_bridge.projection.wire_events import FullEvent

AnyTask: TypeAlias = task_pb2.Task | v1_1_pb2.Task
"""A task as clients see it, in A2A 1.0 and before, or in 1.1."""


class GenerationParameters(NamedTuple):
    """The parameters that A2A 1.1 adds to requests."""

    current: int | None = None
    """GetTask: answer as soon as the task has a higher generation."""
    expected: int | None = None
    """SendMessage: only if the existing task has this generation."""
    timeline_length: int | None = None
    """The number of the latest entries of the timeline to return; None: all."""


class _ShownArtifact(NamedTuple):
    """An artifact that clients see, with the task's generations at its first event and its end."""

    first_sequence: int
    artifact: artifact_pb2.Artifact
    start_generation: int
    end_generation: int


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
    artifacts = _shown_artifacts(snapshot, view) if include_artifacts else []
    return _project(snapshot, artifacts, history_length=history_length, links=links)


def project_versioned_task(
    snapshot: snapshot_pb2.TaskSnapshot,
    generations: GenerationParameters | None,
    *,
    history_length: int | None = None,
    include_artifacts: bool = True,
    links: FileLinks = RELATIVE_LINKS,
    view: View = View.DETAILED,
) -> AnyTask:
    """Return the task as `project_task` does, and in A2A 1.1 with its generations and timeline.

    `generations` is None in versions before 1.1, and only they have the plain view.
    """
    artifacts = _shown_artifacts(snapshot, view) if include_artifacts else []
    core = _project(snapshot, artifacts, history_length=history_length, links=links)
    if generations is None:
        return core
    # The message of 1.1 has the fields of 1.0 and more.
    task = v1_1_pb2.Task.FromString(core.SerializeToString())
    task.generation = snapshot.generation
    for artifact, shown in zip(task.artifacts, artifacts, strict=True):
        artifact.start_generation = shown.start_generation
        artifact.end_generation = shown.end_generation
    _add_timeline(task, snapshot, generations.timeline_length, links)
    return task


def core_task(task: AnyTask) -> task_pb2.Task:
    """Return a task that was projected for a version before 1.1."""
    if not isinstance(task, task_pb2.Task):
        raise TypeError("the task is of A2A 1.1")
    return task


def _project(
    snapshot: snapshot_pb2.TaskSnapshot,
    artifacts: list[_ShownArtifact],
    *,
    history_length: int | None,
    links: FileLinks,
) -> task_pb2.Task:
    source = snapshot.task
    task = task_pb2.Task(id=source.id, context_id=source.context_id)
    task.status.CopyFrom(source.status)
    history = source.history if history_length is None else source.history[-history_length:]
    task.history.extend([] if history_length == 0 else history)
    if source.HasField("metadata"):
        task.metadata.CopyFrom(source.metadata)
    set_task_outcome(task)
    task.artifacts.extend(shown.artifact for shown in artifacts)
    return links.task_to_urls(task)


def _add_timeline(
    task: v1_1_pb2.Task,
    snapshot: snapshot_pb2.TaskSnapshot,
    length: int | None,
    links: FileLinks,
) -> None:
    entries = snapshot.timeline
    begin = 0 if length is None else max(0, len(entries) - length)
    for entry in entries[begin:]:
        added = task.timeline.add(generation=entry.generation)
        if entry.HasField("status"):
            added.status.CopyFrom(entry.status)
            links.to_urls(added.status.message.parts)
        else:
            added.message.CopyFrom(snapshot.task.history[entry.message_index])
            links.to_urls(added.message.parts)


def snapshot_event(
    snapshot: snapshot_pb2.TaskSnapshot,
    *,
    history_length: int | None = None,
    links: FileLinks = RELATIVE_LINKS,
    generations: GenerationParameters | None = None,
    view: View = View.DETAILED,
) -> FullEvent:
    """Return the event that has the whole task: the first one of a stream that is not resumed."""
    task = project_versioned_task(
        snapshot, generations, history_length=history_length, links=links, view=view
    )
    sequence, epoch = snapshot.sequence, snapshot.epoch or 1
    if isinstance(task, task_pb2.Task):
        return FullEvent(sequence, 0, a2a_pb2.StreamResponse(task=task), epoch)
    head = task_pb2.Task(id=task.id, context_id=task.context_id, status=task.status)
    offset = task.generation - sequence if task.generation else None
    return FullEvent(sequence, 0, a2a_pb2.StreamResponse(task=head), epoch, offset, task)


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


def _shown_artifacts(snapshot: snapshot_pb2.TaskSnapshot, view: View) -> list[_ShownArtifact]:
    """Return the artifacts that clients see, in the order of their first event."""
    if view is View.PLAIN:
        # Only A2A 1.1, which has no plain view, needs sequences and generations.
        return [_ShownArtifact(0, artifact, 0, 0) for artifact in plain_artifacts(snapshot)]
    by_sequence = [
        *_written_artifacts(snapshot),
        *_plan_artifacts(snapshot),
        *_tool_artifacts(snapshot),
    ]
    artifacts = sorted(by_sequence, key=lambda shown: shown.first_sequence)
    state = snapshot.task.status.state
    if state == task_pb2.TASK_STATE_COMPLETED and has_answer(snapshot):
        # Its event is the one before the task's last.
        generation = max(0, snapshot.generation - 1)
        result = views.current_result_artifact()
        artifacts.append(_ShownArtifact(snapshot.sequence, result, generation, generation))
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
        yield _ShownArtifact(
            info.first_sequence, artifact, info.start_generation, info.end_generation
        )


def _plan_artifacts(snapshot: snapshot_pb2.TaskSnapshot) -> Iterator[_ShownArtifact]:
    for plan in snapshot.plans:
        name = views.PLAN_UPDATE if plan.steps else views.PLAN_STREAMING
        artifact = views.plan_artifact(plan.plan_id, name)
        if plan.steps:
            artifact.parts.add(text=views.whole_plan(plan.text, plan.steps))
        else:
            artifact.parts.add(text=views.PLAN_OPENING + plan.text)
        yield _ShownArtifact(
            plan.first_sequence, artifact, plan.start_generation, plan.end_generation
        )


def _tool_artifacts(snapshot: snapshot_pb2.TaskSnapshot) -> Iterator[_ShownArtifact]:
    """Yield the notifications of tool calls. Each is complete with its first event."""
    for call in snapshot.tool_calls:
        start = views.tool_start_artifact(call.started)
        generation = call.start_generation
        yield _ShownArtifact(call.first_sequence, start, generation, generation)
        if call.HasField("finished"):
            complete = views.tool_complete_artifact(call.finished)
            generation = call.end_generation
            yield _ShownArtifact(call.first_sequence, complete, generation, generation)
