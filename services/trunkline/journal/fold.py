"""Folds a task's events into its snapshot, which clients see and from which hosts recover it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, Self

from google.protobuf import timestamp_pb2

from trunkline.core import json_values
from trunkline.core.parts import is_plain_text
from trunkline.core.task_states import INTERRUPTED, TERMINAL
from trunkline.errors import InvalidAgentResponseError
from trunkline.journal.events import EventKind, event_count, event_kind
from trunkline.v1 import artifact_pb2, event_pb2, json_pb2, part_pb2, snapshot_pb2, task_pb2


class ArtifactFold:
    """An artifact that grows by deltas. Texts are joined only when it is read.

    Adjacent parts that have only text are joined into one part. Two artifacts are therefore equal
    if their joined texts are equal.
    """

    def __init__(self, artifact: artifact_pb2.Artifact, info: snapshot_pb2.ArtifactInfo) -> None:
        """Continue an artifact of a snapshot. Both messages are copied."""
        self.info: snapshot_pb2.ArtifactInfo = snapshot_pb2.ArtifactInfo()
        self.info.CopyFrom(info)
        self.is_closed: bool = info.closed
        self._artifact = artifact_pb2.Artifact()
        self._artifact.CopyFrom(artifact)
        # The texts of the last part, if it has only text. If this is None, the next text begins a
        # part.
        self._texts: list[str] | None = None
        parts = self._artifact.parts
        if parts and is_plain_text(parts[-1]):
            self._texts = [parts.pop().text]

    @classmethod
    def empty(
        cls, artifact_id: str, first_sequence: int, origin: event_pb2.Origin | None, *, turn: int
    ) -> Self:
        """Return an artifact without content."""
        info = snapshot_pb2.ArtifactInfo(
            artifact_id=artifact_id, first_sequence=first_sequence, origin=origin, turn=turn
        )
        return cls(artifact_pb2.Artifact(artifact_id=artifact_id), info)

    @property
    def can_restart(self) -> bool:
        """It has no content and is open, so a repeated turn may create it again after a rewind."""
        return not self._artifact.parts and self._texts is None and not self.is_closed

    def start(self, start: event_pb2.ArtifactStart) -> None:
        """Set the artifact's name, kind and other metadata, which its first delta has."""
        artifact = self._artifact
        artifact.name = start.name
        artifact.description = start.description
        del artifact.extensions[:]
        artifact.extensions.extend(start.extensions)
        artifact.ClearField("metadata")
        if start.HasField("metadata"):
            artifact.metadata.CopyFrom(start.metadata)
        self.info.kind = start.kind

    def apply(self, delta: event_pb2.ArtifactDelta) -> None:
        """Add the content of a delta."""
        if delta.texts:
            self.add_texts(delta.texts)
        elif delta.HasField("part"):
            self._add_part(delta.part)
        if delta.last:
            self._close()

    def add_texts(self, texts: Iterable[str], *, last: bool = False) -> None:
        """Add texts; with `last`, close the artifact. This is the fast path of `apply`."""
        if self._texts is None:
            self._texts = []
        self._texts.extend(texts)
        if last:
            self._close()

    def rewind(self, remains: artifact_pb2.Artifact) -> None:
        """Replace the content by the remaining artifact, and accept appends again."""
        self._artifact.CopyFrom(remains)
        del self._artifact.parts[:]
        self._texts = None
        for part in remains.parts:
            self._add_part(part)
        self.is_closed = self.info.closed = False

    def artifact(self) -> artifact_pb2.Artifact:
        """Return the artifact with its texts joined."""
        if self._texts is None:
            return self._artifact
        self._texts = ["".join(self._texts)]
        whole = artifact_pb2.Artifact()
        whole.CopyFrom(self._artifact)
        whole.parts.add(text=self._texts[0])
        return whole

    def _close(self) -> None:
        self.is_closed = self.info.closed = True

    def _add_part(self, part: part_pb2.Part) -> None:
        if is_plain_text(part):
            self.add_texts((part.text,))
            return
        if self._texts is not None:
            self._artifact.parts.add(text="".join(self._texts))
            self._texts = None
        self._artifact.parts.append(part)


ROUTE_KEY: Final = "trunkline/route"


