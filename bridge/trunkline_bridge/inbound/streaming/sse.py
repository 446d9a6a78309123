"""Server-sent events: what is ready together in one write, comments while nothing is."""

from collections.abc import Mapping
from contextlib import aclosing

from starlette.types import Send

from trunkline_bridge.errors import wire_error
from trunkline_bridge.inbound import tracing
from trunkline_bridge.inbound.http import raw
from trunkline_bridge.inbound.streaming.heartbeats import EventStream, Heartbeats
from trunkline_bridge.inbound.streaming.streams import WireEvents
from trunkline_bridge.rendering import EventRenderer

_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    # Some proxies hold a response back until it is large or done.
    "x-accel-buffering": "no",
}


async def send_events(
    send: Send,
    events: WireEvents,
    renderer: EventRenderer,
    *,
    beats: Heartbeats,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send a stream to its end; what goes wrong on the way is its last event.

    Each write waits until the client has room for it, and nothing more is asked of the mesh
    meanwhile: a slow client slows its own stream and nothing else.
    """
    all_headers = raw({**_HEADERS, **(headers or {})})
    await send({"type": "http.response.start", "status": 200, "headers": all_headers})
    stream = EventStream(send, beats)
    beats.add(stream)
    last = b""
    try:
        async with aclosing(events):
            async for ready in events:
                for body in renderer.writes(ready):
                    await stream.write(body)
                # What comes next may come in days.
                ready, body = (), b""
    except Exception as error:  # noqa: BLE001  the response has begun: an event is all that is left
        said = wire_error(error)
        tracing.mark_failed(said.row.reason)
        last = renderer.render_error(said)
    finally:
        beats.remove(stream)
    await send({"type": "http.response.body", "body": last})
