"""Whatever a journal holds, wherever a reader joins and however often it is cut off."""

from typing import Any

from google.protobuf import struct_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.journal.strategies import Entries, batches, fold, journals
from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import artifact_pb2, task_pb2
from trunkline_bridge.projection import TaskProjection, WireEvent, project_task
from trunkline_bridge.versions import json_values
from trunkline_bridge.versions.v1_0 import json_writer as v1_json

often = settings(max_examples=300)


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
    found: dict[str, Any] = v1_json.task_json(wrapped)["artifacts"][0]
    return found


def held(artifacts: list[artifact_pb2.Artifact]) -> dict[str, Any]:
    return {one.artifact_id: comparable(one) for one in artifacts}


def shown(events: list[WireEvent]) -> list[tuple[str, json_values.Json]]:
    return [(event.id, v1_json.stream_response_json(event.response)) for event in events]


def uninterrupted(entries: Entries) -> list[WireEvent]:
    projection = TaskProjection()
    return [event for one in batches(entries, set()) for event in projection.apply(one)]


@often
@given(journals(), st.data())
def test_a_client_that_joins_anywhere_ends_up_with_the_task_as_it_is(
    entries: Entries, data: st.DataObject
) -> None:
    joined = data.draw(st.integers(1, len(entries)))
    cuts = data.draw(st.sets(st.integers(1, len(entries))))
    snapshot = fold(entries, upto=joined)
    client = Client()
    client.apply(a2a_pb2.StreamResponse(task=project_task(snapshot)))
    projection = TaskProjection(snapshot)
    for one in batches(entries, cuts, after=joined):
        for event in projection.apply(one):
            client.apply(event.response)
    final = project_task(fold(entries, upto=len(entries)))
    assert held(list(client.artifacts.values())) == held(list(final.artifacts))
    assert client.task.status == final.status
    assert struct(client.task.metadata) == struct(final.metadata)


def struct(content: struct_pb2.Struct) -> json_values.Json:
    return {name: json_values.value_json(one) for name, one in content.fields.items()}


@often
@given(journals(), st.data())
def test_how_events_were_put_into_batches_makes_no_difference(
    entries: Entries, data: st.DataObject
) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(entries))))
    projection = TaskProjection()
    events = [event for one in batches(entries, cuts) for event in projection.apply(one)]
    assert shown(events) == shown(uninterrupted(entries))


@often
@given(journals(), st.data())
def test_a_stream_resumed_behind_any_event_goes_on_exactly_as_the_uninterrupted_one(
    entries: Entries, data: st.DataObject
) -> None:
    whole = uninterrupted(entries)
    seen = data.draw(st.integers(0, len(whole) - 1))
    sequence, n = whole[seen].sequence, whole[seen].n
    projection = TaskProjection(fold(entries, upto=sequence - 1) if sequence > 1 else None)
    again = [
        event
        for one in batches(entries, set(), after=sequence - 1)
        for event in projection.apply(one)
        if (event.sequence, event.n) > (sequence, n)
    ]
    assert shown(again) == shown(whole[seen + 1 :])


@often
@given(journals())
def test_ids_of_events_only_grow(entries: Entries) -> None:
    ids = [(event.sequence, event.n) for event in uninterrupted(entries)]
    assert ids == sorted(set(ids))