def merge_metadata(metadata: json_pb2.Struct, event: event_pb2.Event) -> None:
    """Merge the metadata of an event into the metadata of its task.

    Metadata of a status replaces keys of the same name. The router's first decision is stored under
    ROUTE_KEY. From the second decision on, it also has the key `steps`, the list of all decisions.
    """
    if event.HasField("status"):
        json_values.merge_struct(metadata, event.status.metadata)
    elif event.HasField("route_decided"):
        _add_route(metadata, event.route_decided)


def _add_route(metadata: json_pb2.Struct, route: event_pb2.RouteDecided) -> None:
    decision = _route_to_dict(route)
    first = json_values.read_member(metadata, ROUTE_KEY)
    if first is not None:
        steps = first.pop("steps", None) or [dict(first)]
        decision = {**first, "steps": [*steps, decision]}
    json_values.update_struct(metadata, {ROUTE_KEY: decision})


def _route_to_dict(route: event_pb2.RouteDecided) -> Mapping[str, Any]:
    return {
        "agent": route.agent,
        "confidence": route.confidence,
        "reasons": list(route.reasons),
        "scores": [
            {
                "agent": score.agent,
                "score": score.score,
                "confidence": score.confidence,
                "reasons": list(score.reasons),
            }
            for score in route.scores
        ],
    }


_ONLY_DELTAS: Final = EventKind.DELTA.bit
_NO_HEADER: Final = event_pb2.BatchHeader()


