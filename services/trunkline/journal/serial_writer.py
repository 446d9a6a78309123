"""Runs a store's writes one at a time: on the loop, or in a thread when they wait for a disk."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

Work = Callable[[], object]
OnDone = Callable[[BaseException | None], None]


@dataclass(slots=True)
class _PendingWrite:
    """A write in the thread, and what to do when it is through."""

    outcome: Future[object]
    landed: OnDone


class SerialWriter:
    """At most one write is in flight. On the loop none ever is: `run` returns behind it."""

    def __init__(self, *, is_threaded: bool) -> None:
        self._is_threaded = is_threaded
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._flight: _PendingWrite | None = None

    @property
    def is_busy(self) -> bool:
        """A write is in flight; another one must wait until it has landed."""
        return self._flight is not None

    def run(self, work: Work, on_done: OnDone, *, waits_for_disk: bool = False) -> None:
        """Run a write; `landed` gets its error, or None, on the loop.

        What waits for the disk runs in the thread in any case.
        """
        if not (self._is_threaded or waits_for_disk):
            on_done(_error_of(work))
            return
        loop = asyncio.get_running_loop()
        flight = self._flight = _PendingWrite(self._executor.submit(work), on_done)
        flight.outcome.add_done_callback(lambda _: loop.call_soon_threadsafe(self._land, flight))

    def close(self) -> None:
        """Block until what is in flight has landed, and end the thread: writes run here now."""
        self._is_threaded = False
        if self._flight is not None:
            self._land(self._flight)
        self._executor.shutdown()

    def _land(self, flight: _PendingWrite) -> None:
        if flight is not self._flight:
            return  # It was waited for, and has landed.
        error = flight.outcome.exception()
        self._flight = None
        flight.landed(error)


def _error_of(work: Work) -> BaseException | None:
    try:
        work()
    except Exception as error:  # noqa: BLE001  Whatever it is, whoever waits for the write gets it.
        return error
    return None
