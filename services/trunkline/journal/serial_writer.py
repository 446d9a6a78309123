"""Runs a store's writes one at a time, on the event loop or in a thread."""

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
    """Runs one write at a time, in a thread if commits wait for the disk, else on the event loop.

    Call `run` only if `is_busy` is false.
    """

    def __init__(self, *, is_threaded: bool) -> None:
        self._is_threaded = is_threaded
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._running: _RunningWrite | None = None

    @property
    def is_busy(self) -> bool:
        """The thread runs a write."""
        return self._running is not None

    def run(self, write: Write, on_done: OnDone, *, waits_for_disk: bool = False) -> None:
        """Run a write. `on_done` is called on the event loop after it.

        Without the thread, this returns after both. A write that waits for the disk always runs in
        the thread; do not run one after `close`.
        """
        if not (self._is_threaded or waits_for_disk):
            on_done(_run_catching(write))
            return
        loop = asyncio.get_running_loop()
        running = self._running = _RunningWrite(self._executor.submit(write), on_done)
        running.future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._finish, running))

    def close(self) -> None:
        """Block until the current write has ended, and end the thread. Later writes block, too."""
        self._is_threaded = False
        if self._running is not None:
            self._finish(self._running)
        self._executor.shutdown()

    def _finish(self, running: _RunningWrite) -> None:
        if running is not self._running:
            return  # `close` has called `on_done` already.
        error = running.future.exception()
        self._running = None
        running.on_done(error)


def _run_catching(write: Write) -> BaseException | None:
    try:
        write()
    except Exception as error:  # noqa: BLE001  The caller gets any error.
        return error
    return None
