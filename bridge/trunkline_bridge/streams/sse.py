"""Keeps silent streams open: a comment now and then, from one timer for all streams."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import aclosing
from typing import Final

from starlette.types import Send

from trunkline_bridge.edge import tracing
from trunkline_bridge.edge.http import ResponseSender
from trunkline_bridge.errors import to_wire_error
from trunkline_bridge.streams.event_renderer import HEARTBEAT, EventRenderer
from trunkline_bridge.streams.task_streams import WireEvents

logger = logging.getLogger(__name__)

_HEARTBEAT_MESSAGE: Final = {"type": "http.response.body", "body": HEARTBEAT, "more_body": True}
# The timer looks at most so often in an interval.
_MAX_CHECKS_PER_INTERVAL = 50


class Heartbeats:
    """Streams in the order of their last write, so that only the first need be looked at."""

    def __init__(self, interval_s: float) -> None:
        """A stream that was silent for `interval_s` gets a comment."""
        self._interval_s = interval_s
        self._streams: OrderedDict[EventStream, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: "EventStream") -> None:
        """Look after a stream until it is removed."""
        self._streams[stream] = None
        if self._timer is None:
            self._wait(self._interval_s)

    def remove(self, stream: "EventStream") -> None:
        """Leave a stream alone from now on."""
        self._streams.pop(stream, None)
        if not self._streams and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def touch(self, stream: "EventStream") -> None:
        """A stream has written something."""
        self._streams.move_to_end(stream)

    def _wait(self, delay_s: float) -> None:
        delay_s = max(delay_s, self._interval_s / _MAX_CHECKS_PER_INTERVAL)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._beat)

    def _beat(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        try:
            while self._streams:
                stream = next(iter(self._streams))
                left_s = stream.written_at + self._interval_s - now
                if left_s > 0:
                    self._wait(left_s)
                    return
                self._streams.move_to_end(stream)
                stream.written_at = now
                stream.write_heartbeat()
        except Exception:
            # Its own task will meet the same; the others still want their comments.
            logger.exception("heartbeat.failed")
            self._wait(0)


class EventStream:
    """The body of one response, written in turns by its events and by its heartbeats."""

    __slots__ = ("__weakref__", "_beats", "_is_writing", "_send", "_writes", "written_at")

    # So many writes may follow each other, this close, before others get their turn.
    _WRITES_A_TURN = 4
    _CLOSE_S = 0.005

    def __init__(self, send: Send, beats: Heartbeats) -> None:
        self._send = send
        self._beats = beats
        self._is_writing = False
        self._writes = 0
        self.written_at = asyncio.get_running_loop().time()

    async def write(self, body: bytes) -> None:
        """Write, when the client has room for it: a slow one slows its own stream alone."""
        self._is_writing = True
        try:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
        finally:
            self._is_writing = False
        now = asyncio.get_running_loop().time()
        self._writes = self._writes + 1 if now - self.written_at < self._CLOSE_S else 1
        self.written_at = now
        self._beats.touch(self)
        if self._writes >= self._WRITES_A_TURN:
            self._writes = 0
            # A write that finds the client gone has the loop tell us; without a turn of the loop,
            # a burst would all be written first, and nobody else be served meanwhile.
            await asyncio.sleep(0)

    def write_heartbeat(self) -> None:
        """Write a comment, unless there is no room: then the client has something to read."""
        if self._is_writing:
            return
        step = self._send(_HEARTBEAT_MESSAGE).__await__()
        try:
            next(step)
        except StopIteration:
            return
        step.close()


_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    # Some proxies hold a response back until it is large or done.
    "x-accel-buffering": "no",
}


async def send_events(
    sender: ResponseSender,
    events: WireEvents,
    renderer: EventRenderer,
    *,
    heartbeats: Heartbeats,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send a stream of events to its end. An error on the way becomes its last event.

    Each write waits until the client has room for it, and meanwhile nothing more is read from the
    mesh: a slow client slows down only its own stream.
    """
    await sender.start(200, {**_HEADERS, **(headers or {})})
    stream = EventStream(sender.send, heartbeats)
    heartbeats.add(stream)
    last = b""
    try:
        async with aclosing(events):
            async for ready in events:
                for body in renderer.render_chunks(ready):
                    await stream.write(body)
                # The next events may take days: release these.
                ready, body = (), b""
    except Exception as error:  # noqa: BLE001  the response has started: only an event can report it
        wire_error = to_wire_error(error)
        tracing.record_failure(wire_error.kind.reason)
        last = renderer.render_error(wire_error)
    finally:
        heartbeats.remove(stream)
    await sender.finish(last)