class Fold:
    """The state of a task, made by applying its events in order.

    The result does not depend on how events are grouped into batches. After `apply` has raised an
    error, the fold must not be used.
    """

    def __init__(
        self,
        task_id: str,
        snapshot: snapshot_pb2.TaskSnapshot | None = None,
        *,
        forwarded: Mapping[str, int] | None = None,
    ) -> None:
        """Start empty, or from a copy of a snapshot.

        `forwarded` has the last forwarded sequence of each origin task at that snapshot.
        """
        self._task_id = task_id
        self._snapshot = snapshot_pb2.TaskSnapshot()
        self._artifacts: dict[tuple[str, str], ArtifactFold] = {}
        self._plans: dict[str, _PlanFold] = {}
        self._calls: dict[str, snapshot_pb2.ToolCallInfo] = {}
        self._children: dict[str, snapshot_pb2.ChildInfo] = {}
        self._approvals: dict[str, snapshot_pb2.ApprovalInfo] = {}
        self._forwarded = dict(forwarded or {})
        self._sequence = self._epoch = 0
        self._is_ended = False
        # The header of the current batch, and its origin task, which is empty if the batch was not
        # forwarded.
        self._header = _NO_HEADER
        self._origin_task = ""
        self._task = self._snapshot.task
        if snapshot is not None:
            self._restore(snapshot)
        self._task.id = task_id

    def _restore(self, snapshot: snapshot_pb2.TaskSnapshot) -> None:
        self._snapshot.CopyFrom(snapshot)
        self._artifacts = {
            (info.origin.task_id, info.artifact_id): ArtifactFold(artifact, info)
            for artifact, info in zip(self._task.artifacts, self._snapshot.artifacts, strict=True)
        }
        # Artifacts and plans grow in their own objects. `snapshot` adds them to the message.
        del self._task.artifacts[:]
        del self._snapshot.artifacts[:]
        self._plans = {plan.plan_id: _PlanFold(plan) for plan in self._snapshot.plans}
        del self._snapshot.plans[:]
        # Earlier builds stored what the draft of A2A 1.1 showed.
        del self._snapshot.timeline[:]
        self._snapshot.generation = 0
        self._calls = {call.started.call_id: call for call in self._snapshot.tool_calls}
        self._children = {child.started.task_id: child for child in self._snapshot.children}
        self._approvals = {info.requested.approval_id: info for info in self._snapshot.approvals}
        self._sequence = self._snapshot.sequence
        self._epoch = self._snapshot.epoch
        self._is_ended = self._task.status.state in TERMINAL

    @property
    def sequence(self) -> int:
        """The last sequence that was applied."""
        return self._sequence

    @property
    def forwarded_sequences(self) -> dict[str, int]:
        """The last forwarded sequence by origin task: the task that first wrote the events."""
        return dict(self._forwarded)

    def apply(self, batch: event_pb2.EventBatch) -> None:
        """Apply the next batch.

        Raises:
            InvalidAgentResponseError: sequences are missing, or the events break the contract. For
                example, an artifact is appended to before its create or after its close, or an
                event follows the terminal status.
        """
        header = self._header = batch.header
        self._begin_batch(header)
        if header.kinds == _ONLY_DELTAS and self._sequence and not self._is_ended:
            self._apply_deltas(batch.events)
        else:
            for event in batch.events:
                self._apply_event(event)
        self._epoch = header.epoch

    def _begin_batch(self, header: event_pb2.BatchHeader) -> None:
        """Check that the batch is the task's next one. Record its sequences if it was forwarded."""
        if header.task_id != self._task_id:
            raise self._defect(f"a batch of task {header.task_id!r} is not of this task")
        if header.first_sequence != self._sequence + 1:
            raise self._defect(f"event {header.first_sequence} follows event {self._sequence}")
        self._origin_task = ""
        if header.HasField("origin"):
            origin = header.origin
            origin_task = self._origin_task = origin.task_id
            if origin.first_sequence <= self._forwarded.get(origin_task, 0):
                raise self._defect(
                    f"event {origin.first_sequence} of task {origin_task!r} was forwarded twice"
                )
            self._forwarded[origin_task] = origin.first_sequence + header.count - 1

    def _apply_deltas(self, events: Iterable[event_pb2.Event]) -> None:
        """Apply deltas, which are nearly all events, on a fast path for runs of texts."""
        for event in events:
            delta = event.delta
            texts = delta.texts
            artifact = self._artifacts.get((self._origin_task, delta.artifact_id))
            if not texts or artifact is None or artifact.is_closed or delta.HasField("start"):
                self._apply_event(event)
            else:
                artifact.add_texts(texts, last=delta.last)
                self._sequence += len(texts)

    def _apply_event(self, event: event_pb2.Event) -> None:
        kind = event_kind(event)
        if (self._sequence == 0) != (kind is EventKind.CREATED):
            raise self._defect("the first event of a task, and only it, must be its creation")
        if self._is_ended:
            raise self._defect("an event was emitted after the task had ended")
        self._HANDLERS[kind](self, event)
        self._sequence += event_count(event)

    def snapshot(self) -> snapshot_pb2.TaskSnapshot:
        """Return a copy of the current state."""
        snapshot = snapshot_pb2.TaskSnapshot()
        snapshot.CopyFrom(self._snapshot)
        snapshot.sequence = self._sequence
        snapshot.epoch = self._epoch
        snapshot.task.artifacts.extend(artifact.artifact() for artifact in self._artifacts.values())
        snapshot.artifacts.extend(artifact.info for artifact in self._artifacts.values())
        snapshot.plans.extend(plan.plan() for plan in self._plans.values())
        return snapshot

    def _defect(self, problem: str) -> InvalidAgentResponseError:
        return InvalidAgentResponseError(self._snapshot.agent, problem)

    def _on_created(self, event: event_pb2.Event) -> None:
        _apply_created(self._snapshot, event.created, self._header.time)

    def _on_status(self, event: event_pb2.Event) -> None:
        status = self._task.status
        status.CopyFrom(event.status.status)
        if not status.HasField("timestamp"):
            status.timestamp.CopyFrom(self._header.time)
        if event.status.HasField("metadata"):
            merge_metadata(self._task.metadata, event)
        self._is_ended = status.state in TERMINAL
        if event.status.HasField("usage"):
            self._snapshot.usage.CopyFrom(event.status.usage)
        if self._is_ended or status.state in INTERRUPTED:
            self._snapshot.continuation = event.status.continuation

    def _on_turn_started(self, event: event_pb2.Event) -> None:
        # The agent's question precedes the answer in the history.
        status = self._task.status
        if status.state in INTERRUPTED and status.HasField("message"):
            self._task.history.append(status.message)
            status.ClearField("message")
        self._task.history.append(event.turn_started.message)
        self._snapshot.turn = event.turn_started.turn
        self._snapshot.turn_traceparent = event.turn_started.traceparent
        if event.turn_started.user_statement:
            self._snapshot.user_statement = event.turn_started.user_statement

    def _on_delta(self, event: event_pb2.Event) -> None:
        delta = event.delta
        key = (self._origin_task, delta.artifact_id)
        artifact = self._artifacts.get(key)
        if delta.HasField("start"):
            if artifact is None:
                artifact = self._artifacts[key] = ArtifactFold.empty(
                    delta.artifact_id,
                    self._sequence + 1,
                    self._origin(),
                    turn=self._snapshot.turn,
                )
            elif not artifact.can_restart:
                raise self._defect(f"artifact {delta.artifact_id!r} was created twice")
            artifact.start(delta.start)
        elif artifact is None:
            raise self._defect(f"artifact {delta.artifact_id!r} was appended to before its create")
        if artifact.is_closed:
            raise self._defect(f"artifact {delta.artifact_id!r} was appended to after its close")
        artifact.apply(delta)

    def _on_rewound(self, event: event_pb2.Event) -> None:
        remains = event.rewound.remains
        artifact = self._artifacts.get((self._origin_task, remains.artifact_id))
        if artifact is None:
            raise self._defect(f"artifact {remains.artifact_id!r} was rewound before its create")
        artifact.rewind(remains)

    def _origin(self) -> event_pb2.Origin | None:
        """Return the origin of the current event, if it was forwarded."""
        if not self._header.HasField("origin"):
            return None
        origin = event_pb2.Origin()
        origin.CopyFrom(self._header.origin)
        origin.first_sequence += self._sequence + 1 - self._header.first_sequence
        return origin

    def _on_plan(self, event: event_pb2.Event) -> None:
        plan = self._plans.get(event.plan.plan_id)
        if plan is None:
            info = snapshot_pb2.PlanInfo(
                plan_id=event.plan.plan_id, first_sequence=self._sequence + 1
            )
            plan = self._plans[info.plan_id] = _PlanFold(info)
        plan.add(event.plan)

    def _on_tool_started(self, event: event_pb2.Event) -> None:
        started = event.tool_started
        if started.call_id in self._calls:
            raise self._defect(f"tool call {started.call_id!r} was started twice")
        self._calls[started.call_id] = self._snapshot.tool_calls.add(
            started=started,
            first_sequence=self._sequence + 1,
        )

    def _on_tool_task_started(self, event: event_pb2.Event) -> None:
        started = event.tool_task_started
        call = self._calls.get(started.call_id)
        if call is None:
            raise self._defect(f"tool call {started.call_id!r} became a task before its start")
        call.task_handle = started.handle

    def _on_tool_finished(self, event: event_pb2.Event) -> None:
        finished = event.tool_finished
        call = self._calls.get(finished.call_id)
        if call is None:
            raise self._defect(f"tool call {finished.call_id!r} was finished before its start")
        call.finished.CopyFrom(finished)

    def _on_approval_requested(self, event: event_pb2.Event) -> None:
        requested = event.approval_requested
        approval = self._approvals.get(requested.approval_id)
        if approval is None:
            approval = self._approvals[requested.approval_id] = self._snapshot.approvals.add()
        approval.requested.CopyFrom(requested)

    def _on_approval_answered(self, event: event_pb2.Event) -> None:
        answered = event.approval_answered
        approval = self._approvals.get(answered.approval_id)
        if approval is None:
            raise self._defect(f"approval {answered.approval_id!r} was answered, never requested")
        approval.answered.CopyFrom(answered)

    def _on_child_started(self, event: event_pb2.Event) -> None:
        started = event.child_started
        child = self._children.get(started.task_id)
        if child is None:
            child = self._children[started.task_id] = self._snapshot.children.add()
        # The next turn of a child that required input is another start.
        child.started.CopyFrom(started)
        child.ClearField("finished")

    def _on_child_finished(self, event: event_pb2.Event) -> None:
        finished = event.child_finished
        child = self._children.get(finished.task_id)
        if child is None:
            raise self._defect(f"child {finished.task_id!r} was finished before its start")
        child.finished.CopyFrom(finished)

    def _on_route_decided(self, event: event_pb2.Event) -> None:
        self._snapshot.routes.append(event.route_decided)
        merge_metadata(self._task.metadata, event)

    def _on_step(self, event: event_pb2.Event) -> None:
        """Keep nothing: the steps of a plan are read from the journal."""

    # Unbound: a fold that stored bound methods would be a reference cycle.
    _HANDLERS: ClassVar[dict[EventKind, Callable[["Fold", event_pb2.Event], None]]] = {
        EventKind.CREATED: _on_created,
        EventKind.STATUS: _on_status,
        EventKind.DELTA: _on_delta,
        EventKind.REWOUND: _on_rewound,
        EventKind.PLAN: _on_plan,
        EventKind.TOOL_STARTED: _on_tool_started,
        EventKind.TOOL_FINISHED: _on_tool_finished,
        EventKind.TOOL_TASK_STARTED: _on_tool_task_started,
        EventKind.APPROVAL_REQUESTED: _on_approval_requested,
        EventKind.APPROVAL_ANSWERED: _on_approval_answered,
        EventKind.CHILD_STARTED: _on_child_started,
        EventKind.CHILD_FINISHED: _on_child_finished,
        EventKind.ROUTE_DECIDED: _on_route_decided,
        EventKind.TURN_STARTED: _on_turn_started,
        EventKind.STEP_STARTED: _on_step,
        EventKind.STEP_FINISHED: _on_step,
    }


