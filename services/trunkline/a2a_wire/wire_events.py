"""Wire events, which the projection makes of journal events, and their ids."""

import re
from typing import NamedTuple, Self, TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.roles import ArtifactRole
from trunkline.task_states import TURN_END
from trunkline.v1 import artifact_pb2, event_pb2, task_pb2

V0_1_TURN_END = TURN_END | {task_pb2.TASK_STATE_AUTH_REQUIRED}
"""The states that end a turn in A2A v0.1, which has no state `auth-required`."""


_ID = re.compile(r"([1-9][0-9]{0,17})\.([0-9]{1,9})(?:-([1-9][0-9]{0,17}))?", re.ASCII)


class EventId(NamedTuple):
    """The id of a wire event; opaque to clients.

    After a power failure, a sequence that a client has seen may belong to another event, so the id
    includes the journal's epoch. The text of the id omits epoch 1.
    """

    sequence: int
    """The sequence of the journal event."""
    n: int
    """The index among the wire events of that journal event, from 0."""
    epoch: int = 1

    def __str__(self) -> str:
        text = f"{self.sequence}.{self.n}"
        return text if self.epoch <= 1 else f"{text}-{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse the text of an id; None if it is not an id."""
        match = _ID.fullmatch(text)
        return None if match is None else cls(int(match[1]), int(match[2]), int(match[3] or 1))


class ArtifactView:
    """An artifact as clients see it, without its content.

    A stream has one object for each artifact, which renderers use as a key.
    """

    __slots__ = ("context_id", "head", "is_shown", "kind", "role", "task_id")

    def __init__(
        self,
        task_id: str,
        context_id: str,
        head: artifact_pb2.Artifact,
        kind: event_pb2.ArtifactKind.ValueType = event_pb2.ARTIFACT_KIND_UNSPECIFIED,
        *,
        role: ArtifactRole = ArtifactRole.STREAM,
        is_shown: bool = True,
    ) -> None:
        """`head` has the role in its metadata."""
        self.task_id = task_id
        self.context_id = context_id
        self.head = head
        self.kind = kind
        self.role = role
        self.is_shown = is_shown

    def update(
        self, *, append: bool, last_chunk: bool, text: str | None = None
    ) -> a2a_pb2.StreamResponse:
        """Return an update of the artifact, with a text part if there is a text.

        An update that replaces the content has the whole head. An update that appends has the id
        and the name.
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
    """Text appended to an artifact. It is cheap to build, because nearly all events are deltas."""

    sequence: int
    n: int
    artifact: ArtifactView
    text: str
    is_last: bool
    epoch: int = 1

    @property
    def id(self) -> str:
        """The event id, after which a client can resume."""
        return str(EventId(self.sequence, self.n, self.epoch))

    @property
    def response(self) -> a2a_pb2.StreamResponse:
        """The event as A2A's StreamResponse."""
        return self.artifact.update(append=True, last_chunk=self.is_last, text=self.text)


class FullEvent(NamedTuple):
    """An event that is not a text delta."""

    sequence: int
    n: int
    response: a2a_pb2.StreamResponse
    epoch: int = 1

    @property
    def id(self) -> str:
        """The event id, after which a client can resume."""
        return str(EventId(self.sequence, self.n, self.epoch))


WireEvent: TypeAlias = TextDelta | FullEvent
