"""The fold against a model that knows nothing but lists of texts; what is illegal is refused."""

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
# Its own artifacts, or those of one of two children.
WRITERS = st.sampled_from(("", "child-1", "child-2"))


@dataclass(slots=True)
class Known:
    """An artifact as the model has it."""

    text: str = ""
    is_closed: bool = False
    was_emptied: bool = False


@dataclass(slots=True)
class Model:
    """A task as the model has it."""

    artifacts: dict[tuple[str, str], Known] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    sequence: int = 0
    state: int = task_pb2.TASK_STATE_SUBMITTED
    has_ended: bool = False


class FoldMachine(RuleBasedStateMachine):
    """Writes events, legal and not, of a task and its children."""

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
            first = self.model.written.get(writer, 0) + 1
            origin = event_pb2.Origin(agent="leaf", task_id=writer, first_sequence=first)
        return parse_batch(sealed([event], self.model.sequence + 1, origin=origin))

    def put(self, event: event_pb2.Event, writer: str = "") -> None:
        """Apply what is legal."""
        self.fold.apply(self.batch(event, writer))
        self.model.sequence += event_count(event)
        if writer:
            written = self.model.written.get(writer, 0)
            self.model.written[writer] = written + event_count(event)

    def refuse(self, event: event_pb2.Event, writer: str = "") -> None:
        """Apply what is illegal, to a copy: a fold that has met a defect is of no more use."""
        copy = Fold(TASK, self.fold.snapshot())
        with pytest.raises(InvalidAgentResponseError):
            copy.apply(self.batch(event, writer))

    @rule(writer=WRITERS, name=NAMES, texts=TEXTS, last=st.booleans())
    def start(self, writer: str, name: str, texts: list[str], last: bool) -> None:
        known = self.model.artifacts.get((writer, name))
        event = begin(name, *texts, last=last)
        if self.model.has_ended or (known and not known.was_emptied):
            self.refuse(event, writer)
            return
        self.put(event, writer)
        self.model.artifacts[writer, name] = Known("".join(texts), last)

    @rule(writer=WRITERS, name=NAMES, texts=TEXTS, last=st.booleans())
    def append(self, writer: str, name: str, texts: list[str], last: bool) -> None:
        known = self.model.artifacts.get((writer, name))
        event = append(name, *texts, last=last)
        if self.model.has_ended or known is None or known.is_closed:
            self.refuse(event, writer)
            return
        self.put(event, writer)
        known.text += "".join(texts)
        known.is_closed = last
        known.was_emptied = False

    @rule(writer=WRITERS, name=NAMES, keep=st.integers(0, 6))
    def rewind(self, writer: str, name: str, keep: int) -> None:
        known = self.model.artifacts.get((writer, name))
        kept = known.text[:keep] if known else ""
        remains = artifact_pb2.Artifact(artifact_id=name)
        if kept:
            remains.parts.append(part_pb2.Part(text=kept))
        event = event_pb2.Event(rewound=event_pb2.ArtifactRewound(remains=remains))
        if self.model.has_ended or known is None:
            self.refuse(event, writer)
            return
        self.put(event, writer)
        known.text, known.is_closed, known.was_emptied = kept, False, not kept

    @precondition(lambda self: not self.model.has_ended)
    @rule(ends=st.booleans())
    def enter(self, ends: bool) -> None:
        self.put(completed() if ends else working())
        self.model.has_ended = ends
        states = (task_pb2.TASK_STATE_WORKING, task_pb2.TASK_STATE_COMPLETED)
        self.model.state = states[ends]

    @precondition(lambda self: self.model.has_ended)
    @rule()
    def enter_behind_the_end(self) -> None:
        self.refuse(status(task_pb2.TASK_STATE_CANCELED))

    @rule()
    def create_again(self) -> None:
        self.refuse(created())

    @rule(distance=st.integers(-3, 3).filter(bool))
    def leave_a_gap(self, distance: int) -> None:
        first = max(1, self.model.sequence + 1 + distance)
        if first == self.model.sequence + 1:
            return
        copy = Fold(TASK, self.fold.snapshot())
        with pytest.raises(InvalidAgentResponseError):
            copy.apply(parse_batch(sealed([working()], first)))

    @rule()
    def go_on_from_a_snapshot(self) -> None:
        self.fold = Fold(TASK, self.fold.snapshot())

    @invariant()
    def the_fold_is_the_model(self) -> None:
        snapshot = self.fold.snapshot()
        assert snapshot.sequence == self.model.sequence
        if self.model.sequence:
            assert snapshot.task.status.state == self.model.state
        told = {
            (info.origin.task_id, info.artifact_id): (
                "".join(part.text for part in artifact.parts),
                info.closed,
            )
            for artifact, info in zip(snapshot.task.artifacts, snapshot.artifacts, strict=True)
        }
        assert told == {
            key: (known.text, known.is_closed) for key, known in self.model.artifacts.items()
        }


def test_the_fold_is_what_a_list_of_texts_would_be() -> None:
    run_state_machine_as_test(FoldMachine)
