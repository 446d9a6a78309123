"""The generation of A2A 1.1, for any journal, batches, restarts and takeovers."""

from collections.abc import Iterator, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.journal.strategies import TASK, Entries, batches, fold, journals
from trunkline.a2a.v1_1 import a2a_pb2 as v1_1_pb2
from trunkline.journal.fold import Fold
from trunkline.journal.timeline import MAX_BYTES, MAX_ENTRIES
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2, task_pb2
from trunkline_bridge.projection import (
    GenerationParameters,
    TaskProjection,
    WireEvent,
    project_versioned_task,
)
from trunkline_bridge.versions.v1_1.messages import to_stream_response

many_examples = settings(max_examples=300)


def project(entries: Entries, cuts: set[int]) -> list[WireEvent]:
    projection = TaskProjection()
    return [event for batch in batches(entries, cuts) for event in projection.apply(batch)]


def expected_generations(entries: Entries) -> list[int]:
    """Count the events that a client gets, and the client's own messages after the first."""
    projection = TaskProjection()
    generation = 0
    generations = []
    for batch in batches(entries, set(range(len(entries)))):
        generation += batch.events[0].HasField("turn_started")
        for _ in projection.apply(batch):
            generation += 1
            generations.append(generation)
    return generations


def restarted_fold(entries: Entries, cuts: set[int]) -> snapshot_pb2.TaskSnapshot:
    """Fold a journal with a restart at each cut: a new fold continues a stored snapshot."""
    current = Fold(TASK)
    for batch in batches(entries, cuts):
        current.apply(batch)
        stored = current.snapshot(with_timeline=True).SerializeToString()
        snapshot = snapshot_pb2.TaskSnapshot.FromString(stored)
        current = Fold(TASK, snapshot, forwarded=current.forwarded_sequences)
    return current.snapshot(with_timeline=True)


@many_examples
@given(journals(), st.data())
def test_generations_count_what_clients_get_whatever_the_batches_are(
    entries: Entries, data: st.DataObject
) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(entries))))
    generations = [event.generation for event in project(entries, cuts)]
    assert generations == expected_generations(entries)
    assert generations[0] == 1
    has_turns = any(event.HasField("turn_started") for _, event in entries)
    assert has_turns or generations == list(range(1, len(generations) + 1))


@many_examples
@given(journals(), st.data())
def test_the_fold_counts_the_events_of_the_projection(
    entries: Entries, data: st.DataObject
) -> None:
    upto = data.draw(st.integers(1, len(entries)))
    cuts = data.draw(st.sets(st.integers(1, len(entries))))
    projection = TaskProjection()
    for batch in batches(entries[:upto], cuts):
        projection.apply(batch)
    assert fold(entries, upto=upto).generation == projection.generation


@many_examples
@given(journals(), st.data())
def test_a_restart_anywhere_changes_no_generation(entries: Entries, data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(entries))))
    assert restarted_fold(entries, cuts) == fold(entries, upto=len(entries))


@many_examples
@given(journals(), st.data())
def test_a_stream_from_any_snapshot_continues_the_generations(
    entries: Entries, data: st.DataObject
) -> None:
    """A reader that joins, resumes, or changes to another bridge or host gets the same numbers."""
    join_sequence = data.draw(st.integers(1, len(entries)))
    cuts = data.draw(st.sets(st.integers(1, len(entries))))
    projection = TaskProjection(fold(entries, upto=join_sequence))
    later = [
        event
        for batch in batches(entries, cuts, after=join_sequence)
        for event in projection.apply(batch)
    ]
    by_id = {event.id: event.generation for event in project(entries, set())}
    assert [event.generation for event in later] == [by_id[event.id] for event in later]


@many_examples
@given(journals())
def test_the_timeline_and_artifacts_have_the_generations_of_their_events(
    entries: Entries,
) -> None:
    events = project(entries, set())
    task = project_versioned_task(fold(entries, upto=len(entries)), GenerationParameters())
    assert isinstance(task, v1_1_pb2.Task)
    responses = [to_stream_response(event) for event in events]
    statuses = [
        (response.status_update.generation, response.status_update.status)
        for response in responses
        if response.HasField("status_update")
    ]
    shown = [
        (entry.generation, entry.status) for entry in task.timeline if entry.HasField("status")
    ]
    assert shown == statuses
    messages = [entry.message for entry in task.timeline if entry.HasField("message")]
    turns = [event.turn_started.message for _, event in entries if event.HasField("turn_started")]
    assert messages == [entries[0][1].created.message, *turns]
    generations = [entry.generation for entry in task.timeline]
    assert generations == sorted(set(generations))
    updates = [
        response.artifact_update for response in responses if response.HasField("artifact_update")
    ]
    for artifact in task.artifacts:
        own = [update for update in updates if update.artifact.artifact_id == artifact.artifact_id]
        assert artifact.start_generation == own[0].generation
        assert artifact.end_generation == (own[-1].generation if own[-1].last_chunk else 0)


def status_batches(texts: Sequence[str]) -> Iterator[event_pb2.EventBatch]:
    created = event_pb2.TaskCreated(context_id="ctx", message=message_pb2.Message(message_id="m"))
    events = [event_pb2.Event(created=created)]
    for text in texts:
        event = event_pb2.Event()
        event.status.status.state = task_pb2.TASK_STATE_WORKING
        event.status.status.message.parts.add(text=text)
        events.append(event)
    for sequence, event in enumerate(events, start=1):
        header = event_pb2.BatchHeader(task_id=TASK, first_sequence=sequence, count=1, epoch=1)
        yield event_pb2.EventBatch(header=header, events=[event])


@given(st.integers(0, 3 * MAX_ENTRIES), st.integers(1, 3000))
@settings(max_examples=20, deadline=None)
def test_a_long_timeline_is_its_latest_entries(count: int, length: int) -> None:
    current = Fold(TASK)
    for batch in status_batches([str(number).zfill(length) for number in range(count)]):
        current.apply(batch)
    timeline = current.snapshot(with_timeline=True).timeline
    assert 1 <= len(timeline) <= MAX_ENTRIES
    assert sum(entry.ByteSize() for entry in timeline) <= MAX_BYTES
    assert [entry.generation for entry in timeline] == list(
        range(count + 2 - len(timeline), count + 2)
    )