class _PlanFold:
    """A plan that grows by events. Texts are joined only when it is read."""

    def __init__(self, info: snapshot_pb2.PlanInfo) -> None:
        self._info = snapshot_pb2.PlanInfo()
        self._info.CopyFrom(info)
        self._texts = [info.text]

    def add(self, change: event_pb2.PlanChanged) -> None:
        """Add an event."""
        info = self._info
        if change.revision != info.revision:
            info.revision = change.revision
            info.rewritten = False
            self._texts = []
            del info.steps[:]
        self._texts.extend(change.texts)
        if change.steps:
            del info.steps[:]
            info.steps.extend(change.steps)
            info.rewritten = change.rewritten

    def plan(self) -> snapshot_pb2.PlanInfo:
        self._texts = ["".join(self._texts)]
        self._info.text = self._texts[0]
        return self._info


def initial_snapshot(
    task_id: str, created: event_pb2.TaskCreated, *, epoch: int
) -> snapshot_pb2.TaskSnapshot:
    """Return the snapshot of a new task whose creation is not committed yet.

    It has no times. After the commit, call `set_create_time`.
    """
    snapshot = snapshot_pb2.TaskSnapshot(sequence=1, epoch=epoch)
    snapshot.task.id = task_id
    _apply_created(snapshot, created, _NO_HEADER.time)
    return snapshot


