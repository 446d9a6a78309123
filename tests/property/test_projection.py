"""Whatever a journal holds, wherever a reader joins and however often it is cut off."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import struct_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline.a2a.v1 import a2a_pb2
from trunkline.journal.fold import Fold
from trunkline.v1 import (
    artifact_pb2,
    event_pb2,
    message_pb2,
    part_pb2,
    snapshot_pb2,
    task_pb2,
)
from trunkline_bridge.projection import Projection, WireEvent, project_task
from trunkline_bridge.wire import json_values, v1_json

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
    None,
)

# What is likely is twice here: answers that are completed show most.
often = settings(max_examples=300)
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

    entries: list[tuple[str | None, event_pb2.Event]] = field(default_factory=list)
    open: dict[tuple[int, str | None], bool] = field(default_factory=dict)
    emptied: set[tuple[int, str | None]] = field(default_factory=set)
    kinds: dict[tuple[int, str | None], event_pb2.ArtifactKind.ValueType] = field(
        default_factory=dict
    )
    revisions: dict[int, int] = field(default_factory=dict)
    finished_plans: set[int] = field(default_factory=set)
    calls: int = 0
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
                # The turn runs again: everything it wrote is cut back first.
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
                made = [event_pb2.PlanStep(text=f"step {n}", agent="math") for n in range(count)]
                self.plan(index, event_pb2.PlanChanged(steps=made))
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
                turn = event_pb2.TurnStarted(message=message_pb2.Message(message_id="m"), turn=2)
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
                delta.start.metadata["index"] = index
        self.emptied.discard(key)
        self.open[key] = not delta.last
        self.put(event_pb2.Event(delta=delta), writer)

    def rewind(self, index: int, writer: str | None, *, keep: bool) -> None:
        key = (index, writer)
        if key not in self.open:
            return
        remains = artifact_pb2.Artifact(artifact_id=f"artifact-{index}", name=f"name {index} again")
        remains.metadata["index"] = index
        if keep:
            remains.parts.add(text="kept")
            self.emptied.discard(key)
        else:
            # What was cut back to nothing is created again.
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
            changed.metadata["said"] = text
        self.put(event_pb2.Event(status=changed))


@st.composite
def journals(draw: st.DrawFn) -> list[tuple[str | None, event_pb2.Event]]:
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


def batch(
    first_sequence: int, entries: list[tuple[str | None, event_pb2.Event]]
) -> event_pb2.EventBatch:
    """Entries of one writer as a batch; adjacent texts of an artifact become a run."""
    header = event_pb2.BatchHeader(
        task_id=TASK, first_sequence=first_sequence, count=len(entries), epoch=1
    )
    # A clock that ticks once a sequence would differ between batchings.
    header.time.seconds = 1_700_000_000
    writer = entries[0][0]
    if writer is not None:
        header.origin.agent = f"agent of {writer}"
        header.origin.task_id = writer
        # It wrote more than was forwarded: its sequences go up, with gaps.
        header.origin.first_sequence = first_sequence
    made = event_pb2.EventBatch(header=header)
    for _, event in entries:
        last = made.events[-1] if made.events else None
        if last is not None and may_join(last, event):
            last.delta.texts.extend(event.delta.texts)
            last.delta.last = event.delta.last
        else:
            made.events.append(event)
    return made


def may_join(last: event_pb2.Event, event: event_pb2.Event) -> bool:
    return (
        bool(last.delta.texts and event.delta.texts)
        and last.delta.artifact_id == event.delta.artifact_id
        and not last.delta.last
        and not event.delta.HasField("start")
    )


def batches(
    entries: list[tuple[str | None, event_pb2.Event]], cuts: set[int], *, after: int = 0
) -> Iterator[event_pb2.EventBatch]:
    """The journal behind a sequence, cut into batches at these sequences and between writers."""
    begin = after
    for end in range(after + 1, len(entries) + 1):
        is_end = end == len(entries) or end in cuts or entries[end][0] != entries[begin][0]
        if is_end:
            yield batch(begin + 1, entries[begin:end])
            begin = end


def fold(
    entries: list[tuple[str | None, event_pb2.Event]], *, upto: int
) -> snapshot_pb2.TaskSnapshot:
    made = Fold(TASK)
    for one in batches(entries[:upto], set()):
        made.apply(one)
    return made.snapshot()


class Client:
    """Does with events what A2A says."""

    def __init__(self) -> None:
        self.task = task_pb2.Task()
        self.artifacts: dict[str, artifact_pb2.Artifact] = {}

    def apply(self, response: a2a_pb2.StreamResponse) -> None:
        if response.HasField("task"):
            self.task.CopyFrom(response.task)
            self.artifacts = {one.artifact_id: one for one in self.task.artifacts}
        elif response.HasField("status_update"):
            self.task.status.CopyFrom(response.status_update.status)
            self.task.metadata.MergeFrom(response.status_update.metadata)
        else:
            update = response.artifact_update
            if not update.append:
                self.artifacts[update.artifact.artifact_id] = update.artifact
                return
            known = self.artifacts[update.artifact.artifact_id]
            known.parts.extend(update.artifact.parts)


def comparable(artifact: artifact_pb2.Artifact) -> dict[str, Any]:
    """An artifact with its adjacent texts joined: that is what equal content means."""
    said = artifact_pb2.Artifact()
    said.CopyFrom(artifact)
    del said.parts[:]
    for part in artifact.parts:
        if part.HasField("text") and said.parts and said.parts[-1].HasField("text"):
            said.parts[-1].text += part.text
        elif not (part.HasField("text") and not part.text):
            said.parts.append(part)
    wrapped = task_pb2.Task(artifacts=[said])
    found: dict[str, Any] = v1_json.task(wrapped)["artifacts"][0]
    return found


def held(artifacts: list[artifact_pb2.Artifact]) -> dict[str, Any]:
    return {one.artifact_id: comparable(one) for one in artifacts}


def shown(events: list[WireEvent]) -> list[tuple[str, json_values.Json]]:
    return [(event.id, v1_json.stream_response(event.response)) for event in events]


def uninterrupted(entries: list[tuple[str | None, event_pb2.Event]]) -> list[WireEvent]:
    projection = Projection()
    return [event for one in batches(entries, set()) for event in projection.apply(one)]


@often
@given(journals(), st.data())
def test_a_client_that_joins_anywhere_ends_up_with_the_task_as_it_is(
    entries: list[tuple[str | None, event_pb2.Event]], data: st.DataObject
) -> None:
    joined = data.draw(st.integers(1, len(entries)))
    cuts = data.draw(st.sets(st.integers(1, len(entries))))
    snapshot = fold(entries, upto=joined)
    client = Client()
    client.apply(a2a_pb2.StreamResponse(task=project_task(snapshot)))
    projection = Projection(snapshot)
    for one in batches(entries, cuts, after=joined):
        for event in projection.apply(one):
            client.apply(event.response)
    final = project_task(fold(entries, upto=len(entries)))
    assert held(list(client.artifacts.values())) == held(list(final.artifacts))
    assert client.task.status == final.status
    assert struct(client.task.metadata) == struct(final.metadata)


def struct(content: struct_pb2.Struct) -> json_values.Json:
    return {name: json_values.value(one) for name, one in content.fields.items()}


@often
@given(journals(), st.data())
def test_how_events_were_put_into_batches_makes_no_difference(
    entries: list[tuple[str | None, event_pb2.Event]], data: st.DataObject
) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(entries))))
    projection = Projection()
    events = [event for one in batches(entries, cuts) for event in projection.apply(one)]
    assert shown(events) == shown(uninterrupted(entries))


@often
@given(journals(), st.data())
def test_a_stream_resumed_behind_any_event_goes_on_exactly_as_the_uninterrupted_one(
    entries: list[tuple[str | None, event_pb2.Event]], data: st.DataObject
) -> None:
    whole = uninterrupted(entries)
    seen = data.draw(st.integers(0, len(whole) - 1))
    sequence, n = whole[seen].sequence, whole[seen].n
    projection = Projection(fold(entries, upto=sequence - 1) if sequence > 1 else None)
    again = [
        event
        for one in batches(entries, set(), after=sequence - 1)
        for event in projection.apply(one)
        if (event.sequence, event.n) > (sequence, n)
    ]
    assert shown(again) == shown(whole[seen + 1 :])


@often
@given(journals())
def test_ids_of_events_only_grow(entries: list[tuple[str | None, event_pb2.Event]]) -> None:
    ids = [(event.sequence, event.n) for event in uninterrupted(entries)]
    assert ids == sorted(set(ids))
