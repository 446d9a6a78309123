"""The fold doesn't depend on how events were put into batches, cut, trimmed or gone on with."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from harness.journal.builders import TASK, append, begin, created, sealed, status, working
from trunkline.journal.batches import parse_batch, splice, trim_batch
from trunkline.journal.events import event_count, last_sequence, parse_header, plan_event
from trunkline.journal.fold import Fold, fold_batches
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
    """Events of a task that keep to the contract, behind its creation."""
    events = [working()]
    opened: set[str] = set()
    for _ in range(draw(st.integers(0, 8))):
        artifact_id = draw(st.sampled_from(IDS))
        match draw(st.sampled_from(["texts", "texts", "part", "rewind", "plan", "status"])):
            case "texts" if artifact_id in opened:
                events.append(append(artifact_id, *draw(TEXTS)))
            case "texts" | "part" if artifact_id not in opened:
                events.append(begin(artifact_id, *draw(TEXTS)))
                opened.add(artifact_id)
            case "part":
                delta = event_pb2.ArtifactDelta(artifact_id=artifact_id, part=draw(PARTS))
                events.append(event_pb2.Event(delta=delta))
            case "rewind" if artifact_id in opened:
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
    events += [append(one, "end", last=True) for one in sorted(opened) if draw(st.booleans())]
    if draw(st.booleans()):
        events.append(status(task_pb2.TASK_STATE_COMPLETED, "done"))
    return events


def singles(events: Sequence[event_pb2.Event]) -> list[event_pb2.Event]:
    """The same events, each of one sequence: runs taken apart."""
    apart: list[event_pb2.Event] = []
    for event in events:
        whole = parse_batch(sealed([event]))
        for position in range(event_count(event)):
            one = parse_batch(trim_batch(whole.SerializeToString(), position), until=position + 1)
            apart += one.events
    return apart


def batched(events: Sequence[event_pb2.Event], sizes: Sequence[int]) -> list[bytes]:
    """Seal events in batches of these sizes, over and over."""
    batches: list[bytes] = []
    first_sequence, rest, turn = 1, list(events), 0
    while rest:
        size = sizes[turn % len(sizes)]
        now, rest = rest[:size], rest[size:]
        batches.append(sealed(now, first_sequence))
        first_sequence += sum(map(event_count, now))
        turn += 1
    return batches


SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=4)


@given(contents(), SIZES)
def test_any_split_of_the_same_events_folds_to_the_same(
    events: list[event_pb2.Event], sizes: list[int]
) -> None:
    whole = fold_batches(TASK, batched([created(), *events], [10**6]))
    assert fold_batches(TASK, batched([created(), *events], sizes)) == whole
    assert fold_batches(TASK, batched([created(), *singles(events)], sizes)) == whole


@given(contents(), SIZES, st.data())
def test_a_fold_goes_on_from_a_snapshot_at_any_sequence(
    events: list[event_pb2.Event], sizes: list[int], data: st.DataObject
) -> None:
    batches = batched([created(), *events], sizes)
    whole = fold_batches(TASK, batches)
    at = data.draw(st.integers(1, whole.sequence), label="at")
    fold = Fold(TASK)
    for one in batches:
        if parse_header(one).first_sequence <= at:
            fold.apply(parse_batch(one, until=at))
    kept = snapshot_pb2.TaskSnapshot.FromString(fold.snapshot().SerializeToString())
    assert kept.sequence == at
    rest = [trim_batch(one, at) for one in batches if last_sequence(one) > at]
    assert fold_batches(TASK, rest, kept) == whole


@given(contents(), SIZES, st.data())
def test_a_child_that_is_read_again_from_anywhere_adds_each_text_once(
    events: list[event_pb2.Event], sizes: list[int], data: st.DataObject
) -> None:
    batches = batched([created(), *events], sizes)
    child = fold_batches(TASK, batches)
    parent = Fold("parent")
    parent.apply(parse_batch(sealed([created()], task_id="parent")))
    known: dict[str, int] = {}
    cut = data.draw(st.integers(0, child.sequence), label="cut")
    again = data.draw(st.integers(0, cut), label="again")
    first = [
        parse_batch(one, until=cut).SerializeToString()
        for one in batches
        if parse_header(one).first_sequence <= cut
    ]
    rest = [trim_batch(one, again) for one in batches if last_sequence(one) > again]
    for child_batch in (*first, *rest):
        for one in splice(child_batch, agent="child-agent", forwarded=known):
            body = event_pb2.EventBatch.FromString(one.body)
            body.header.task_id = "parent"
            body.header.first_sequence = parent.sequence + 1
            body.header.count = one.count
            body.header.origin.CopyFrom(one.origin or event_pb2.Origin())
            parent.apply(body)
    snapshot = parent.snapshot()
    assert list(snapshot.task.artifacts) == list(child.task.artifacts)
    for ours, theirs in zip(snapshot.artifacts, child.artifacts, strict=True):
        assert ours.origin.first_sequence == theirs.first_sequence
        assert ours.closed == theirs.closed
