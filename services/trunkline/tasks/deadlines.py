"""Deadlines of tasks: one timer for all tasks of a host."""

import asyncio
import contextvars
import heapq
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

DEADLINE_PASSED: Final = "the deadline passed before the work was done; allow more time"

# Entries of tasks that have ended stay in the heap until they are most of it.
_SLACK: Final = 64


class DeadlineTimer:
    """Calls `expire` with a task's id when its deadline has passed, also while it waits.

    Deadlines are moments of the wall clock; they are looked at once, when they are added, and from
    then on measured by a clock that never jumps.
    """

    def __init__(self, expire: Callable[[str], None]) -> None:
        self._expire = expire
        self._loop = asyncio.get_running_loop()
        self._heap: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, task_id: str, deadline: datetime) -> None:
        """Have the task expire at the deadline; soon, if that has passed."""
        # In this order: what comes between the two looks at a clock makes it later, never earlier.
        left_s = (deadline - datetime.now(UTC)).total_seconds()
        due_s = self._loop.time() + left_s
        self._due[task_id] = due_s
        heapq.heappush(self._heap, (due_s, task_id))
        self._set_timer()

    def discard(self, task_id: str) -> None:
        """Forget the task: it has ended."""
        if self._due.pop(task_id, None) is not None and len(self._heap) > 2 * len(self._due) + (
            _SLACK
        ):
            self._heap = [(due_s, name) for name, due_s in self._due.items()]
            heapq.heapify(self._heap)

    def close(self) -> None:
        """Let nothing expire any more."""
        self._heap.clear()
        self._due.clear()
        self._set_timer()

    def _set_timer(self) -> None:
        when_s = self._heap[0][0] if self._heap else None
        if self._timer is not None:
            if self._timer.when() == when_s:
                return
            self._timer.cancel()
            self._timer = None
        if when_s is not None:
            # An empty context: otherwise the timer keeps the trace of the first task.
            self._timer = self._loop.call_at(when_s, self._pop, context=contextvars.Context())

    def _pop(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        while self._heap and self._heap[0][0] <= now_s:
            due_s, task_id = heapq.heappop(self._heap)
            if self._due.get(task_id) == due_s:
                del self._due[task_id]
                self._expire(task_id)
        self._set_timer()
