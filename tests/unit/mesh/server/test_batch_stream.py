"""Responses that the encoder writes parse as messages of the contract."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.mesh.server.batch_stream import MESSAGE_BYTES, encode_responses
from trunkline.v1 import (
    event_pb2,
    message_service_pb2,
    part_pb2,
    snapshot_pb2,
    task_service_pb2,
)


def batch(first: int, text: str = "x") -> event_pb2.EventBatch:
    result = event_pb2.EventBatch()
    result.header.task_id = "t-1"
    result.header.first_sequence = first
    result.events.add().delta.texts.append(text)
    return result


def snapshot(text: str) -> snapshot_pb2.TaskSnapshot:
    result = snapshot_pb2.TaskSnapshot(sequence=3, agent="math")
    result.task.artifacts.add().parts.append(part_pb2.Part(text=text))
    return result


sizes = st.one_of(st.integers(0, 300), st.sampled_from([127, 128, 16_383, 16_384, 40_000]))
frames = st.builds(
    lambda whole, texts: (
        None if whole is None else snapshot("s" * whole),
        [batch(n + 1, "x" * size) for n, size in enumerate(texts)],
    ),
    st.none() | sizes,
    st.lists(sizes, max_size=8),
)


Response = message_service_pb2.StreamMessageResponse | task_service_pb2.WatchTaskResponse


@pytest.mark.parametrize(
    "kind", [message_service_pb2.StreamMessageResponse, task_service_pb2.WatchTaskResponse]
)
@given(frames)
def test_responses_of_either_stream_round_trip(
    kind: type[Response],
    content: tuple[snapshot_pb2.TaskSnapshot | None, list[event_pb2.EventBatch]],
) -> None:
    whole, batches = content
    first = kind(snapshot=whole).SerializeToString() if whole is not None else None
    sealed = [each.SerializeToString() for each in batches]
    responses = [
        kind.FromString(data)
        for data in encode_responses(sealed, kind.BATCHES_FIELD_NUMBER, first_response=first)
    ]
    assert [each for response in responses for each in response.batches] == batches
    assert [r.snapshot for r in responses if r.HasField("snapshot")] == (
        [] if whole is None else [whole]
    )
    # The batches continue from the snapshot, so it comes first.
    assert not any(response.HasField("snapshot") for response in responses[1:])


FIELD = task_service_pb2.WatchTaskResponse.BATCHES_FIELD_NUMBER


def test_batches_that_are_ready_together_travel_in_one_message() -> None:
    first = task_service_pb2.WatchTaskResponse(snapshot=snapshot("s")).SerializeToString()
    batches = [batch(n).SerializeToString() for n in range(1, 100)]
    assert len(list(encode_responses(batches, FIELD, first_response=first))) == 1
    assert len(list(encode_responses(batches, FIELD, first_response=b""))) == 1


def test_many_batches_travel_in_several_messages_of_bounded_size() -> None:
    batches = [batch(n, "x" * 10_000).SerializeToString() for n in range(1, 41)]
    responses = list(encode_responses(batches, FIELD))
    assert len(responses) == 7
    assert max(map(len, responses)) < MESSAGE_BYTES + 100


def test_a_batch_larger_than_the_bound_travels_alone() -> None:
    batches = [batch(1, "x" * 200_000).SerializeToString(), batch(2).SerializeToString()]
    assert len(list(encode_responses(batches, FIELD))) == 2
    assert len(list(encode_responses(batches, FIELD, first_response=b""))) == 2


def test_the_first_response_is_sent_without_batches() -> None:
    assert list(encode_responses([], FIELD)) == []
    assert list(encode_responses([], FIELD, first_response=b"")) == [b""]
