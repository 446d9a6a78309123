"""What a projection yields: wire events with their ids."""

from typing import NamedTuple, TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import artifact_pb2, event_pb2
from trunkline_bridge.projection.ids import EventId


class ArtifactView:
    """How one artifact shows on the wire: all that is said of it, without its content.

    There is one object for an artifact's whole life in a stream, so that a renderer can prepare
    what all its pieces share.
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
        """Return an update, with one text part or still without parts.

        The first update and every replacement say all of the head, later ones only id and name.
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


class TextPiece(NamedTuple):
    """Text added to an artifact that is there: nearly all events are this, so it stays cheap."""

    sequence: int
    n: int
    artifact: ArtifactView
    text: str
    is_last: bool
    epoch: int = 1

    @property
    def id(self) -> str:
        """What a client goes on behind."""
        return str(EventId(self.sequence, self.n, self.epoch))

    @property
    def response(self) -> a2a_pb2.StreamResponse:
        """The event as A2A has it."""
        return self.artifact.update(append=True, last_chunk=self.is_last, text=self.text)


class WholeEvent(NamedTuple):
    """Any other event."""

    sequence: int
    n: int
    response: a2a_pb2.StreamResponse
    epoch: int = 1

    @property
    def id(self) -> str:
        """What a client goes on behind."""
        return str(EventId(self.sequence, self.n, self.epoch))


WireEvent: TypeAlias = TextPiece | WholeEvent
