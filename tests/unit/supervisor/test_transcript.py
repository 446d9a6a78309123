"""What the supervisor takes from a child: what the contract allows, and so much of its text."""

import time
from collections.abc import Sequence

import pytest

from trunkline.errors import PeerProtocolError
from trunkline.journal.events import build_draft, delta_event, seal
from trunkline.supervisor.transcript import KEPT_CHARS, Transcript
from trunkline.tasks.approvals import build_question_parts
from trunkline.v1 import artifact_pb2, event_pb2, message_pb2, part_pb2, snapshot_pb2, task_pb2

State = task_pb2.TaskState
TASK = "journal-child"


def sealed(
    *events: event_pb2.Event, at: int, task_id: str = TASK, origin: str | None = None
) -> bytes:
    """A batch as a child's host sends it."""
    first = event_pb2.Origin(task_id=origin) if origin is not None else None
    one = build_draft(events, origin=first)
    return seal(one, task_id=task_id, epoch=1, first_sequence=at, time_ns=time.time_ns())


def status(state: task_pb2.TaskState.ValueType, text: str = "") -> event_pb2.Event:
    event = event_pb2.Event()
    event.status.status.state = state
    if text:
        event.status.status.message.parts.add(text=text)
    return event


def created(message_id: str = "m-1") -> event_pb2.Event:
    message = message_pb2.Message(message_id=message_id)
    return event_pb2.Event(created=event_pb2.TaskCreated(message=message))


def turn(message_id: str) -> event_pb2.Event:
    message = message_pb2.Message(message_id=message_id)
    return event_pb2.Event(turn_started=event_pb2.TurnStarted(message=message, turn=2))


def begun(*texts: str, artifact_id: str = "a", last: bool = False) -> event_pb2.Event:
    return delta_event(artifact_id, texts, start=event_pb2.ArtifactStart(), last=last)


def rewound(text: str) -> event_pb2.Event:
    remains = artifact_pb2.Artifact(artifact_id="a", parts=[part_pb2.Part(text=text)])
    return event_pb2.Event(rewound=event_pb2.ArtifactRewound(remains=remains))


def heard(*events: event_pb2.Event, message_id: str = "m-1") -> Transcript:
    transcript = Transcript(TASK, "agent", message_id=message_id)
    for event in events:
        transcript.apply(sealed(event, at=transcript.cursor + 1))
    return transcript


COMPLETED = status(State.TASK_STATE_COMPLETED)


