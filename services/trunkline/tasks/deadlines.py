"""Deadlines of tasks: one timer for all tasks of a journal."""

import asyncio
import contextvars
import heapq
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

DEADLINE_PASSED: Final = "the deadline passed before the work was done; allow more time"

# The heap is rebuilt when entries of ended tasks outnumber the others by this number.
_COMPACTION_SLACK: Final = 64


class DeadlineTimer:
    """Calls `expire` with the id of each task whose deadline has passed.

    Deadlines are wall-clock times. Each is converted to the loop's monotonic clock once, when it
    is added, so later changes of the wall clock have no effect.
    """

    def __init__(self, expire: Callable[[str], None]) -> None:
        self._expire = expire
        self._loop = asyncio.get_running_loop()
        self._heap: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        # uvloop gives no TimerHandle for a time that is due, so the handle can't be asked for it.
        self._timer: asyncio.Handle | None = None
        self._timer_s: float | None = None

    def add(self, task_id: str, deadline: datetime) -> None:
        """Set the deadline of a task. One in the past expires in the next loop iteration."""
        # The wall clock is read first: a delay before the next line makes the deadline later.
        remaining_s = (deadline - datetime.now(UTC)).total_seconds()
        due_s = self._loop.time() + remaining_s
        self._due[task_id] = due_s
        heapq.heappush(self._heap, (due_s, task_id))
        self._set_timer()

    def discard(self, task_id: str) -> None:
        """Remove the deadline of a task that has ended."""
        if self._due.pop(task_id, None) is not None and len(self._heap) > 2 * len(self._due) + (
            _COMPACTION_SLACK
        ):
            self._heap = [(due_s, task_id) for task_id, due_s in self._due.items()]
            heapq.heapify(self._heap)

    def close(self) -> None:
        """Remove all deadlines."""
        self._heap.clear()
        self._due.clear()
        self._set_timer()

    def _set_timer(self) -> None:
        when_s = self._heap[0][0] if self._heap else None
        if self._timer is not None:
            if self._timer_s == when_s:
                return
            self._timer.cancel()
            self._timer = None
        self._timer_s = when_s
        if when_s is not None:
            # An empty context, because the current one has the trace of one task.
            self._timer = self._loop.call_at(
                when_s, self._expire_due, context=contextvars.Context()
            )

    def _expire_due(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        while self._heap and self._heap[0][0] <= now_s:
            due_s, task_id = heapq.heappop(self._heap)
            if self._due.get(task_id) == due_s:
                del self._due[task_id]
                self._expire(task_id)
        self._set_timer()
