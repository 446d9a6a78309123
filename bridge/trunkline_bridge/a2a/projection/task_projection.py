"""Projects a task's journal events to wire events."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire import named_artifacts as views
from trunkline.a2a_wire.roles import ArtifactRole, RoleAssigner
from trunkline.a2a_wire.wire_events import ArtifactView, FullEvent, TextDelta, WireEvent
from trunkline.json_values import update_struct
from trunkline.task_states import OUTCOME_KEY, find_outcome
from trunkline.v1 import artifact_pb2, event_pb2, snapshot_pb2, task_pb2
from trunkline_bridge.a2a.projection.links import RELATIVE_LINKS, FileLinks
from trunkline_bridge.a2a.projection.snapshot import has_answer


@dataclass(slots=True)
class _PlanView:
    """The state of a plan on the wire."""

    view: ArtifactView
    revision: int
    is_streaming: bool
    texts: list[str]
    """The texts of the revision so far; none once it is finished."""


class TaskProjection:
    """Converts the journal events of one task to wire events, from its start or from a snapshot.

    Every batch must be applied once, in order. A text of a delta or plan gives one wire event, and
    another journal event none, one or two. The projection stores names, ids and the texts of
    unfinished plans, but no other content.
    """

    def __init__(
        self,
        snapshot: snapshot_pb2.TaskSnapshot | None = None,
        *,
        links: FileLinks = RELATIVE_LINKS,
    ) -> None:
        """Start after `snapshot`, or at the task's start; `links` converts references to files."""
        self._links = links
        self._task_id = ""
        self._context_id = ""
        self._epoch = 1
        self._artifacts: dict[tuple[str, str], ArtifactView] = {}
        self._plans: dict[str, _PlanView] = {}
        self._steps: dict[str, str] = {}
        self._roles = RoleAssigner()
        self._turn = 1
        self._has_answer = False
        if snapshot is not None:
            self._start_from(snapshot)

    def apply(self, batch: event_pb2.EventBatch) -> list[WireEvent]:
        """Return the wire events of a batch, in order."""
        header = batch.header
        sequence = header.first_sequence
        self._epoch = header.epoch or 1
        self._task_id = header.task_id
        wire_events: list[WireEvent] = []
        for event in batch.events:
            kind = event.WhichOneof("event")
            if kind == "delta":
                self._delta(header, sequence, event.delta, wire_events)
                sequence += max(1, len(event.delta.texts))
            elif kind == "plan":
                self._plan(sequence, event.plan, wire_events)
                sequence += max(1, len(event.plan.texts))
            else:
                responses = list(self._handlers.get(kind or "", _no_events)(self, header, event))
                wire_events += [
                    FullEvent(sequence, n, response, self._epoch)
                    for n, response in enumerate(responses)
                ]
                sequence += 1
        return wire_events

    def _start_from(self, snapshot: snapshot_pb2.TaskSnapshot) -> None:
        self._task_id = snapshot.task.id
        self._context_id = snapshot.task.context_id
        self._has_answer = has_answer(snapshot)
        self._steps = views.child_steps(snapshot)
        for artifact, info in zip(snapshot.task.artifacts, snapshot.artifacts, strict=True):
            origin = info.origin if info.HasField("origin") else None
            key = (info.origin.task_id, info.artifact_id)
            role = self._roles.assign(info.kind, origin, info.turn)
            self._artifacts[key] = self._artifact_view(artifact, info.kind, origin, role)
        self._turn = snapshot.turn
        for plan in snapshot.plans:
            self._plans[plan.plan_id] = _PlanView(
                self._plan_view(plan.plan_id, views.PLAN_STREAMING),
                plan.revision,
                is_streaming=not plan.steps,
                texts=[] if plan.steps else [plan.text],
            )

    def _delta(
        self,
        header: event_pb2.BatchHeader,
        sequence: int,
        delta: event_pb2.ArtifactDelta,
        wire_events: list[WireEvent],
    ) -> None:
        key = (header.origin.task_id, delta.artifact_id)
        view = self._artifacts.get(key)
        is_first = view is None or delta.HasField("start")
        if view is None or is_first:
            view = self._artifacts[key] = self._begin(header, delta)
        if not view.is_shown:
            return
        epoch = self._epoch
        texts = list(delta.texts)
        if not texts and delta.HasField("part"):
            update = view.update(append=not is_first, last_chunk=delta.last)
            update.artifact_update.artifact.parts.append(delta.part)
            self._links.event_to_urls(update)
            wire_events.append(FullEvent(sequence, 0, update, epoch))
            return
        texts = texts or [""]
        if is_first:
            is_whole = delta.last and len(texts) == 1
            update = view.update(append=False, last_chunk=is_whole, text=texts.pop(0))
            wire_events.append(FullEvent(sequence, 0, update, epoch))
            sequence += 1
        text_deltas = [
            TextDelta(number, 0, view, text, False, epoch)
            for number, text in enumerate(texts, sequence)
        ]
        if delta.last and text_deltas:
            text_deltas[-1] = text_deltas[-1]._replace(is_last=True)
        wire_events += text_deltas

    def _begin(self, header: event_pb2.BatchHeader, delta: event_pb2.ArtifactDelta) -> ArtifactView:
        start = delta.start
        artifact = artifact_pb2.Artifact(
            artifact_id=delta.artifact_id,
            name=start.name,
            description=start.description,
            extensions=start.extensions,
        )
        if start.HasField("metadata"):
            artifact.metadata.CopyFrom(start.metadata)
        origin = _find_origin(header)
        if origin is None and start.kind == event_pb2.ARTIFACT_KIND_ANSWER:
            self._has_answer = True
        # A turn that runs again may create an empty artifact a second time.
        previous = self._artifacts.get((header.origin.task_id, delta.artifact_id))
        if previous is None:
            role = self._roles.assign(start.kind, origin, self._turn)
        else:
            role = previous.role
        return self._artifact_view(artifact, start.kind, origin, role)

    def _plan(
        self, sequence: int, change: event_pb2.PlanChanged, wire_events: list[WireEvent]
    ) -> None:
        plan = self._plans.get(change.plan_id)
        is_new = plan is None or plan.revision != change.revision
        if plan is None or is_new:
            view = self._plan_view(change.plan_id, views.PLAN_STREAMING)
            plan = self._plans[change.plan_id] = _PlanView(
                view, change.revision, is_streaming=False, texts=[]
            )
        plan.texts += change.texts
        for index, text in enumerate(change.texts):
            if plan.is_streaming:
                text_delta = TextDelta(sequence + index, 0, plan.view, text, False, self._epoch)
                wire_events.append(text_delta)
                continue
            plan.is_streaming = True
            update = plan.view.update(
                append=False, last_chunk=False, text=views.PLAN_OPENING + text
            )
            wire_events.append(FullEvent(sequence + index, 0, update, self._epoch))
        if change.steps:
            self._finish_plan(sequence, plan, change, wire_events)

    def _finish_plan(
        self,
        sequence: int,
        plan: _PlanView,
        change: event_pb2.PlanChanged,
        wire_events: list[WireEvent],
    ) -> None:
        n = 0
        if plan.is_streaming:
            closing = TextDelta(sequence, n, plan.view, views.PLAN_CLOSING, False, self._epoch)
            wire_events.append(closing)
            plan.is_streaming = False
            n += 1
        whole = self._plan_view(change.plan_id, views.PLAN_UPDATE)
        update = whole.update(
            append=False, last_chunk=True, text=views.whole_plan("".join(plan.texts), change.steps)
        )
        wire_events.append(FullEvent(sequence, n, update, self._epoch))
        plan.texts = []

    def _created(
        self, header: event_pb2.BatchHeader, event: event_pb2.Event
    ) -> Iterator[a2a_pb2.StreamResponse]:
        created = event.created
        self._context_id = created.context_id
        task = task_pb2.Task(id=header.task_id, context_id=created.context_id)
        task.status.state = task_pb2.TASK_STATE_SUBMITTED
        task.status.timestamp.CopyFrom(header.time)
        task.history.append(created.message)
        self._links.task_to_urls(task)
        if created.HasField("metadata"):
            task.metadata.CopyFrom(created.metadata)
        yield a2a_pb2.StreamResponse(task=task)

    def _status(
        self, header: event_pb2.BatchHeader, event: event_pb2.Event
    ) -> Iterator[a2a_pb2.StreamResponse]:
        changed = event.status
        if changed.status.state == task_pb2.TASK_STATE_COMPLETED and self._has_answer:
            yield self._notification(views.current_result_artifact())
        update = a2a_pb2.TaskStatusUpdateEvent(
            task_id=self._task_id, context_id=self._context_id, status=changed.status
        )
        if not changed.status.HasField("timestamp"):
            update.status.timestamp.CopyFrom(header.time)
        if changed.HasField("metadata"):
            update.metadata.CopyFrom(changed.metadata)
        outcome = find_outcome(changed.status.state, changed.metadata)
        if outcome is not None:
            update_struct(update.metadata, {OUTCOME_KEY: outcome.value})
        yield self._links.event_to_urls(a2a_pb2.StreamResponse(status_update=update))

    def _rewound(
        self, header: event_pb2.BatchHeader, event: event_pb2.Event
    ) -> Iterator[a2a_pb2.StreamResponse]:
        remains = event.rewound.remains
        key = (header.origin.task_id, remains.artifact_id)
        previous = self._artifacts.get(key)
        origin = _find_origin(header)
        if previous is None:
            kind = event_pb2.ARTIFACT_KIND_UNSPECIFIED
            role = self._roles.assign(kind, origin, self._turn)
        else:
            kind, role = previous.kind, previous.role
        view = self._artifacts[key] = self._artifact_view(remains, kind, origin, role)
        if not view.is_shown:
            return
        response = view.update(append=False, last_chunk=False)
        parts = response.artifact_update.artifact.parts
        parts.extend(remains.parts)
        if not parts:
            parts.add(text="")
        yield self._links.event_to_urls(response)

    def _child_started(
        self, _header: event_pb2.BatchHeader, event: event_pb2.Event
    ) -> Iterator[a2a_pb2.StreamResponse]:
        """Store the child's plan step for its artifacts. The start has no wire event."""
        self._steps[event.child_started.task_id] = event.child_started.step_id
        return iter(())

    def _turn_started(
        self, _header: event_pb2.BatchHeader, event: event_pb2.Event
    ) -> Iterator[a2a_pb2.StreamResponse]:
        """Store the turn, which may have an answer. Clients get no event for their own message."""
        self._turn = event.turn_started.turn
        return iter(())

    def _tool_started(
        self, _header: event_pb2.BatchHeader, event: event_pb2.Event
    ) -> Iterator[a2a_pb2.StreamResponse]:
        yield self._notification(views.tool_start_artifact(event.tool_started))

    def _tool_finished(
        self, _header: event_pb2.BatchHeader, event: event_pb2.Event
    ) -> Iterator[a2a_pb2.StreamResponse]:
        yield self._notification(views.tool_complete_artifact(event.tool_finished))

    def _notification(self, artifact: artifact_pb2.Artifact) -> a2a_pb2.StreamResponse:
        """Return the update that sends a whole artifact."""
        return self._view(artifact).update(append=False, last_chunk=True)

    def _artifact_view(
        self,
        artifact: artifact_pb2.Artifact,
        kind: event_pb2.ArtifactKind.ValueType,
        origin: event_pb2.Origin | None,
        role: ArtifactRole,
    ) -> ArtifactView:
        head = views.artifact_head(artifact, kind, origin, self._steps, role)
        is_shown = views.is_shown(kind, origin)
        return ArtifactView(
            self._task_id, self._context_id, head, kind, role=role, is_shown=is_shown
        )

    def _view(self, head: artifact_pb2.Artifact) -> ArtifactView:
        return ArtifactView(self._task_id, self._context_id, head)

    def _plan_view(self, plan_id: str, name: str) -> ArtifactView:
        return self._view(views.plan_artifact(plan_id, name))

    _handlers: ClassVar[Mapping[str, "_Handler"]] = {
        "created": _created,
        "status": _status,
        "rewound": _rewound,
        "child_started": _child_started,
        "tool_started": _tool_started,
        "tool_finished": _tool_finished,
        "turn_started": _turn_started,
    }


_Handler: TypeAlias = Callable[
    [TaskProjection, event_pb2.BatchHeader, event_pb2.Event], Iterator[a2a_pb2.StreamResponse]
]


def _find_origin(header: event_pb2.BatchHeader) -> event_pb2.Origin | None:
    return header.origin if header.HasField("origin") else None


def _no_events(
    _projection: TaskProjection, _header: event_pb2.BatchHeader, _event: event_pb2.Event
) -> Iterator[a2a_pb2.StreamResponse]:
    """Return no events, because clients do not see routes, turns and the ends of children."""
    return iter(())
