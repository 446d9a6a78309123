"""Writes a stream's events as server-sent events, each with its id and one line of JSON.

Nearly all events are pieces of text: those are put together from a template that is prepared once
for each artifact of a stream, and only their text is escaped.
"""

from collections.abc import Iterator, Sequence
from json import encoder

from trunkline_bridge import protojson
from trunkline_bridge.errors import WireError
from trunkline_bridge.inbound.envelope import error_object
from trunkline_bridge.projection import ArtifactView, TextPiece, WireEvent

HEARTBEAT = b": alive\n\n"

# A write is cut where it passes this: rendered, a frame of the mesh is up to thirty times its size.
_WRITE_LENGTH = 64 * 1024
_escape = encoder.encode_basestring
_MORE = '}]},"append":true}}}\n\n'
_LAST = '}]},"append":true,"lastChunk":true}}}\n\n'


class EventRenderer:
    """Renders the events of one JSON-RPC stream."""

    def __init__(self, request_id: str | int | None) -> None:
        self._envelope = f'{{"jsonrpc":"2.0","id":{protojson.dumps(request_id)},'
        self._openings: dict[ArtifactView, str] = {}

    def render(self, event: WireEvent) -> str:
        """Return an event, with its id and the empty line that ends it."""
        if isinstance(event, TextPiece):
            sequence, n, artifact, text, is_last, epoch = event
            opening = self._openings.get(artifact) or self._prepare(artifact)
            quoted = _escape(text)
            if not quoted.isascii():
                quoted = protojson.on_one_line(quoted)
            life = "" if epoch == 1 else f"-{epoch}"
            return f"id: {sequence}.{n}{life}\ndata: {opening}{quoted}{_LAST if is_last else _MORE}"
        result = protojson.dumps(protojson.stream_response(event.response))
        # What is in no journal (a direct reply) has no place to resume from.
        line = f"id: {event.id}\n" if event.sequence else ""
        return f'{line}data: {self._envelope}"result":{result}}}\n\n'

    def writes(self, events: Sequence[WireEvent]) -> Iterator[bytes]:
        """Yield events that are ready together, in as few writes as is good for a slow reader."""
        render = self.render
        pieces: list[str] = []
        length = 0
        for event in events:
            piece = render(event)
            pieces.append(piece)
            length += len(piece)
            if length >= _WRITE_LENGTH:
                yield "".join(pieces).encode("utf-8")
                pieces, length = [], 0
        if pieces:
            yield "".join(pieces).encode("utf-8")

    def render_error(self, error: WireError) -> bytes:
        """Return the event that ends a stream with an error."""
        said = protojson.dumps(error_object(error))
        return f'event: error\ndata: {self._envelope}"error":{said}}}\n\n'.encode()

    def _prepare(self, artifact: ArtifactView) -> str:
        """Everything of a piece up to its text."""
        said = {"artifactId": artifact.head.artifact_id}
        if artifact.head.name:
            said["name"] = artifact.head.name
        ids = protojson.dumps({"taskId": artifact.task_id, "contextId": artifact.context_id})
        opening = (
            f'{self._envelope}"result":{{"artifactUpdate":{ids[:-1]},'
            f'"artifact":{protojson.dumps(said)[:-1]},"parts":[{{"text":'
        )
        self._openings[artifact] = opening
        return opening
