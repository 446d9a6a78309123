"""The fold does not depend on how events are split into batches, trimmed or resumed."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from harness.journal.builders import (
    TASK,
    append,
    begin,
    created,
    fold_batches,
    sealed,
    status,
    working,
)
from trunkline.journal.batches import parse_batch, splice, trim_batch
from trunkline.journal.events import event_count, last_sequence, parse_header, plan_event
from trunkline.journal.fold import Fold
from trunkline.v1 import artifact_pb2, event_pb2, part_pb2, snapshot_pb2, task_pb2

TEXTS = st.lists(st.text(max_size=3), min_size=1, max_size=5)
IDS = ("a", "b")
PARTS = st.sampled_from(
    [
        part_pb2.Part(text="plain"),
        part_pb2.Part(text="named", filename="f"),
        part_pb2.Part(raw=b"\x00"),
    ]
)


@st.composite
def contents(draw: st.DrawFn) -> list[event_pb2.Event]:
    """Generate legal events of a task, after its creation."""
    events = [working()]
    open_ids: set[str] = set()
    for _ in range(draw(st.integers(0, 8))):
        artifact_id = draw(st.sampled_from(IDS))
        match draw(st.sampled_from(["texts", "texts", "part", "rewind", "plan", "status"])):
            case "texts" if artifact_id in open_ids:
                events.append(append(artifact_id, *draw(TEXTS)))
            case "texts" | "part" if artifact_id not in open_ids:
                events.append(begin(artifact_id, *draw(TEXTS)))
                open_ids.add(artifact_id)
            case "part":
                delta = event_pb2.ArtifactDelta(artifact_id=artifact_id, part=draw(PARTS))
                events.append(event_pb2.Event(delta=delta))
            case "rewind" if artifact_id in open_ids:
                texts = draw(TEXTS)
                remains = artifact_pb2.Artifact(
                    artifact_id=artifact_id, parts=[part_pb2.Part(text=text) for text in texts]
                )
                rewound = event_pb2.ArtifactRewound(remains=remains)
                events.append(event_pb2.Event(rewound=rewound))
            case "plan":
                events.append(plan_event("p", draw(st.integers(1, 2)), draw(TEXTS)))
            case _:
                events.append(status(task_pb2.TASK_STATE_WORKING, draw(st.text(max_size=3))))
    events += [
        append(open_id, "end", last=True) for open_id in sorted(open_ids) if draw(st.booleans())
    ]
    if draw(st.booleans()):
        events.append(status(task_pb2.TASK_STATE_COMPLETED, "done"))
    return events


def split_events(events: Sequence[event_pb2.Event]) -> list[event_pb2.Event]:
    """Split the events into events of one sequence each."""
    split_up: list[event_pb2.Event] = []
    for event in events:
        complete = parse_batch(sealed([event]))
        for position in range(event_count(event)):
            part = parse_batch(
                trim_batch(complete.SerializeToString(), position), until=position + 1
            )
            split_up += part.events
    return split_up


def seal_batches(events: Sequence[event_pb2.Event], sizes: Sequence[int]) -> list[bytes]:
    """Seal the events in batches of these sizes, repeated."""
    batches: list[bytes] = []
    first_sequence, rest, round_ = 1, list(events), 0
    while rest:
        size = sizes[round_ % len(sizes)]
        current, rest = rest[:size], rest[size:]
        batches.append(sealed(current, first_sequence))
        first_sequence += sum(map(event_count, current))
        round_ += 1
    return batches


SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=4)


@given(contents(), SIZES)
def test_any_split_of_events_folds_to_the_same_snapshot(
    events: list[event_pb2.Event], sizes: list[int]
) -> None:
    complete = fold_batches(TASK, seal_batches([created(), *events], [10**6]))
    assert fold_batches(TASK, seal_batches([created(), *events], sizes)) == complete
    assert fold_batches(TASK, seal_batches([created(), *split_events(events)], sizes)) == complete


@given(contents(), SIZES, st.data())
def test_a_fold_continues_from_a_snapshot_at_any_sequence(
    events: list[event_pb2.Event], sizes: list[int], data: st.DataObject
) -> None:
    batches = seal_batches([created(), *events], sizes)
    complete = fold_batches(TASK, batches)
    at = data.draw(st.integers(1, complete.sequence), label="at")
    fold = Fold(TASK)
    for batch in batches:
        if parse_header(batch).first_sequence <= at:
            fold.apply(parse_batch(batch, until=at))
    snapshot_ = snapshot_pb2.TaskSnapshot.FromString(fold.snapshot().SerializeToString())
    assert snapshot_.sequence == at
    rest = [trim_batch(batch, at) for batch in batches if last_sequence(batch) > at]
    assert fold_batches(TASK, rest, snapshot_) == complete


@given(contents(), SIZES, st.data())
def test_a_child_read_again_from_any_sequence_adds_each_text_once(
    events: list[event_pb2.Event], sizes: list[int], data: st.DataObject
) -> None:
    batches = seal_batches([created(), *events], sizes)
    child = fold_batches(TASK, batches)
    parent = Fold("parent")
    parent.apply(parse_batch(sealed([created()], task_id="parent")))
    forwarded_sequences: dict[str, int] = {}
    cut = data.draw(st.integers(0, child.sequence), label="cut")
    restart = data.draw(st.integers(0, cut), label="again")
    first = [
        parse_batch(batch, until=cut).SerializeToString()
        for batch in batches
        if parse_header(batch).first_sequence <= cut
    ]
    rest = [trim_batch(batch, restart) for batch in batches if last_sequence(batch) > restart]
    for child_batch in (*first, *rest):
        parsed = parse_batch(child_batch)
        for spliced in splice(child_batch, parsed, agent="child", forwarded=forwarded_sequences):
            body = event_pb2.EventBatch.FromString(spliced.body)
            body.header.task_id = "parent"
            body.header.first_sequence = parent.sequence + 1
            body.header.count = spliced.count
            body.header.origin.CopyFrom(spliced.origin or event_pb2.Origin())
            parent.apply(body)
    snapshot = parent.snapshot()
    assert list(snapshot.task.artifacts) == list(child.task.artifacts)
    for parent_info, child_info in zip(snapshot.artifacts, child.artifacts, strict=True):
        assert parent_info.origin.first_sequence == child_info.first_sequence
        assert parent_info.closed == child_info.closed
