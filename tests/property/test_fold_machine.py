"""The fold equals a model of lists of texts, and refuses illegal events."""

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from harness.journal.builders import (
    TASK,
    append,
    begin,
    completed,
    created,
    sealed,
    status,
    working,
)
from trunkline.errors import InvalidAgentResponseError
from trunkline.journal.batches import parse_batch
from trunkline.journal.events import event_count
from trunkline.journal.fold import Fold
from trunkline.v1 import artifact_pb2, event_pb2, part_pb2, task_pb2

TEXTS = st.lists(st.text(max_size=4), min_size=1, max_size=4)
NAMES = st.sampled_from(("a", "b", "c"))
# The task itself, or one of two children.
WRITERS = st.sampled_from(("", "child-1", "child-2"))


@dataclass(slots=True)
class ModelArtifact:
    """An artifact in the model."""

    text: str = ""
    is_closed: bool = False
    was_emptied: bool = False


@dataclass(slots=True)
class Model:
    """A task in the model."""

    artifacts: dict[tuple[str, str], ModelArtifact] = field(default_factory=dict)
    written_counts: dict[str, int] = field(default_factory=dict)
    sequence: int = 0
    state: int = task_pb2.TASK_STATE_SUBMITTED
    has_ended: bool = False


class FoldMachine(RuleBasedStateMachine):
    """Writes legal and illegal events of a task and its children."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.fold = Fold(TASK)

    @initialize()
    def create(self) -> None:
        self.put(created())

    def batch(self, event: event_pb2.Event, writer: str) -> event_pb2.EventBatch:
        origin = None
        if writer:
            first = self.model.written_counts.get(writer, 0) + 1
            origin = event_pb2.Origin(agent="leaf", task_id=writer, first_sequence=first)
        return parse_batch(sealed([event], self.model.sequence + 1, origin=origin))

    def put(self, event: event_pb2.Event, writer: str = "") -> None:
        """Apply a legal event."""
        self.fold.apply(self.batch(event, writer))
        self.model.sequence += event_count(event)
        if writer:
            written_count = self.model.written_counts.get(writer, 0)
            self.model.written_counts[writer] = written_count + event_count(event)

    def refuse(self, event: event_pb2.Event, writer: str = "") -> None:
        """Apply an illegal event to a copy, because a fold is unusable after a defect."""
        copy = Fold(TASK, self.fold.snapshot())
        with pytest.raises(InvalidAgentResponseError):
            copy.apply(self.batch(event, writer))

    @rule(writer=WRITERS, name=NAMES, texts=TEXTS, last=st.booleans())
    def start(self, writer: str, name: str, texts: list[str], last: bool) -> None:
        artifact = self.model.artifacts.get((writer, name))
        event = begin(name, *texts, last=last)
        if self.model.has_ended or (artifact and not artifact.was_emptied):
            self.refuse(event, writer)
            return
        self.put(event, writer)
        self.model.artifacts[writer, name] = ModelArtifact("".join(texts), last)

    @rule(writer=WRITERS, name=NAMES, texts=TEXTS, last=st.booleans())
    def append(self, writer: str, name: str, texts: list[str], last: bool) -> None:
        artifact = self.model.artifacts.get((writer, name))
        event = append(name, *texts, last=last)
        if self.model.has_ended or artifact is None or artifact.is_closed:
            self.refuse(event, writer)
            return
        self.put(event, writer)
        artifact.text += "".join(texts)
        artifact.is_closed = last
        artifact.was_emptied = False

    @rule(writer=WRITERS, name=NAMES, length=st.integers(0, 6))
    def rewind(self, writer: str, name: str, length: int) -> None:
        artifact = self.model.artifacts.get((writer, name))
        remaining_text = artifact.text[:length] if artifact else ""
        remains = artifact_pb2.Artifact(artifact_id=name)
        if remaining_text:
            remains.parts.append(part_pb2.Part(text=remaining_text))
        event = event_pb2.Event(rewound=event_pb2.ArtifactRewound(remains=remains))
        if self.model.has_ended or artifact is None:
            self.refuse(event, writer)
            return
        self.put(event, writer)
        artifact.text, artifact.is_closed, artifact.was_emptied = (
            remaining_text,
            False,
            not remaining_text,
        )

    @precondition(lambda self: not self.model.has_ended)
    @rule(is_end=st.booleans())
    def change_state(self, is_end: bool) -> None:
        self.put(completed() if is_end else working())
        self.model.has_ended = is_end
        states = (task_pb2.TASK_STATE_WORKING, task_pb2.TASK_STATE_COMPLETED)
        self.model.state = states[is_end]

    @precondition(lambda self: self.model.has_ended)
    @rule()
    def change_state_after_the_end(self) -> None:
        self.refuse(status(task_pb2.TASK_STATE_CANCELED))

    @rule()
    def create_twice(self) -> None:
        self.refuse(created())

    @rule(distance=st.integers(-3, 3).filter(bool))
    def skip_sequences(self, distance: int) -> None:
        first = max(1, self.model.sequence + 1 + distance)
        if first == self.model.sequence + 1:
            return
        copy = Fold(TASK, self.fold.snapshot())
        with pytest.raises(InvalidAgentResponseError):
            copy.apply(parse_batch(sealed([working()], first)))

    @rule()
    def restart_from_snapshot(self) -> None:
        self.fold = Fold(TASK, self.fold.snapshot())

    @invariant()
    def check_fold_equals_model(self) -> None:
        snapshot = self.fold.snapshot()
        assert snapshot.sequence == self.model.sequence
        if self.model.sequence:
            assert snapshot.task.status.state == self.model.state
        actual = {
            (info.origin.task_id, info.artifact_id): (
                "".join(part.text for part in artifact.parts),
                info.closed,
            )
            for artifact, info in zip(snapshot.task.artifacts, snapshot.artifacts, strict=True)
        }
        assert actual == {
            key: (model_artifact.text, model_artifact.is_closed)
            for key, model_artifact in self.model.artifacts.items()
        }


def test_the_fold_equals_a_model_of_lists_of_texts() -> None:
    run_state_machine_as_test(FoldMachine)
