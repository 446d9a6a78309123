"""Resuming after an event: a known one, a future one, and one lost with an earlier epoch."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from trunkline.errors import CursorExpiredError
from trunkline.v1 import artifact_pb2, event_pb2, snapshot_pb2, task_pb2
from trunkline_bridge.a2a.projection import RELATIVE_LINKS, EventId, WireEvent
from trunkline_bridge.a2a.streams.task_streams import (
    StreamEnd,
    check_event_exists,
    is_last_event,
    parse_event_id,
    unseen_events,
)

TASK = "jrnl0001-task"


@dataclass
class Stream:
    """A stream after a cursor."""

    batches: Sequence[event_pb2.EventBatch]
    snapshot: snapshot_pb2.TaskSnapshot
    message: None = None

    def take_snapshot(self) -> snapshot_pb2.TaskSnapshot:
        return self.snapshot

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        for batch in self.batches:
            yield [batch.SerializeToString()]


def head(
    sequence: int,
    *,
    epoch: int = 1,
    state: task_pb2.TaskState.ValueType = task_pb2.TASK_STATE_WORKING,
    has_answer: bool = False,
) -> snapshot_pb2.TaskSnapshot:
    snapshot = snapshot_pb2.TaskSnapshot(sequence=sequence, epoch=epoch)
    snapshot.task.id = TASK
    snapshot.task.status.state = state
    snapshot.task.artifacts.append(artifact_pb2.Artifact(artifact_id="artifact-1"))
    kind = event_pb2.ARTIFACT_KIND_ANSWER if has_answer else event_pb2.ARTIFACT_KIND_UNSPECIFIED
    snapshot.artifacts.add(artifact_id="artifact-1", kind=kind)
    return snapshot


def texts(first_sequence: int, epoch: int, *content: str) -> event_pb2.EventBatch:
    header = event_pb2.BatchHeader(
        task_id=TASK, first_sequence=first_sequence, count=len(content), epoch=epoch
    )
    delta = event_pb2.ArtifactDelta(artifact_id="artifact-1", texts=content)
    return event_pb2.EventBatch(header=header, events=[event_pb2.Event(delta=delta)])


async def events_after(seen: str, *batches: event_pb2.EventBatch) -> list[WireEvent]:
    cursor = parse_event_id(seen)
    stream: Any = Stream(batches, head(cursor.sequence - 1))
    current = head(20, epoch=2)
    events: list[WireEvent] = []
    async for ready in await unseen_events(
        stream, StreamEnd(), seen=cursor, head=current, links=RELATIVE_LINKS
    ):
        events += ready
    return events


async def test_resuming_after_an_event_of_a_later_epoch() -> None:
    events = await events_after("7.0-2", texts(7, 2, "c", "d"))
    assert [event.id for event in events] == ["8.0-2"]


@pytest.mark.parametrize(("seen", "epoch"), [("7.0", 2), ("7.0-2", 3), ("7.0-3", 2)])
async def test_a_different_event_with_the_same_sequence_is_an_error(seen: str, epoch: int) -> None:
    with pytest.raises(CursorExpiredError) as caught:
        await events_after(seen, texts(7, epoch, "c"))
    assert (caught.value.after, caught.value.snapshot_sequence) == ("7", "20")


def test_resuming_after_an_event_lost_with_an_earlier_epoch_is_refused() -> None:
    with pytest.raises(CursorExpiredError):
        check_event_exists(EventId(10, 0, 1), head(9, epoch=2))


def test_the_last_event_of_an_ended_task_is_recognized() -> None:
    completed = task_pb2.TASK_STATE_COMPLETED
    assert is_last_event(EventId(9, 0), head(9, state=completed))
    # The end of a task may be two wire events.
    assert not is_last_event(EventId(9, 0), head(9, state=completed, has_answer=True))
    assert is_last_event(EventId(9, 1), head(9, state=completed, has_answer=True))
    assert is_last_event(EventId(9, 0), head(9, state=task_pb2.TASK_STATE_FAILED, has_answer=True))
    assert not is_last_event(EventId(9, 0), head(9))
    assert not is_last_event(EventId(8, 0), head(9, state=completed))
    assert not is_last_event(EventId(9, 0, 1), head(9, state=completed, epoch=2))
