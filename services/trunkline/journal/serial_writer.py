"""Runs a store's writes one at a time: on the loop, or in a thread if they wait for the disk."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

Work = Callable[[], object]
OnDone = Callable[[BaseException | None], None]


@dataclass(slots=True)
class _RunningWrite:
    """A write in the thread, and the callback for its end."""

    outcome: Future[object]
    on_done: OnDone


class SerialWriter:
    """Runs writes so that at most one is in flight. On the loop, `run` returns after the write."""

    def __init__(self, *, is_threaded: bool) -> None:
        self._is_threaded = is_threaded
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._running: _RunningWrite | None = None

    @property
    def is_busy(self) -> bool:
        """A write is in flight. The next one must wait for its end."""
        return self._running is not None

    def run(self, work: Work, on_done: OnDone, *, waits_for_disk: bool = False) -> None:
        """Run a write. On the loop, `on_done` gets its error or None.

        A write that waits for the disk always runs in the thread.
        """
        if not (self._is_threaded or waits_for_disk):
            on_done(_run_catching(work))
            return
        loop = asyncio.get_running_loop()
        running = self._running = _RunningWrite(self._executor.submit(work), on_done)
        running.outcome.add_done_callback(
            lambda _: loop.call_soon_threadsafe(self._finish, running)
        )

    def close(self) -> None:
        """Block until the write in flight has ended, and end the thread. Later writes run here."""
        self._is_threaded = False
        if self._running is not None:
            self._finish(self._running)
        self._executor.shutdown()

    def _finish(self, running: _RunningWrite) -> None:
        if running is not self._running:
            return  # `close` has finished it.
        error = running.outcome.exception()
        self._running = None
        running.on_done(error)


def _run_catching(work: Work) -> BaseException | None:
    try:
        work()
    except Exception as error:  # noqa: BLE001  The caller gets any error.
        return error
    return None
