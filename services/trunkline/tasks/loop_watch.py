"""Finds the code of an agent that blocks the event loop, and names it in the log.

While a coroutine blocks, no other task of the process continues, and leases may run out. A thread
asks the event loop for a sign of life while turns run, and looks at the loop's thread if none
comes.
"""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NamedTuple

from trunkline.tasks.agent_code import find_agent_code

logger = logging.getLogger(__name__)

# The pause between two signs of life, and the time for one. Two samples are taken in that time.
_PAUSE_S: Final = 0.25
_SAMPLE_S: Final = 0.25
# A task is named again after this time.
_REPEAT_S: Final = 60.0
_REMEDY: Final = (
    "no other task of this process continues meanwhile; await an asynchronous call, or write a "
    "plain def function, which runs in a thread"
)
# The event loop's own frames, below which nothing belongs to a task.
_LOOP_MODULES: Final = ("asyncio.events", "asyncio.base_events", "asyncio.runners")


class _Turn(NamedTuple):
    agent: str
    task_id: str
    package: str
    """The top-level package of the agent's code, which may be an installed one."""


class LoopWatch:
    """Watches the event loop of a host while turns of its agents run.

    Code that blocks the loop for more than about half a second is logged as
    `agent.blocks_the_loop`, with its agent, task and place, once per task and minute, and as
    `agent.blocked_the_loop` when it ends.
    """

    def __init__(self) -> None:
        self._turns: dict[asyncio.Task[Any], _Turn] = {}
        self._has_turns = threading.Event()
        self._closed = threading.Event()
        self._named_s: dict[str, float] = {}

    def open(self) -> None:
        """Start the thread that watches the running event loop."""
        loop, thread_id = asyncio.get_running_loop(), threading.get_ident()
        watch = threading.Thread(
            target=self._watch, args=(loop, thread_id), name="loop-watch", daemon=True
        )
        watch.start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._has_turns.set()

    @contextmanager
    def turn(self, agent: object, name: str, task_id: str) -> Iterator[None]:
        """Note that the current asyncio task runs a turn of an agent, for the length of a block."""
        current = asyncio.current_task()
        assert current is not None  # noqa: S101  a turn runs in a task
        module = getattr(getattr(agent, "function", agent), "__module__", "")
        self._turns[current] = _Turn(name, task_id, module.partition(".")[0])
        self._has_turns.set()
        try:
            yield
        finally:
            del self._turns[current]
            if not self._turns and not self._closed.is_set():
                self._has_turns.clear()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        while self._has_turns.wait() and not self._closed.is_set():
            answered = threading.Event()
            asked_s = time.monotonic()
            try:
                loop.call_soon_threadsafe(answered.set)
            except RuntimeError:
                # The loop is closed.
                return
            if not answered.wait(_SAMPLE_S):
                # A loop that is only slow has another task by the second sample.
                current = asyncio.current_task(loop)
                if not answered.wait(_SAMPLE_S) and current is asyncio.current_task(loop):
                    fields = self._describe(current, sys._current_frames().get(thread_id))  # noqa: SLF001
                    if fields:
                        logger.warning(
                            "agent.blocks_the_loop", extra={**fields, "problem": _REMEDY}
                        )
                    answered.wait()
                    if fields:
                        took_s = round(time.monotonic() - asked_s, 1)
                        logger.warning("agent.blocked_the_loop", extra={**fields, "took_s": took_s})
            self._closed.wait(_PAUSE_S)

    def _describe(
        self, current: asyncio.Task[Any] | None, frame: FrameType | None
    ) -> dict[str, str]:
        """Return the agent, the task and the place of the code that runs, if an agent runs.

        Code in an asyncio task that an agent started is of one of the turns that run.
        """
        running = list(self._turns.items())
        turns = [turn for task, turn in running if task is current] or [turn for _, turn in running]
        place = find_agent_code(_walk_turn(frame), {turn.package for turn in turns})
        task_ids = ", ".join(sorted(turn.task_id for turn in turns))
        now_s = time.monotonic()
        last_s = self._named_s.get(task_ids)
        if current is None or not turns or not place:
            return {}
        if last_s is not None and now_s - last_s < _REPEAT_S:
            return {}
        self._named_s = {
            task: named_s for task, named_s in self._named_s.items() if now_s - named_s < _REPEAT_S
        } | {task_ids: now_s}
        agents = ", ".join(sorted({turn.agent for turn in turns}))
        return {"agent": agents, "task_id": task_ids, "place": place}


def _walk_turn(frame: FrameType | None) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of the code that runs, the innermost first, up to the event loop."""
    while frame is not None and frame.f_globals.get("__name__") not in _LOOP_MODULES:
        yield frame, frame.f_lineno
        frame = frame.f_back