@pytest.mark.parametrize(
    ("before", "batch", "problem"),
    [
        ([created()], b"\xff\xff\xff", "it sent invalid bytes"),
        ([created()], sealed(begun("x"), at=3), "event 3 follows event 1"),
        ([created()], sealed(begun("x"), at=1), "event 1 follows event 1"),
        ([created()], sealed(begun("x"), at=2, task_id="other"), "events of another task"),
        ([created()], sealed(begun("x"), at=2, origin=""), "events without a task"),
        ([created()], sealed(delta_event("a", ["x"]), at=2), "appended to before its create"),
        ([created(), begun("x")], sealed(begun("x"), at=3), "was created twice"),
        (
            [created(), begun("x", last=True)],
            sealed(delta_event("a", ["y"]), at=3),
            "appended to after its close",
        ),
        ([created()], sealed(rewound("x"), at=2), "rewound before its create"),
        ([created(), COMPLETED], sealed(begun("x"), at=3), "sent events after its end"),
        ([created()], sealed(COMPLETED, begun("x"), at=2), "sent events after its end"),
    ],
    # Batches hold the time they were made at; the name of a test must not.
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_contract_forbids_is_refused(
    before: Sequence[event_pb2.Event], batch: bytes, problem: str
) -> None:
    transcript = heard(*before)

    with pytest.raises(PeerProtocolError, match=problem):
        transcript.apply(batch)


def test_a_header_that_says_something_else_than_its_batch_is_refused() -> None:
    for change in ({"count": 3}, {"kinds": 1 << 3}):
        batch = event_pb2.EventBatch.FromString(sealed(status(State.TASK_STATE_WORKING), at=1))
        for name, value in change.items():
            setattr(batch.header, name, value)
        with pytest.raises(PeerProtocolError, match="does not match its header"):
            heard().apply(batch.SerializeToString())


def test_an_event_that_says_nothing_is_refused() -> None:
    header = event_pb2.BatchHeader(task_id=TASK, first_sequence=1, count=1)
    batch = event_pb2.EventBatch(header=header, events=[event_pb2.Event()])

    with pytest.raises(PeerProtocolError, match="an empty event"):
        heard().apply(batch.SerializeToString())


def test_the_outcome_is_the_text_of_the_turn_that_the_message_opened() -> None:
    transcript = heard(
        created(),
        begun("before", last=True),
        status(State.TASK_STATE_INPUT_REQUIRED, "which?"),
        message_id="m-2",
    )
    assert not transcript.is_over

    for event in (turn("m-2"), begun("one ", "two", artifact_id="b"), COMPLETED):
        assert not transcript.is_over
        transcript.apply(sealed(event, at=transcript.cursor + 1))

    assert transcript.is_over
    assert transcript.outcome().text == "one two"
    assert transcript.cursor == 7


def test_behind_a_snapshot_what_was_written_before_does_not_count() -> None:
    snapshot = snapshot_pb2.TaskSnapshot(sequence=9)
    snapshot.task.artifacts.add(artifact_id="a")
    snapshot.artifacts.add(artifact_id="a", first_sequence=3)
    transcript = Transcript(TASK, "agent", snapshot)

    transcript.apply(sealed(delta_event("a", ["late"]), begun("new", artifact_id="b"), at=10))
    transcript.apply(sealed(COMPLETED, at=12))

    assert transcript.outcome().text == "new"


def test_what_is_rewound_is_forgotten() -> None:
    transcript = heard(
        created(), begun("one ", "two "), rewound("one "), delta_event("a", ["three"])
    )
    transcript.apply(sealed(COMPLETED, at=transcript.cursor + 1))

    assert transcript.outcome().text == "one three"


def test_a_long_text_is_kept_in_part_and_that_is_said() -> None:
    transcript = heard(created(), begun("x" * 1000))
    for _ in range(2 * KEPT_CHARS // 1000):
        transcript.apply(sealed(delta_event("a", ["y" * 1000]), at=transcript.cursor + 1))
    transcript.apply(sealed(COMPLETED, at=transcript.cursor + 1))

    text = transcript.outcome().text

    assert len(text) < KEPT_CHARS + 200
    assert text.startswith("x" * 1000 + "y")
    assert text.endswith("[Shortened: 525,000 characters in all; agent agent has the rest.]")


def test_a_long_reason_is_shortened_too() -> None:
    transcript = heard(created(), status(State.TASK_STATE_FAILED, "z" * (KEPT_CHARS + 1)))

    assert transcript.outcome().text.endswith("agent agent has the rest.]")


def asking(number: int) -> event_pb2.Event:
    requested = event_pb2.ApprovalRequested(approval_id=f"{TASK}.{number}", tool="shop/order")
    return event_pb2.Event(approval_requested=requested)


def question(*parts: part_pb2.Part) -> event_pb2.Event:
    event = status(State.TASK_STATE_INPUT_REQUIRED, "With cents?")
    event.status.status.message.parts.extend(parts)
    return event


def test_what_a_child_asks_for_approval_is_its_parent_s_to_ask() -> None:
    approval = snapshot_pb2.ApprovalInfo(requested=asking(1).approval_requested)
    parts = build_question_parts([approval])
    transcript = heard(created(), asking(1), question(*parts))
    assert transcript.outcome().text == "With cents?"
    assert [event.approval_requested.approval_id for event in transcript.approval_events] == [
        f"{TASK}.1"
    ]
    # A remote agent's journal is elsewhere: its words are all that its mirror has.
    elsewhere = heard(created(), question(*parts)).outcome().text
    assert elsewhere.startswith("With cents? ")
    assert "shop/order" in elsewhere
