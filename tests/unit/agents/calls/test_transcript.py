"""Transcripts of children accept valid events only, and store a bounded part of the text."""

import time
from collections.abc import Sequence

import pytest

from harness.journal.builders import delta_event
from trunkline.agents.calls.outcome import MAX_TEXT_CHARS
from trunkline.agents.calls.transcript import Transcript
from trunkline.errors import PeerProtocolError
from trunkline.journal.events import build_draft, seal
from trunkline.tasks.approvals import build_question_parts
from trunkline.v1 import artifact_pb2, event_pb2, message_pb2, part_pb2, snapshot_pb2, task_pb2

State = task_pb2.TaskState
TASK = "journal-child"


def sealed(
    *events: event_pb2.Event, at: int, task_id: str = TASK, origin: str | None = None
) -> bytes:
    """Return a batch as a child's host sends it."""
    first = event_pb2.Origin(task_id=origin) if origin is not None else None
    draft = build_draft(events, origin=first)
    return seal(draft, task_id=task_id, epoch=1, first_sequence=at, time_ns=time.time_ns())


def status_event(state: task_pb2.TaskState.ValueType, text: str = "") -> event_pb2.Event:
    event = event_pb2.Event()
    event.status.status.state = state
    if text:
        event.status.status.message.parts.add(text=text)
    return event


def created_event(message_id: str = "m-1") -> event_pb2.Event:
    message = message_pb2.Message(message_id=message_id)
    return event_pb2.Event(created=event_pb2.TaskCreated(message=message))


def turn_event(message_id: str) -> event_pb2.Event:
    message = message_pb2.Message(message_id=message_id)
    return event_pb2.Event(turn_started=event_pb2.TurnStarted(message=message, turn=2))


def first_delta(*texts: str, artifact_id: str = "a", last: bool = False) -> event_pb2.Event:
    return delta_event(artifact_id, texts, start=event_pb2.ArtifactStart(), last=last)


def rewind_event(text: str) -> event_pb2.Event:
    remains = artifact_pb2.Artifact(artifact_id="a", parts=[part_pb2.Part(text=text)])
    return event_pb2.Event(rewound=event_pb2.ArtifactRewound(remains=remains))


def read_transcript(*events: event_pb2.Event, message_id: str = "m-1") -> Transcript:
    transcript = Transcript(TASK, "agent", message_id=message_id)
    for event in events:
        transcript.apply(sealed(event, at=transcript.cursor + 1))
    return transcript


COMPLETED = status_event(State.TASK_STATE_COMPLETED)


