"""The message and the answer of a request in its span, if `capture_content` is set."""

from collections.abc import Awaitable, Callable

from opentelemetry import trace

from trunkline import telemetry
from trunkline.errors import TrunklineError
from trunkline.span_content import (
    ContentCapture,
    find_answer,
    join_texts,
    record_request,
    use_capture,
)
from trunkline.v1 import message_pb2, snapshot_pb2


class RequestContent:
    """Puts the content of requests into their spans, which dashboards show as those of a trace."""

    def __init__(self, capture: ContentCapture | None) -> None:
        """None: nothing is recorded."""
        self._capture = capture

    def record(
        self, message: message_pb2.Message, result: snapshot_pb2.TaskSnapshot | message_pb2.Message
    ) -> None:
        """Record a message and its result, a task or a direct reply, in the request's span."""
        if self._capture is None:
            return
        if isinstance(result, message_pb2.Message):
            answer = join_texts(result.parts)
        else:
            answer = find_answer(result.task)
        with use_capture(self._capture):
            record_request(trace.get_current_span(), join_texts(message.parts), answer)

    async def record_stream(
        self,
        message: message_pb2.Message,
        reply: message_pb2.Message | None,
        get_task: Callable[[], Awaitable[snapshot_pb2.TaskSnapshot]],
    ) -> None:
        """Record a message whose stream has ended, and the direct reply, else the task.

        The events of a stream pass through the bridge without being added up, so the task is read.
        """
        if self._capture is None:
            return
        if reply is not None:
            self.record(message, reply)
            return
        try:
            with telemetry.suppress_spans():
                task = await get_task()
        except TrunklineError:
            return
        self.record(message, task)
