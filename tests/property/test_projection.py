"""The projection of any journal, for any join point and any number of interruptions."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.journal.strategies import Entries, batches, fold, journals
from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire import json_values
from trunkline.a2a_wire.v1_0 import json_writer as v1_json
from trunkline.core.json_values import struct_json
from trunkline.v1 import artifact_pb2, task_pb2
from trunkline_bridge.a2a.projection import TaskProjection, WireEvent, project_task


class Client:
    """A client that applies events as A2A specifies."""

    def __init__(self) -> None:
        self.task = task_pb2.Task()
        self.artifacts: dict[str, artifact_pb2.Artifact] = {}

    def apply(self, response: a2a_pb2.StreamResponse) -> None:
        if response.HasField("task"):
            self.task.CopyFrom(response.task)
            self.artifacts = {
                task_artifact.artifact_id: task_artifact for task_artifact in self.task.artifacts
            }
        elif response.HasField("status_update"):
            self.task.status.CopyFrom(response.status_update.status)
            self.task.metadata.MergeFrom(response.status_update.metadata)
        else:
            update = response.artifact_update
            if not update.append:
                self.artifacts[update.artifact.artifact_id] = update.artifact
                return
            artifact = self.artifacts[update.artifact.artifact_id]
            artifact.parts.extend(update.artifact.parts)


def to_comparable(artifact: artifact_pb2.Artifact) -> dict[str, Any]:
    """Convert an artifact to JSON with adjacent texts joined, for comparison."""
    joined_artifact = artifact_pb2.Artifact()
    joined_artifact.CopyFrom(artifact)
    del joined_artifact.parts[:]
    for part in artifact.parts:
        if (
            part.HasField("text")
            and joined_artifact.parts
            and joined_artifact.parts[-1].HasField("text")
        ):
            joined_artifact.parts[-1].text += part.text
        elif not (part.HasField("text") and not part.text):
            joined_artifact.parts.append(part)
    wrapped = task_pb2.Task(artifacts=[joined_artifact])
    artifact_json: dict[str, Any] = v1_json.task_json(wrapped)["artifacts"][0]
    return artifact_json


def to_comparable_by_id(artifacts: list[artifact_pb2.Artifact]) -> dict[str, Any]:
    return {artifact.artifact_id: to_comparable(artifact) for artifact in artifacts}


def list_events(events: list[WireEvent]) -> list[tuple[str, json_values.Json]]:
    return [(event.id, v1_json.stream_response_json(event.response)) for event in events]


def uninterrupted(entries: Entries) -> list[WireEvent]:
    projection = TaskProjection()
    return [event for batch in batches(entries, set()) for event in projection.apply(batch)]


@given(journals(), st.data())
def test_a_client_that_joins_anywhere_ends_with_the_final_task(
    entries: Entries, data: st.DataObject
) -> None:
    join_sequence = data.draw(st.integers(1, len(entries)))
    cuts = data.draw(st.sets(st.integers(1, len(entries))))
    snapshot = fold(entries, upto=join_sequence)
    client = Client()
    client.apply(a2a_pb2.StreamResponse(task=project_task(snapshot)))
    projection = TaskProjection(snapshot)
    for batch in batches(entries, cuts, after=join_sequence):
        for event in projection.apply(batch):
            client.apply(event.response)
    final = project_task(fold(entries, upto=len(entries)))
    assert to_comparable_by_id(list(client.artifacts.values())) == to_comparable_by_id(
        list(final.artifacts)
    )
    assert client.task.status == final.status
    assert struct_json(client.task.metadata) == struct_json(final.metadata)


@given(journals(), st.data())
def test_the_split_into_batches_makes_no_difference(entries: Entries, data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(entries))))
    projection = TaskProjection()
    events = [event for batch in batches(entries, cuts) for event in projection.apply(batch)]
    assert list_events(events) == list_events(uninterrupted(entries))


@given(journals(), st.data())
def test_a_stream_resumed_after_any_event_equals_the_uninterrupted_one(
    entries: Entries, data: st.DataObject
) -> None:
    all_events = uninterrupted(entries)
    last_seen = data.draw(st.integers(0, len(all_events) - 1))
    sequence, n = all_events[last_seen].sequence, all_events[last_seen].n
    projection = TaskProjection(fold(entries, upto=sequence - 1) if sequence > 1 else None)
    resumed = [
        event
        for batch in batches(entries, set(), after=sequence - 1)
        for event in projection.apply(batch)
        if (event.sequence, event.n) > (sequence, n)
    ]
    assert list_events(resumed) == list_events(all_events[last_seen + 1 :])


@given(journals())
def test_event_ids_increase(entries: Entries) -> None:
    ids = [(event.sequence, event.n) for event in uninterrupted(entries)]
    assert ids == sorted(set(ids))
