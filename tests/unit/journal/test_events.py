import pytest
from google.protobuf.message import DecodeError

from harness.journal.builders import (
    TASK,
    TIME_NS,
    append,
    begin,
    completed,
    sealed,
    working,
)
from trunkline.errors import InvalidArgumentError
from trunkline.journal.batches import parse_batch, splice, trim_batch
from trunkline.journal.events import (
    Draft,
    EventKind,
    build_draft,
    event_count,
    last_sequence,
    parse_header,
    plan_event,
    seal,
)
from trunkline.v1 import artifact_pb2, event_pb2, task_pb2

ORIGIN = event_pb2.Origin(agent="math", task_id="child", first_sequence=7, path=["math"])


def rewound(artifact_id: str) -> event_pb2.Event:
    remains = artifact_pb2.Artifact(artifact_id=artifact_id)
    return event_pb2.Event(rewound=event_pb2.ArtifactRewound(remains=remains))


def test_every_field_of_an_event_has_a_kind_of_the_same_number() -> None:
    fields = event_pb2.Event.DESCRIPTOR.oneofs[0].fields
    assert {field.name.upper(): field.number for field in fields} == {
        kind.name: kind.value for kind in EventKind
    }


def test_a_draft_counts_the_texts_of_runs_and_one_for_everything_else() -> None:
    draft = build_draft(
        [working(), begin("a", "x", "y", "z"), plan_event("p", 1, ["1", "2"]), append("a")]
    )
    assert draft.count == 1 + 3 + 2 + 1
    assert draft.kinds == EventKind.STATUS.bit | EventKind.DELTA.bit | EventKind.PLAN.bit


def test_a_draft_has_the_state_of_its_last_status() -> None:
    assert (
        build_draft([working(), begin("a", "x"), completed()]).state
        == task_pb2.TASK_STATE_COMPLETED
    )
    assert build_draft([begin("a", "x")]).state is None


def test_an_empty_draft_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        build_draft([])
    with pytest.raises(InvalidArgumentError):
        build_draft([event_pb2.Event()])


def test_sealing_puts_a_header_before_the_drafts_own_bytes() -> None:
    draft = build_draft([begin("a", "x", "y")], origin=ORIGIN)
    sealed_batch = seal(draft, task_id=TASK, epoch=3, first_sequence=300, time_ns=TIME_NS + 5)
    assert sealed_batch.endswith(draft.body)
    header = event_pb2.EventBatch.FromString(sealed_batch).header
    assert header == parse_header(sealed_batch)
    assert (header.task_id, header.epoch, header.first_sequence) == (TASK, 3, 300)
    assert (header.count, header.kinds, header.origin) == (2, EventKind.DELTA.bit, ORIGIN)
    assert header.time.ToNanoseconds() == TIME_NS + 5
    assert last_sequence(sealed_batch) == 301


def test_a_header_longer_than_a_one_byte_length_is_parsed() -> None:
    origin = event_pb2.Origin(agent="x" * 40_000, task_id="child", first_sequence=1)
    sealed_batch = sealed([begin("a", "x")], 9, origin=origin)
    assert parse_header(sealed_batch).first_sequence == 9


@pytest.mark.parametrize("bytes_", [b"", b"\x12\x00", b"\x0a", b"\x0a\xff"])
def test_a_header_of_malformed_bytes_is_refused(bytes_: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_header(bytes_)


def test_trimming_a_batch_that_begins_after_the_cursor_changes_nothing() -> None:
    sealed_batch = sealed([begin("a", "x", "y")], 5)
    assert trim_batch(sealed_batch, 4) is sealed_batch
    assert trim_batch(sealed_batch, 0) is sealed_batch


def test_trimming_splits_a_run_and_leaves_its_start_with_the_first_text() -> None:
    events = [working(), begin("a", "x", "y", "z", last=True), completed()]
    rest = parse_batch(trim_batch(sealed(events, 5, origin=ORIGIN), 6))
    assert rest.header.first_sequence == 7
    assert rest.header.count == 3
    assert rest.header.kinds == EventKind.DELTA.bit | EventKind.STATUS.bit
    assert rest.header.origin.first_sequence == ORIGIN.first_sequence + 2
    assert list(rest.events) == [append("a", "y", "z", last=True), completed()]


def test_trimming_splits_a_run_of_a_plan() -> None:
    rest = parse_batch(trim_batch(sealed([plan_event("p", 2, ["1", "2", "3"])], 1), 2))
    assert list(rest.events) == [plan_event("p", 2, ["3"])]


def test_parsing_up_to_a_sequence_keeps_the_beginning_of_a_run_open() -> None:
    events = [working(), begin("a", "x", "y", "z", last=True), completed()]
    first = parse_batch(sealed(events, 5), until=7)
    assert (first.header.count, first.header.kinds) == (
        3,
        EventKind.STATUS.bit | EventKind.DELTA.bit,
    )
    assert list(first.events) == [working(), begin("a", "x", "y")]
    assert parse_batch(sealed(events, 5), until=9) == parse_batch(sealed(events, 5))
    plan = parse_batch(sealed([plan_event("p", 2, ["1", "2"])]), until=1)
    assert list(plan.events) == [plan_event("p", 2, ["1"])]


def spliced(batch: bytes, forwarded: dict[str, int], agent: str = "math") -> list[Draft]:
    return splice(batch, parse_batch(batch), agent=agent, forwarded=forwarded)


def test_a_parent_forwards_deltas_and_rewinds_and_nothing_else() -> None:
    events = [
        working(),
        begin("a", "x", "y"),
        rewound("a"),
        completed(),
        append("b", "z"),
    ]
    drafts = spliced(sealed(events, 10, task_id="child"), {})
    assert [draft.count for draft in drafts] == [3, 1]
    assert [draft.origin for draft in drafts] == [
        event_pb2.Origin(agent="math", task_id="child", first_sequence=11, path=["math"]),
        event_pb2.Origin(agent="math", task_id="child", first_sequence=15, path=["math"]),
    ]
    assert event_pb2.EventBatch.FromString(drafts[0].body).events == events[1:3]


def test_events_forwarded_twice_keep_their_writer_and_name_the_child_they_came_through() -> None:
    forwarded = sealed([begin("a", "x")], 3, task_id="middle", origin=ORIGIN)
    (draft,) = spliced(forwarded, {}, agent="supervisor")
    assert draft.origin == event_pb2.Origin(
        agent="math",
        task_id="child",
        first_sequence=7,
        path=["supervisor", "math"],
        child_task_id="middle",
    )


def test_splicing_again_adds_only_new_events() -> None:
    forwarded_sequences: dict[str, int] = {}
    first = sealed([begin("a", "x", "y")], 1, task_id="child")
    assert len(spliced(first, forwarded_sequences)) == 1
    assert forwarded_sequences == {"child": 2}
    assert spliced(first, forwarded_sequences) == []
    longer = sealed([begin("a", "x", "y", "z")], 1, task_id="child")
    (rest,) = spliced(longer, forwarded_sequences)
    assert rest.origin is not None
    assert rest.origin.first_sequence == 3
    assert list(event_pb2.EventBatch.FromString(rest.body).events) == [append("a", "z")]
    assert forwarded_sequences == {"child": 3}


def test_a_close_without_content_covers_one_sequence() -> None:
    assert event_count(append("a", last=True)) == 1
