"""Hypothesis strategies for legal journals of one task."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hypothesis import strategies as st

from trunkline.core.json_values import update_struct
from trunkline.journal.fold import Fold
from trunkline.v1 import (
    artifact_pb2,
    event_pb2,
    message_pb2,
    part_pb2,
    snapshot_pb2,
    task_pb2,
)

# Entries, each of one sequence, written by the task itself or by a child with this id.
Entries: TypeAlias = list[tuple[str | None, event_pb2.Event]]

TASK = "jrnl0001-task"
WRITERS = (None, "jrnl0002-child", "jrnl0003-child")
KINDS = (
    event_pb2.ARTIFACT_KIND_UNSPECIFIED,
    event_pb2.ARTIFACT_KIND_ANSWER,
    event_pb2.ARTIFACT_KIND_ANSWER,
    event_pb2.ARTIFACT_KIND_SYNTHESIS,
)
ENDS = (
    task_pb2.TASK_STATE_COMPLETED,
    task_pb2.TASK_STATE_COMPLETED,
    task_pb2.TASK_STATE_COMPLETED,
    task_pb2.TASK_STATE_FAILED,
    task_pb2.TASK_STATE_CANCELED,
    task_pb2.TASK_STATE_REJECTED,
    task_pb2.TASK_STATE_INPUT_REQUIRED,
    task_pb2.TASK_STATE_AUTH_REQUIRED,
    None,
)

# Listed twice to be drawn more often, because completed answers show most.
texts = st.text(alphabet='ab \n"é\u2028', max_size=4)
steps = st.one_of(
    st.tuples(
        st.just("text"),
        st.integers(0, 2),
        st.sampled_from(WRITERS),
        st.lists(texts, min_size=1, max_size=4),
        st.booleans(),
        st.sampled_from(KINDS),
    ),
    st.tuples(st.just("part"), st.integers(0, 2), st.sampled_from(WRITERS), st.booleans()),
    st.tuples(st.just("close"), st.integers(0, 2), st.sampled_from(WRITERS)),
    st.tuples(st.just("rewind"), st.integers(0, 2), st.sampled_from(WRITERS), st.booleans()),
    st.tuples(st.just("plan"), st.integers(0, 1), texts),
    st.tuples(st.just("planned"), st.integers(0, 1), st.integers(1, 3)),
    st.tuples(st.just("tool"), st.booleans()),
    st.tuples(st.just("tool_end")),
    st.tuples(st.just("status"), texts),
    st.tuples(st.just("turn")),
    st.tuples(st.just("silent")),
    st.tuples(st.just("again"), st.booleans()),
)


@dataclass
class Writer:
    """Makes a legal journal of arbitrary steps: each event covers one sequence."""

    entries: Entries = field(default_factory=list)
    open: dict[tuple[int, str | None], bool] = field(default_factory=dict)
    emptied: set[tuple[int, str | None]] = field(default_factory=set)
    kinds: dict[tuple[int, str | None], event_pb2.ArtifactKind.ValueType] = field(
        default_factory=dict
    )
    revisions: dict[int, int] = field(default_factory=dict)
    finished_plans: set[int] = field(default_factory=set)
    calls: int = 0
    turn: int = 1
    running: list[str] = field(default_factory=list)

    def put(self, event: event_pb2.Event, writer: str | None = None) -> None:
        self.entries.append((writer, event))

    def write(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("text", index, writer, pieces, last, kind):
                for number, text in enumerate(pieces):
                    is_last = last and number == len(pieces) - 1
                    delta = event_pb2.ArtifactDelta(texts=[text], last=is_last)
                    self.delta((index, writer), kind, delta)
            case ("part", index, writer, last):
                part = part_pb2.Part(raw=b"\x00\x01", filename="a.bin")
                delta = event_pb2.ArtifactDelta(part=part, last=last)
                self.delta((index, writer), KINDS[0], delta)
            case ("close", index, writer):
                if (index, writer) in self.open:
                    self.delta((index, writer), KINDS[0], event_pb2.ArtifactDelta(last=True))
            case ("rewind", index, writer, keep):
                self.rewind(index, writer, keep=keep)
            case ("again", keep):
                # The turn runs again, so everything that it wrote is cut off first.
                for index, writer in list(self.open):
                    self.rewind(index, writer, keep=keep)
                self.status(task_pb2.TASK_STATE_WORKING, "it runs again")
            case _:
                self.write_fact(step)

    def write_fact(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("plan", index, text):
                self.plan(index, event_pb2.PlanChanged(texts=[text]))
            case ("planned", index, count):
                plan_steps = [
                    event_pb2.PlanStep(text=f"step {n}", agent="math") for n in range(count)
                ]
                self.plan(index, event_pb2.PlanChanged(steps=plan_steps))
                self.finished_plans.add(index)
            case ("tool", _):
                self.calls += 1
                self.running.append(f"call-{self.calls}")
                started = event_pb2.ToolStarted(call_id=self.running[-1], tool="a/b")
                self.put(event_pb2.Event(tool_started=started))
            case ("tool_end",) if self.running:
                finished = event_pb2.ToolFinished(call_id=self.running.pop(), tool="a/b")
                self.put(event_pb2.Event(tool_finished=finished))
            case ("status", text):
                self.status(task_pb2.TASK_STATE_WORKING, text)
            case ("turn",):
                self.status(task_pb2.TASK_STATE_INPUT_REQUIRED, "which?")
                self.turn += 1
                message = message_pb2.Message(message_id=f"m-{self.turn}")
                turn = event_pb2.TurnStarted(message=message, turn=self.turn)
                self.put(event_pb2.Event(turn_started=turn))
                self.status(task_pb2.TASK_STATE_WORKING, "")
            case ("silent",):
                child = event_pb2.ChildStarted(task_id="jrnl0002-child", agent="math")
                self.put(event_pb2.Event(child_started=child))

    def delta(
        self,
        key: tuple[int, str | None],
        kind: event_pb2.ArtifactKind.ValueType,
        delta: event_pb2.ArtifactDelta,
    ) -> None:
        index, writer = key
        if self.open.get(key) is False:
            return
        delta.artifact_id = f"artifact-{index}"
        if key not in self.open or key in self.emptied:
            delta.start.name = f"name {index}"
            delta.start.kind = self.kinds.setdefault(key, kind)
            if len(self.entries) % 2:
                update_struct(delta.start.metadata, {"index": index})
        self.emptied.discard(key)
        self.open[key] = not delta.last
        self.put(event_pb2.Event(delta=delta), writer)

    def rewind(self, index: int, writer: str | None, *, keep: bool) -> None:
        key = (index, writer)
        if key not in self.open:
            return
        remains = artifact_pb2.Artifact(artifact_id=f"artifact-{index}", name=f"name {index} again")
        update_struct(remains.metadata, {"index": index})
        if keep:
            remains.parts.add(text="kept")
            self.emptied.discard(key)
        else:
            # An artifact that was cut off completely is created again.
            self.emptied.add(key)
        self.open[key] = True
        self.put(event_pb2.Event(rewound=event_pb2.ArtifactRewound(remains=remains)), writer)

    def plan(self, index: int, change: event_pb2.PlanChanged) -> None:
        if index in self.finished_plans or index not in self.revisions:
            self.finished_plans.discard(index)
            self.revisions[index] = self.revisions.get(index, 0) + 1
        change.plan_id, change.revision = f"plan-{index}", self.revisions[index]
        self.put(event_pb2.Event(plan=change))

    def status(self, state: task_pb2.TaskState.ValueType, text: str) -> None:
        changed = event_pb2.StatusChanged()
        changed.status.state = state
        if text:
            changed.status.message.parts.add(text=text)
            update_struct(changed.metadata, {"said": text})
        self.put(event_pb2.Event(status=changed))


@st.composite
def journals(draw: st.DrawFn) -> Entries:
    writer = Writer()
    created = event_pb2.TaskCreated(context_id="ctx", agent="tested")
    created.message.message_id = "m-1"
    writer.put(event_pb2.Event(created=created))
    for step in draw(st.lists(steps, max_size=25)):
        writer.write(step)
    end = draw(st.sampled_from(ENDS))
    if end is not None:
        writer.status(end, "over")
    return writer.entries


def batch(first_sequence: int, entries: Entries) -> event_pb2.EventBatch:
    """Entries of one writer as a batch; adjacent texts of an artifact become a run."""
    header = event_pb2.BatchHeader(
        task_id=TASK, first_sequence=first_sequence, count=len(entries), epoch=1
    )
    # A clock with one tick per sequence would differ between batchings.
    header.time.seconds = 1_700_000_000
    writer = entries[0][0]
    if writer is not None:
        header.origin.agent = f"agent of {writer}"
        header.origin.task_id = writer
        # The child wrote more than was forwarded, so its sequences have gaps.
        header.origin.first_sequence = first_sequence
    result = event_pb2.EventBatch(header=header)
    for _, event in entries:
        last = result.events[-1] if result.events else None
        if last is not None and may_join(last, event):
            last.delta.texts.extend(event.delta.texts)
            last.delta.last = event.delta.last
        else:
            result.events.append(event)
    return result


def may_join(last: event_pb2.Event, event: event_pb2.Event) -> bool:
    return (
        bool(last.delta.texts and event.delta.texts)
        and last.delta.artifact_id == event.delta.artifact_id
        and not last.delta.last
        and not event.delta.HasField("start")
    )


def batches(entries: Entries, cuts: set[int], *, after: int = 0) -> Iterator[event_pb2.EventBatch]:
    """Return the journal after a sequence in batches, cut at these sequences and at new writers."""
    begin = after
    for end in range(after + 1, len(entries) + 1):
        is_end = end == len(entries) or end in cuts or entries[end][0] != entries[begin][0]
        if is_end:
            yield batch(begin + 1, entries[begin:end])
            begin = end


def fold(entries: Entries, *, upto: int) -> snapshot_pb2.TaskSnapshot:
    folded = Fold(TASK)
    for event_batch in batches(entries[:upto], set()):
        folded.apply(event_batch)
    return folded.snapshot()
