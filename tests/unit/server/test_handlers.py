"""What the encoder writes is what a reader of the contract reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.server.handlers import (
    MESSAGE_BYTES,
    encode_direct_reply,
    encode_message_responses,
    encode_watch_responses,
)
from trunkline.tasks.watch import WatchFrame
from trunkline.v1 import (
    event_pb2,
    message_pb2,
    message_service_pb2,
    part_pb2,
    snapshot_pb2,
    task_service_pb2,
)


def batch(first: int, text: str = "x") -> event_pb2.EventBatch:
    made = event_pb2.EventBatch()
    made.header.task_id = "t-1"
    made.header.first_sequence = first
    made.events.add().delta.texts.append(text)
    return made


def snapshot(text: str) -> snapshot_pb2.TaskSnapshot:
    made = snapshot_pb2.TaskSnapshot(sequence=3, agent="math")
    made.task.artifacts.add().parts.append(part_pb2.Part(text=text))
    return made


sizes = st.one_of(st.integers(0, 300), st.sampled_from([127, 128, 16_383, 16_384, 40_000]))
frames = st.builds(
    lambda whole, texts: (
        None if whole is None else snapshot("s" * whole),
        [batch(n + 1, "x" * size) for n, size in enumerate(texts)],
    ),
    st.none() | sizes,
    st.lists(sizes, max_size=8),
)


@given(frames)
def test_a_frame_reads_back_as_it_was_from_either_stream(
    content: tuple[snapshot_pb2.TaskSnapshot | None, list[event_pb2.EventBatch]],
) -> None:
    whole, batches = content
    frame = WatchFrame(whole, [each.SerializeToString() for each in batches])
    watched = [
        task_service_pb2.WatchTaskResponse.FromString(data)
        for data in encode_watch_responses(frame)
    ]
    streamed = [
        message_service_pb2.StreamMessageResponse.FromString(data)
        for data in encode_message_responses(frame)
    ]
    for responses in (watched, streamed):
        assert [each for response in responses for each in response.batches] == batches
        assert [r.snapshot for r in responses if r.HasField("snapshot")] == (
            [] if whole is None else [whole]
        )
        # The snapshot is where the batches go on from, so it can't come behind any.
        assert not any(response.HasField("snapshot") for response in responses[1:])


def test_batches_that_are_ready_together_travel_in_one_message() -> None:
    frame = WatchFrame(snapshot("s"), [batch(n).SerializeToString() for n in range(1, 100)])
    assert len(list(encode_watch_responses(frame))) == 1


def test_a_large_frame_travels_in_several_messages_of_bounded_size() -> None:
    frame = WatchFrame(None, [batch(n, "x" * 10_000).SerializeToString() for n in range(1, 41)])
    responses = list(encode_message_responses(frame))
    assert len(responses) == 7
    assert max(map(len, responses)) < MESSAGE_BYTES + 100


def test_a_batch_larger_than_the_bound_travels_alone() -> None:
    frame = WatchFrame(
        None, [batch(1, "x" * 200_000).SerializeToString(), batch(2).SerializeToString()]
    )
    assert len(list(encode_watch_responses(frame))) == 2


def test_an_empty_frame_sends_nothing() -> None:
    assert list(encode_watch_responses(WatchFrame(None, []))) == []


@pytest.mark.parametrize("text", ["", "hello"])
def test_a_direct_reply_is_a_response_of_its_own(text: str) -> None:
    message = message_pb2.Message(message_id="m-1", parts=[part_pb2.Part(text=text)])
    response = message_service_pb2.StreamMessageResponse.FromString(encode_direct_reply(message))
    assert response.message == message
    assert not response.HasField("snapshot")
