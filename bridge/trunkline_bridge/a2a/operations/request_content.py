"""The message and the answer of a request in its span, if `capture_content` is set."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress

from opentelemetry import trace

from trunkline import telemetry
from trunkline.errors import TrunklineError
from trunkline.span_content import (
    ContentCapture,
    find_answer,
    record_request,
    render_parts,
    use_capture,
)
from trunkline.task_states import TURN_END
from trunkline.v1 import message_pb2, snapshot_pb2
from trunkline_bridge.a2a.projection import FullEvent, WireEvent
from trunkline_bridge.a2a.streams.task_streams import WireEvents


class RequestContent:
    """Puts the content of requests into their spans, from which dashboards read it."""

    def __init__(self, capture: ContentCapture | None) -> None:
        """With None, nothing is recorded."""
        self._capture = capture

    def record(
        self, message: message_pb2.Message, result: snapshot_pb2.TaskSnapshot | message_pb2.Message
    ) -> None:
        """Record a message and its result, a task or a direct reply, in the request's span."""
        if self._capture is None:
            return
        if isinstance(result, message_pb2.Message):
            answer = render_parts(result.parts)
        else:
            answer = find_answer(result.task)
        with use_capture(self._capture):
            record_request(trace.get_current_span(), render_parts(message.parts), answer)

    def record_stream(
        self,
        message: message_pb2.Message,
        reply: message_pb2.Message | None,
        events: WireEvents,
        get_task: Callable[[], Awaitable[snapshot_pb2.TaskSnapshot]],
    ) -> WireEvents:
        """Return the events of a message's turn, which record its end, or the direct reply."""
        if self._capture is None:
            return events
        if reply is not None:
            self.record(message, reply)
            return events
        return self._record_end(message, events, get_task)

    async def _record_end(
        self,
        message: message_pb2.Message,
        events: WireEvents,
        get_task: Callable[[], Awaitable[snapshot_pb2.TaskSnapshot]],
    ) -> WireEvents:
        # The events pass through the bridge without being added up, so the task is read. It is read
        # before its last event is sent, because clients disconnect then.
        async with aclosing(events):
            async for ready in events:
                if any(_ends_turn(event) for event in ready):
                    with suppress(TrunklineError):
                        with telemetry.suppress_spans():
                            task = await get_task()
                        self.record(message, task)
                yield ready


def _ends_turn(event: WireEvent) -> bool:
    if not isinstance(event, FullEvent):
        return False
    response = event.response
    is_task = response.HasField("task")
    status = response.task.status if is_task else response.status_update.status
    return status.state in TURN_END
