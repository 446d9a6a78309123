"""Sends server-sent events, and keeps silent streams open with comments (WHATWG HTML, 9.2)."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from starlette.types import Send

from trunkline.a2a_wire.errors import WireError, to_wire_error
from trunkline_bridge.http import tracing
from trunkline_bridge.http.messages import ResponseSender

logger = logging.getLogger(__name__)

_EventT = TypeVar("_EventT")
_EventT_contra = TypeVar("_EventT_contra", contravariant=True)

HEARTBEAT = b": alive\n\n"

_HEARTBEAT_MESSAGE: Final = {"type": "http.response.body", "body": HEARTBEAT, "more_body": True}
# Limit of the number of checks in one interval.
_MAX_CHECKS_PER_INTERVAL = 50


class Renderer(Protocol[_EventT_contra]):
    """Renders the events of one stream as server-sent events."""

    def render_chunks(self, events: Sequence[_EventT_contra]) -> Iterator[bytes]:
        """Yield rendered events, joined in chunks."""
        ...

    def render_error(self, error: WireError) -> bytes:
        """Render the event that reports an error and ends the stream."""
        ...


def render_error_event(error_json: bytes, *, event_type: str) -> bytes:
    """Render an error as a server-sent event. An empty type is the type of all other events."""
    type_line = f"event: {event_type}\n" if event_type else ""
    return b"%bdata: %b\n\n" % (type_line.encode(), error_json)


class Heartbeats:
    """Writes comments to silent streams, with one timer for all of them."""

    def __init__(self, interval_s: float) -> None:
        """Write a comment to each stream that was silent for `interval_s` seconds."""
        self._interval_s = interval_s
        # In the order of their last write, so the timer checks only the first.
        self._streams: OrderedDict[EventStream, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: "EventStream") -> None:
        """Watch a stream until it is removed."""
        self._streams[stream] = None
        if self._timer is None:
            self._schedule(self._interval_s)

    def remove(self, stream: "EventStream") -> None:
        """Stop watching a stream."""
        self._streams.pop(stream, None)
        if not self._streams and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def touch(self, stream: "EventStream") -> None:
        """Record a write to a stream."""
        self._streams.move_to_end(stream)

    def _schedule(self, delay_s: float) -> None:
        delay_s = max(delay_s, self._interval_s / _MAX_CHECKS_PER_INTERVAL)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._write_due)

    def _write_due(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        try:
            while self._streams:
                stream = next(iter(self._streams))
                left_s = stream.written_at + self._interval_s - now
                if left_s > 0:
                    self._schedule(left_s)
                    return
                self._streams.move_to_end(stream)
                stream.written_at = now
                stream.write_heartbeat()
        except Exception:
            # The stream's own task gets the same error. The other streams still need comments.
            logger.exception("heartbeat.failed")
            self._schedule(0)


class EventStream:
    """The body of one response, to which events and heartbeats are written."""

    __slots__ = ("__weakref__", "_heartbeats", "_is_writing", "_send", "_writes", "written_at")

    # Writes with shorter gaps than this form a burst, which yields to the event loop every fourth
    # write.
    _BURST_GAP_S = 0.005
    _BURST_WRITES = 4

    def __init__(self, send: Send, heartbeats: Heartbeats) -> None:
        self._send = send
        self._heartbeats = heartbeats
        self._is_writing = False
        self._writes = 0
        self.written_at = asyncio.get_running_loop().time()

    async def write(self, body: bytes) -> None:
        """Write a chunk. It waits while the client's buffers are full."""
        self._is_writing = True
        try:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
        finally:
            self._is_writing = False
        now = asyncio.get_running_loop().time()
        self._writes = self._writes + 1 if now - self.written_at < self._BURST_GAP_S else 1
        self.written_at = now
        self._heartbeats.touch(self)
        if self._writes >= self._BURST_WRITES:
            self._writes = 0
            # The event loop reports a lost connection only between iterations. Without a yield, a
            # burst would be written to the end first, and other requests would wait.
            await asyncio.sleep(0)

    def write_heartbeat(self) -> None:
        """Write a comment, unless a write is waiting for the client."""
        if self._is_writing:
            return
        # The timer cannot await. `send` puts the data into the buffer before it waits for room.
        step = self._send(_HEARTBEAT_MESSAGE).__await__()
        try:
            next(step)
        except StopIteration:
            return
        step.close()


_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    # Some proxies buffer a response until it is large or complete.
    "x-accel-buffering": "no",
}


@dataclass(slots=True)
class EventStreamResponse(Generic[_EventT]):
    """The response of a binding that is a stream of server-sent events."""

    events: AbstractAsyncContextManager[AsyncGenerator[Sequence[_EventT], None]]
    renderer: Renderer[_EventT]
    headers: Mapping[str, str] = field(default_factory=dict)

    async def send(self, sender: ResponseSender, heartbeats: Heartbeats) -> None:
        """Open the stream of events and send it to its end. An error becomes the last event.

        While a write waits for the client, nothing is read from the mesh, so a slow client slows
        down only its own stream.

        Raises:
            Exception: any that opening the stream raises. Nothing has been sent then.
        """
        async with self.events as events:
            await sender.start(200, {**_HEADERS, **self.headers})
            stream = EventStream(sender.send, heartbeats)
            heartbeats.add(stream)
            last = b""
            try:
                async with aclosing(events):
                    async for ready in events:
                        for body in self.renderer.render_chunks(ready):
                            await stream.write(body)
                        # The next events may take days: release these.
                        ready, body = (), b""
            except Exception as error:  # noqa: BLE001  only an event can report it now
                wire_error = to_wire_error(error)
                tracing.record_failure(wire_error.kind.reason)
                last = self.last_event(wire_error)
            finally:
                heartbeats.remove(stream)
            await sender.finish(last)

    def last_event(self, error: WireError) -> bytes:
        """Return the event that reports an error."""
        return self.renderer.render_error(error)
