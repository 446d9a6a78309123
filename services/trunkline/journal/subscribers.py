"""Wakes the readers of tasks when there are events. The readers then read the journal."""

import asyncio
import logging
from collections.abc import Callable, Iterable

logger = logging.getLogger(__name__)


class Subscribers:
    """The readers of a journal's tasks that wait for further events."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._listeners: dict[str, set[Callable[[], None]]] = {}

    @property
    def task_ids(self) -> frozenset[str]:
        """The tasks with readers that wait, or with listeners."""
        return frozenset(self._waiters) | frozenset(self._listeners)

    @property
    def is_empty(self) -> bool:
        """There are no waiters and no listeners."""
        return not self._waiters and not self._listeners

    async def wait(self, task_id: str) -> None:
        """Wait for the next events of the task.

        Raises:
            Exception: the error that `close` got.
        """
        wakeup: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(task_id, set())
        waiters.add(wakeup)
        try:
            await wakeup
        finally:
            waiters.discard(wakeup)
            if not waiters and self._waiters.get(task_id) is waiters:
                del self._waiters[task_id]

    def subscribe(self, task_id: str, listener: Callable[[], None]) -> None:
        """Call `listener` after each publication of the task's events, and on `close`.

        An error of a listener is logged, and concerns no other reader.
        """
        self._listeners.setdefault(task_id, set()).add(listener)

    def unsubscribe(self, task_id: str, listener: Callable[[], None]) -> None:
        """Remove a listener. Removing it twice has no effect."""
        listeners = self._listeners.get(task_id, set())
        listeners.discard(listener)
        if not listeners:
            self._listeners.pop(task_id, None)

    def notify(self, task_id: str) -> None:
        """Wake the task's waiters and call its listeners."""
        for wakeup in self._waiters.pop(task_id, ()):
            if not wakeup.done():
                wakeup.set_result(None)
        _call(self._listeners.get(task_id, ()))

    def close(self, error: Callable[[], Exception]) -> None:
        """Fail all waiters, each with a new error, and call all listeners a last time."""
        for waiters in self._waiters.values():
            for wakeup in waiters:
                if not wakeup.done():
                    wakeup.set_exception(error())
        for listeners in tuple(self._listeners.values()):
            _call(listeners)


def _call(listeners: Iterable[Callable[[], None]]) -> None:
    for listener in tuple(listeners):
        try:
            listener()
        except Exception:
            logger.exception("journal.listener_failed")
