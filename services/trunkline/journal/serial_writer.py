"""Runs those writes of a store that wait for the disk, one at a time in a thread."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

Write: TypeAlias = Callable[[], object]
OnDone: TypeAlias = Callable[[BaseException | None], None]
"""Gets the error of a write, or None."""


@dataclass(slots=True)
class _RunningWrite:
    """The write that the thread runs, and its callback."""

    future: Future[object]
    on_done: OnDone


class SerialWriter:
    """Runs one write at a time in a thread.

    Write nothing, neither by `run` nor on the event loop, while `is_busy` is true.
    """

    def __init__(self, *, is_threaded: bool) -> None:
        self.is_threaded: bool = is_threaded
        """True if all writes run in the thread, because a commit waits for the disk. After `close`
        it is False: the last writes block the event loop."""
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._running: _RunningWrite | None = None

    @property
    def is_busy(self) -> bool:
        """The thread runs a write."""
        return self._running is not None

    def run(self, write: Write, on_done: OnDone) -> None:
        """Run a write in the thread. `on_done` is called on the event loop after it.

        Do not call it after `close`.
        """
        loop = asyncio.get_running_loop()
        running = self._running = _RunningWrite(self._executor.submit(write), on_done)
        running.future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._finish, running))

    def close(self) -> None:
        """Block until the current write has ended, and end the thread."""
        self.is_threaded = False
        if self._running is not None:
            self._finish(self._running)
        self._executor.shutdown()

    def _finish(self, running: _RunningWrite) -> None:
        if running is not self._running:
            return  # `close` has called `on_done` already.
        error = running.future.exception()
        self._running = None
        running.on_done(error)
