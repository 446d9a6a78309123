"""Renders wire events as server-sent events, each with its id and one line of JSON.

Nearly all events are text deltas. The JSON around their text is rendered once for each artifact of
a stream, so that each delta only has its text escaped.
"""

from collections.abc import Callable, Iterator, Sequence
from json import encoder
from typing import NamedTuple, Protocol

from trunkline.a2a_wire.errors import WireError
from trunkline.a2a_wire.json_values import Json, dumps, escape_line_ends
from trunkline_bridge.a2a.projection import ArtifactView, TextDelta, WireEvent
from trunkline_bridge.http.sse import render_error_event

# A rendered batch can be thirty times as large as the message that it came in, so it is written in
# chunks.
_CHUNK_LENGTH = 64 * 1024
_escape = encoder.encode_basestring


class EventWriter(Protocol):
    """Writes events in the JSON of one version of A2A. Each stream has its own writer.

    The JSON of a text delta is `text_start(artifact)`, the quoted text, and `text_end` or
    `last_text_end`.
    """

    text_end: str
    """The JSON after the text of a delta."""
    last_text_end: str
    """The JSON after the text of an artifact's last delta."""

    def text_start(self, artifact: ArtifactView) -> str:
        """Return the JSON of a delta before its text; called once for each artifact."""
        ...

    def write_event(self, event: WireEvent) -> Sequence[Json]:
        """Return the JSON objects of an event except a text delta: one, or in v0.1 any number."""
        ...


class EventFrame(NamedTuple):
    """The envelope of a binding around the JSON of each event, and its error format."""

    before: str
    after: str
    render_error: Callable[[WireError], Json]
    """Builds the JSON object of an error, envelope included."""
    error_event: str = "error"
    """The type of the event that reports an error. If empty, it has the type of all other
    events."""


class EventRenderer:
    """Renders the events of one stream."""

    def __init__(self, writer: EventWriter, frame: EventFrame) -> None:
        self._writer = writer
        self._frame = frame
        after = f"{frame.after}\n\n"
        self._text_end = writer.text_end + after
        self._last_text_end = writer.last_text_end + after
        self._text_starts: dict[ArtifactView, str] = {}

    def render(self, event: WireEvent) -> str:
        """Render an event with its id and the empty line that ends it."""
        if isinstance(event, TextDelta):
            sequence, n, artifact, text, is_last, epoch = event
            start = self._text_starts.get(artifact) or self._render_text_start(artifact)
            quoted = _escape(text)
            if not quoted.isascii():
                quoted = escape_line_ends(quoted)
            # The text of an EventId, without building one.
            epoch_suffix = "" if epoch == 1 else f"-{epoch}"
            end = self._last_text_end if is_last else self._text_end
            return f"id: {sequence}.{n}{epoch_suffix}\ndata: {start}{quoted}{end}"
        before, after = self._frame[:2]
        objects = self._writer.write_event(event)
        lines = [f"data: {before}{dumps(value)}{after}\n\n" for value in objects]
        # A direct reply is not in a journal, so it has no id. If an event has several objects,
        # only the last object has the id: a client that has seen the last object has seen all.
        if lines and event.sequence:
            lines[-1] = f"id: {event.id}\n{lines[-1]}"
        return "".join(lines)

    def render_chunks(self, events: Sequence[WireEvent]) -> Iterator[bytes]:
        """Yield rendered events, joined in chunks of about 64 KiB."""
        render = self.render
        pieces: list[str] = []
        length = 0
        for event in events:
            piece = render(event)
            pieces.append(piece)
            length += len(piece)
            if length >= _CHUNK_LENGTH:
                yield "".join(pieces).encode("utf-8")
                pieces, length = [], 0
        if length:
            yield "".join(pieces).encode("utf-8")

    def render_error(self, error: WireError) -> bytes:
        """Render the event that reports an error and ends the stream."""
        error_json = dumps(self._frame.render_error(error)).encode()
        return render_error_event(error_json, event_type=self._frame.error_event)

    def _render_text_start(self, artifact: ArtifactView) -> str:
        start = self._frame.before + self._writer.text_start(artifact)
        self._text_starts[artifact] = start
        return start
