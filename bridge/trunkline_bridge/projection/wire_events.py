"""Wire events and their ids: what the projection returns for a journal event."""

import re
from typing import NamedTuple, Self, TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.task_states import TURN_END
from trunkline.v1 import artifact_pb2, event_pb2, task_pb2

V0_1_TURN_END = TURN_END | {task_pb2.TASK_STATE_AUTH_REQUIRED}
"""The states that end a turn in A2A v0.1, which has no state `auth-required`."""


_ID = re.compile(r"([1-9][0-9]{0,17})\.([0-9]{1,9})(?:-([1-9][0-9]{0,17}))?", re.ASCII)


class EventId(NamedTuple):
    """The id of the n-th wire event of a journal event; opaque to clients.

    After a power failure a sequence that a client has seen may belong to another event, so the id
    includes the journal's epoch. Epoch 1 is left out of the text.
    """

    sequence: int
    n: int
    epoch: int = 1

    def __str__(self) -> str:
        text = f"{self.sequence}.{self.n}"
        return text if self.epoch <= 1 else f"{text}-{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse the text of an id; None if it is no id."""
        read = _ID.fullmatch(text)
        return None if read is None else cls(int(read[1]), int(read[2]), int(read[3] or 1))


class ArtifactView:
    """An artifact as the wire shows it, without its content.

    A stream has one object for each artifact, so that a renderer can prepare a template for it.
    """

    __slots__ = ("context_id", "head", "is_shown", "kind", "task_id")

    def __init__(
        self,
        task_id: str,
        context_id: str,
        head: artifact_pb2.Artifact,
        kind: event_pb2.ArtifactKind.ValueType = event_pb2.ARTIFACT_KIND_UNSPECIFIED,
        *,
        is_shown: bool = True,
    ) -> None:
        self.task_id = task_id
        self.context_id = context_id
        self.head = head
        self.kind = kind
        self.is_shown = is_shown

    def update(
        self, *, append: bool, last_chunk: bool, text: str | None = None
    ) -> a2a_pb2.StreamResponse:
        """Build an update with one text part, or without parts.

        The first update and every replacement have the whole head; appends have only id and name.
        """
        response = a2a_pb2.StreamResponse()
        update = response.artifact_update
        update.task_id = self.task_id
        update.context_id = self.context_id
        update.append = append
        update.last_chunk = last_chunk
        if append:
            update.artifact.artifact_id = self.head.artifact_id
            update.artifact.name = self.head.name
        else:
            update.artifact.CopyFrom(self.head)
        if text is not None:
            update.artifact.parts.add(text=text)
        return response


class TextDelta(NamedTuple):
    """Text appended to an artifact. Nearly all events are deltas, so they are cheap to build."""

    sequence: int
    n: int
    artifact: ArtifactView
    text: str
    is_last: bool
    epoch: int = 1

    @property
    def id(self) -> str:
        """The event id that a client resumes behind."""
        return str(EventId(self.sequence, self.n, self.epoch))

    @property
    def response(self) -> a2a_pb2.StreamResponse:
        """The event as A2A's StreamResponse."""
        return self.artifact.update(append=True, last_chunk=self.is_last, text=self.text)


class FullEvent(NamedTuple):
    """Any event but a text delta."""

    sequence: int
    n: int
    response: a2a_pb2.StreamResponse
    epoch: int = 1

    @property
    def id(self) -> str:
        """The event id that a client resumes behind."""
        return str(EventId(self.sequence, self.n, self.epoch))


WireEvent: TypeAlias = TextDelta | FullEvent
