"""The page's API over HTTP: resources below `/ui/api`, with JSON and server-sent events.

A module of the page has a class with its operations' handlers and `paths()`, which `page.page`
serves. A handler gets the caller, the parameters, and the parameters in the path.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from trunkline.a2a_wire.errors import WireError, invalid_params
from trunkline.a2a_wire.json_values import Json, dumps
from trunkline_bridge.api.json_resource import ResourceHandler as Handler
from trunkline_bridge.api.json_resource import ResourcePaths as Paths
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.callers.streams import CallerStreams
from trunkline_bridge.http.messages import rest_error_body
from trunkline_bridge.http.sse import EventStreamResponse, render_error_event

__all__ = ["Handler", "Paths"]

API_PATH: Final = "/ui/api"


def build_headers(issuer_origin: str = "") -> Mapping[str, str]:
    """Return the headers of responses below `/ui`; scripts may also call the issuer's origin."""
    sources = f"'self' {issuer_origin}".strip()
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        f"font-src 'self'; connect-src {sources}; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    return {"content-security-policy": policy, **_OTHER_HEADERS}


_OTHER_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
HEADERS: Final[Mapping[str, str]] = build_headers()
"""The headers of the API's responses."""

_MAX_PAGE_SIZE: Final = 100
_DEFAULT_PAGE_SIZE: Final = 50


class PageEvent(NamedTuple):
    """A server-sent event of the page."""

    type: str
    data: Json
    id: str = ""
    """The position to resume from after the event. If empty, it is the previous event's
    position."""


PageEvents: TypeAlias = AsyncGenerator[Sequence[PageEvent], None]


class PageStreams:
    """Serves streams of events."""

    def __init__(self, streams: CallerStreams) -> None:
        self._streams = streams

    def respond(
        self, caller: Caller, events: AsyncGenerator[PageEvent, None]
    ) -> EventStreamResponse[PageEvent]:
        """Return the response with a stream. Errors before its first event are responses."""
        opened = self._streams.open_singly(caller, events)
        return EventStreamResponse(opened, PageRenderer(), HEADERS)


class PageRenderer:
    """Renders the events of the page."""

    def render_chunks(self, events: Sequence[PageEvent]) -> Iterator[bytes]:
        """Yield rendered events."""
        for event in events:
            id_line = f"id: {event.id}\n" if event.id else ""
            yield f"{id_line}event: {event.type}\ndata: {dumps(event.data)}\n\n".encode()

    def render_error(self, error: WireError) -> bytes:
        """Render the event that reports an error and ends the stream."""
        return render_error_event(dumps(rest_error_body(error)).encode(), event_type="error")


def read_parameters(query: bytes, _handler: str) -> Json:
    """Return the parameters in a query as texts, without empty ones. WireError: one is repeated."""
    result: Json = {}
    try:
        pairs = parse_qsl(query.decode("ascii"), errors="strict", max_num_fields=50)
    except ValueError:
        problem = "must be parameters in UTF-8, percent-encoded, at most 50"
        raise invalid_params(("query", problem)) from None
    for name, text in pairs:
        if name in result:
            raise invalid_params((name[:100], "is repeated"))
        result[name] = text
    return result


def read_text(params: Json, name: str, default: str = "") -> str:
    """Return a text parameter. WireError: it is not a text."""
    value = params.get(name, default)
    if not isinstance(value, str):
        raise invalid_params((name, "must be a text"))
    return value


def read_number(params: Json, name: str, *, limit: int = 2**63 - 1) -> int:
    """Return a whole number from 0 to `limit` in a parameter. WireError: it is invalid."""
    value = params.get(name, 0)
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) > limit:
        raise invalid_params((name, f"must be a whole number from 0 to {limit}"))
    return int(text)


def read_page_size(params: Json) -> int:
    """Return the size of a page. WireError: it is out of range."""
    return read_number(params, "pageSize", limit=_MAX_PAGE_SIZE) or _DEFAULT_PAGE_SIZE


def read_object(params: Json, name: str) -> Json | None:
    """Return an object parameter, or None if it is missing. WireError: it is not an object."""
    value = params.get(name)
    if value is not None and not isinstance(value, dict):
        raise invalid_params((name, "must be an object"))
    return value
