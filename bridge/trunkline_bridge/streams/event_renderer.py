"""Renders wire events as server-sent events, each with its id and one line of JSON.

Nearly all events are text deltas. They are rendered from a template that is prepared once for each
artifact of a stream, so only their text is escaped.
"""

from collections.abc import Callable, Iterator, Sequence
from json import encoder
from typing import NamedTuple, Protocol

from trunkline.a2a.v1 import a2a_pb2
from trunkline_bridge.errors import WireError
from trunkline_bridge.projection import ArtifactView, TextDelta, WireEvent
from trunkline_bridge.versions.json_values import Json, dumps, escape_line_ends

HEARTBEAT = b": alive\n\n"

# A rendered batch can be thirty times the size of its frame, so it is written in chunks.
_WRITE_LENGTH = 64 * 1024
_escape = encoder.encode_basestring


class EventWriter(Protocol):
    """Writes events in the JSON of one version of A2A. Each stream has its own writer.

    The JSON of a text delta is `text_start(artifact)`, the quoted text, and `text_end` or
    `last_text_end`.
    """

    text_end: str
    """The JSON behind the text of a delta."""
    last_text_end: str
    """The JSON behind the text of an artifact's last delta."""

    def text_start(self, artifact: ArtifactView) -> str:
        """Return the JSON of a delta before its text; called once for each artifact."""
        ...

    def write_event(self, response: a2a_pb2.StreamResponse) -> Sequence[Json]:
        """Return the JSON objects of any other event: one, or in v0.1 none or several."""
        ...


def render_error_event(said: bytes) -> bytes:
    """Render an error event from the error's JSON."""
    return b"event: error\ndata: %b\n\n" % said


class EventFrame(NamedTuple):
    """The envelope of a binding around the JSON of each event, and its form of an error."""

    before: str
    after: str
    render_error: Callable[[WireError], Json]
    """Builds the JSON object of an error, envelope included."""


class EventRenderer:
    """Renders the events of one stream."""

    def __init__(self, shape: EventWriter, frame: EventFrame) -> None:
        self._shape = shape
        self._frame = frame
        self._more = f"{shape.text_end}{frame.after}\n\n"
        self._last = f"{shape.last_text_end}{frame.after}\n\n"
        self._openings: dict[ArtifactView, str] = {}

    def render(self, event: WireEvent) -> str:
        """Render an event with its id and the empty line that ends it."""
        if isinstance(event, TextDelta):
            sequence, n, artifact, text, is_last, epoch = event
            opening = self._openings.get(artifact) or self._prepare(artifact)
            quoted = _escape(text)
            if not quoted.isascii():
                quoted = escape_line_ends(quoted)
            life = "" if epoch == 1 else f"-{epoch}"
            tail = self._last if is_last else self._more
            return f"id: {sequence}.{n}{life}\ndata: {opening}{quoted}{tail}"
        before, after, _ = self._frame
        objects = self._shape.write_event(event.response)
        said = [f"data: {before}{dumps(one)}{after}\n\n" for one in objects]
        # A direct reply is in no journal, so it has no id. Of several objects only the last one
        # has the id: a client that has seen it has seen all.
        if said and event.sequence:
            said[-1] = f"id: {event.id}\n{said[-1]}"
        return "".join(said)

    def render_chunks(self, events: Sequence[WireEvent]) -> Iterator[bytes]:
        """Yield events that are ready together, joined in chunks of about 64 KiB."""
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
        if length:
            yield "".join(pieces).encode("utf-8")

    def render_error(self, error: WireError) -> bytes:
        """Render the error event that ends a stream."""
        return render_error_event(dumps(self._frame.render_error(error)).encode())

    def _prepare(self, artifact: ArtifactView) -> str:
        opening = self._openings[artifact] = self._frame.before + self._shape.text_start(artifact)
        return opening