@pytest.mark.parametrize(
    ("before", "batch", "problem"),
    [
        ([created_event()], b"\xff\xff\xff", "it sent invalid bytes"),
        ([created_event()], sealed(first_delta("x"), at=3), "event 3 follows event 1"),
        ([created_event()], sealed(first_delta("x"), at=1), "event 1 follows event 1"),
        (
            [created_event()],
            sealed(first_delta("x"), at=2, task_id="other"),
            "events of another task",
        ),
        ([created_event()], sealed(first_delta("x"), at=2, origin=""), "events without a task"),
        ([created_event()], sealed(delta_event("a", ["x"]), at=2), "appended to before its create"),
        ([created_event(), first_delta("x")], sealed(first_delta("x"), at=3), "was created twice"),
        (
            [created_event(), first_delta("x", last=True)],
            sealed(delta_event("a", ["y"]), at=3),
            "appended to after its close",
        ),
        ([created_event()], sealed(rewind_event("x"), at=2), "rewound before its create"),
        ([created_event(), COMPLETED], sealed(first_delta("x"), at=3), "sent events after its end"),
        ([created_event()], sealed(COMPLETED, first_delta("x"), at=2), "sent events after its end"),
    ],
    # Batches hold a timestamp, which a test id must not contain.
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_event_that_breaks_the_contract_is_refused(
    before: Sequence[event_pb2.Event], batch: bytes, problem: str
) -> None:
    transcript = read_transcript(*before)

    with pytest.raises(PeerProtocolError, match=problem):
        transcript.apply(batch)


def test_a_header_that_does_not_match_its_batch_is_refused() -> None:
    for changes in ({"count": 3}, {"kinds": 1 << 3}):
        batch = event_pb2.EventBatch.FromString(
            sealed(status_event(State.TASK_STATE_WORKING), at=1)
        )
        for name, value in changes.items():
            setattr(batch.header, name, value)
        with pytest.raises(PeerProtocolError, match="does not match its header"):
            read_transcript().apply(batch.SerializeToString())


def test_an_empty_event_is_refused() -> None:
    header = event_pb2.BatchHeader(task_id=TASK, first_sequence=1, count=1)
    batch = event_pb2.EventBatch(header=header, events=[event_pb2.Event()])

    with pytest.raises(PeerProtocolError, match="an empty event"):
        read_transcript().apply(batch.SerializeToString())


def test_the_outcome_is_the_text_of_the_turn_that_the_message_opened() -> None:
    transcript = read_transcript(
        created_event(),
        first_delta("before", last=True),
        status_event(State.TASK_STATE_INPUT_REQUIRED, "which?"),
        message_id="m-2",
    )
    assert not transcript.is_over

    for event in (turn_event("m-2"), first_delta("one ", "two", artifact_id="b"), COMPLETED):
        assert not transcript.is_over
        transcript.apply(sealed(event, at=transcript.cursor + 1))

    assert transcript.is_over
    assert transcript.outcome().text == "one two"
    assert transcript.cursor == 7


def test_text_before_the_snapshot_does_not_count() -> None:
    snapshot = snapshot_pb2.TaskSnapshot(sequence=9)
    snapshot.task.artifacts.add(artifact_id="a")
    snapshot.artifacts.add(artifact_id="a", first_sequence=3)
    transcript = Transcript(TASK, "agent", snapshot)

    transcript.apply(sealed(delta_event("a", ["late"]), first_delta("new", artifact_id="b"), at=10))
    transcript.apply(sealed(COMPLETED, at=12))

    assert transcript.outcome().text == "new"


def test_rewound_text_is_removed() -> None:
    transcript = read_transcript(
        created_event(),
        first_delta("one ", "two "),
        rewind_event("one "),
        delta_event("a", ["three"]),
    )
    transcript.apply(sealed(COMPLETED, at=transcript.cursor + 1))

    assert transcript.outcome().text == "one three"


def test_a_long_text_is_shortened_with_a_note() -> None:
    transcript = read_transcript(created_event(), first_delta("x" * 1000))
    for _ in range(2 * MAX_TEXT_CHARS // 1000):
        transcript.apply(sealed(delta_event("a", ["y" * 1000]), at=transcript.cursor + 1))
    transcript.apply(sealed(COMPLETED, at=transcript.cursor + 1))

    text = transcript.outcome().text

    assert len(text) < MAX_TEXT_CHARS + 200
    assert text.startswith("x" * 1000 + "y")
    assert text.endswith("[Shortened: 525,000 characters in all; agent agent has the rest.]")


def test_a_long_reason_is_shortened_too() -> None:
    transcript = read_transcript(
        created_event(), status_event(State.TASK_STATE_FAILED, "z" * (MAX_TEXT_CHARS + 1))
    )

    assert transcript.outcome().text.endswith("agent agent has the rest.]")


def approval_event(number: int) -> event_pb2.Event:
    requested = event_pb2.ApprovalRequested(approval_id=f"{TASK}.{number}", tool="shop/order")
    return event_pb2.Event(approval_requested=requested)


def question(*parts: part_pb2.Part) -> event_pb2.Event:
    event = status_event(State.TASK_STATE_INPUT_REQUIRED, "With cents?")
    event.status.status.message.parts.extend(parts)
    return event


def test_an_approval_request_of_a_child_is_asked_by_its_parent() -> None:
    approval = snapshot_pb2.ApprovalInfo(requested=approval_event(1).approval_requested)
    parts = build_question_parts([approval])
    transcript = read_transcript(created_event(), approval_event(1), question(*parts))
    assert transcript.outcome().text == "With cents?"
    assert [event.approval_requested.approval_id for event in transcript.approval_events] == [
        f"{TASK}.1"
    ]
    # The journal of a remote agent is on another host: its mirror has only the words of the
    # question.
    remote_text = read_transcript(created_event(), question(*parts)).outcome().text
    assert remote_text.startswith("With cents? ")
    assert "shop/order" in remote_text
