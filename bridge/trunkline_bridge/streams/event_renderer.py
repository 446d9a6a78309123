"""Writes a stream's events as server-sent events, each with its id and one line of JSON.

Nearly all events are pieces of text: those are put together from a template that is prepared once
for each artifact of a stream, and only their text is escaped.
"""

from collections.abc import Callable, Iterator, Sequence
from json import encoder
from typing import NamedTuple, Protocol

from trunkline.a2a.v1 import a2a_pb2
from trunkline_bridge.errors import WireError
from trunkline_bridge.projection import ArtifactView, TextDelta, WireEvent
from trunkline_bridge.versions.json_values import Json, dumps, escape_line_ends

HEARTBEAT = b": alive\n\n"

# A write is cut where it passes this: rendered, a frame of the mesh is up to thirty times its size.
_WRITE_LENGTH = 64 * 1024
_escape = encoder.encode_basestring


class EventWriter(Protocol):
    """How a version of A2A writes events as JSON. One object serves one stream, and may remember.

    A piece of text is `opening(artifact)`, the quoted text, and `more` or `last`.
    """

    text_end: str
    """What follows the text of a piece, up to the end of the event's JSON."""
    last_text_end: str
    """The same for the last piece of an artifact."""

    def text_start(self, artifact: ArtifactView) -> str:
        """Return the JSON of a piece of text up to the text; it is asked for once an artifact."""
        ...

    def write_event(self, response: a2a_pb2.StreamResponse) -> Sequence[Json]:
        """Return any other event: one object, or in old versions several, or none."""
        ...


def render_error_event(said: bytes) -> bytes:
    """Return the event of an error, from its JSON."""
    return b"event: error\ndata: %b\n\n" % said


class EventFrame(NamedTuple):
    """What a binding puts around the JSON of each event, and how it says an error."""

    before: str
    after: str
    render_error: Callable[[WireError], Json]
    """The whole object of an error, with what is put around it."""


class EventRenderer:
    """Renders the events of one stream."""

    def __init__(self, shape: EventWriter, frame: EventFrame) -> None:
        self._shape = shape
        self._frame = frame
        self._more = f"{shape.text_end}{frame.after}\n\n"
        self._last = f"{shape.last_text_end}{frame.after}\n\n"
        self._openings: dict[ArtifactView, str] = {}

    def render(self, event: WireEvent) -> str:
        """Return an event, with its id and the empty line that ends it."""
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
        # What is in no journal (a direct reply) has no place to resume from. An event that is
        # several is seen when its last one is.
        if said and event.sequence:
            said[-1] = f"id: {event.id}\n{said[-1]}"
        return "".join(said)

    def render_chunks(self, events: Sequence[WireEvent]) -> Iterator[bytes]:
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
        if length:
            yield "".join(pieces).encode("utf-8")

    def render_error(self, error: WireError) -> bytes:
        """Return the event that ends a stream with an error."""
        return render_error_event(dumps(self._frame.render_error(error)).encode())

    def _prepare(self, artifact: ArtifactView) -> str:
        opening = self._openings[artifact] = self._frame.before + self._shape.text_start(artifact)
        return opening
