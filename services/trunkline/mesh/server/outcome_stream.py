"""Streams the outcomes of deliveries to the messaging service."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final

from trunkline.errors import InternalError, TrunklineError
from trunkline.mesh.server.status import to_trunk_end
from trunkline.tasks.delivered_messages import DeliveryResult
from trunkline.v1 import message_service_pb2

_READ_BYTES: Final = 64 * 1024


class OutcomeStream:
    """The serialized outcomes of deliveries, as a `BatchSource`, in the order of their ends.

    It is bounded by the deliveries of one call. The deliveries continue without it.
    """

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._ready: deque[bytes] = deque()
        self._listener: Callable[[], None] | None = None

    def add(self, task_id: str, result: asyncio.Future[DeliveryResult]) -> None:
        """Add a delivery that runs."""
        self._open.add(task_id)
        result.add_done_callback(partial(self._on_done, task_id))

    def add_error(self, task_id: str, error: BaseException) -> None:
        """Add a delivery that could not be made."""
        known = error if isinstance(error, TrunklineError) else InternalError("")
        outcome = message_service_pb2.DeliveryOutcome(task_id=task_id, error=to_trunk_end(known))
        self._ready.append(outcome.SerializeToString())

    def _on_done(self, task_id: str, done: asyncio.Future[DeliveryResult]) -> None:
        self._open.discard(task_id)
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is not None:
            self.add_error(task_id, error)
        else:
            result = done.result()
            outcome = message_service_pb2.DeliveryOutcome(
                task_id=task_id,
                state=result.state,
                problem=result.problem,
                replies=result.replies,
            )
            self._ready.append(outcome.SerializeToString())
        if self._listener is not None:
            self._listener()

    @property
    def is_over(self) -> bool:
        """True when the last outcome was taken."""
        return not (self._open or self._ready)

    @property
    def is_at_head(self) -> bool:
        """True if all outcomes that are ready were taken."""
        return not self._ready

    def take_ready(self, limit_bytes: int) -> list[bytes]:
        """Return the outcomes that are ready, at least one if any is."""
        taken: list[bytes] = []
        size_bytes = 0
        while self._ready and (not taken or size_bytes + len(self._ready[0]) <= limit_bytes):
            taken.append(self._ready.popleft())
            size_bytes += len(taken[-1])
        return taken

    async def take(self, limit_bytes: int) -> list[bytes]:
        """Return `take_ready`, because all outcomes are in memory."""
        return self.take_ready(limit_bytes)

    def on_ready(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever more outcomes are ready."""
        self._listener = listener

    def close(self) -> None:
        """Remove the listener."""
        self._listener = None

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        """Yield the outcomes that are ready, perhaps none, then new ones until the last."""
        has_more = asyncio.Event()
        self.on_ready(has_more.set)
        yield self.take_ready(_READ_BYTES)
        while not self.is_over:
            if self.is_at_head:
                await has_more.wait()
            has_more.clear()
            if outcomes := self.take_ready(_READ_BYTES):
                yield outcomes