def set_create_time(snapshot: snapshot_pb2.TaskSnapshot, time_ns: int) -> None:
    """Set the times of an initial snapshot to the time of the commit, in nanoseconds since 1970."""
    snapshot.create_time.FromNanoseconds(time_ns)
    snapshot.task.status.timestamp.CopyFrom(snapshot.create_time)


def _apply_created(
    snapshot: snapshot_pb2.TaskSnapshot,
    created: event_pb2.TaskCreated,
    time: timestamp_pb2.Timestamp,
) -> None:
    task = snapshot.task
    snapshot.agent = created.agent
    snapshot.account = created.account
    snapshot.caller = created.caller
    snapshot.priority = created.priority
    snapshot.traceparent = created.traceparent
    snapshot.user_statement = created.user_statement
    snapshot.accepted_output_modes.extend(created.accepted_output_modes)
    snapshot.create_time.CopyFrom(time)
    snapshot.turn = 1
    if created.HasField("deadline"):
        snapshot.deadline.CopyFrom(created.deadline)
    if created.HasField("parent"):
        snapshot.parent.CopyFrom(created.parent)
    if created.HasField("tree"):
        snapshot.tree.CopyFrom(created.tree)
    if created.HasField("envelope"):
        snapshot.envelope.CopyFrom(created.envelope)
    task.context_id = created.context_id
    task.status.state = task_pb2.TASK_STATE_SUBMITTED
    task.status.timestamp.CopyFrom(time)
    task.history.append(created.message)
    if created.HasField("metadata"):
        task.metadata.CopyFrom(created.metadata)
