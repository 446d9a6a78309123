"""Who waits for news of tasks. Nobody is sent anything: they are woken, and read."""

import asyncio
from collections.abc import Callable


class Subscribers:
    """The readers of a journal's tasks that have read all there is, until there is more."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._listeners: dict[str, set[Callable[[], None]]] = {}

    @property
    def is_empty(self) -> bool:
        """Nobody waits or listens."""
        return not self._waiters and not self._listeners

    async def wait(self, task_id: str) -> None:
        """Return at the next news of the task; raise what everyone is dismissed with."""
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
        """Call `listener` at all news of the task, and when everyone is dismissed."""
        self._listeners.setdefault(task_id, set()).add(listener)

    def unsubscribe(self, task_id: str, listener: Callable[[], None]) -> None:
        """Call it no more. Repeating this is harmless."""
        listeners = self._listeners.get(task_id, set())
        listeners.discard(listener)
        if not listeners:
            self._listeners.pop(task_id, None)

    def notify(self, task_id: str) -> None:
        """Wake whoever waits for news of the task."""
        for wakeup in self._waiters.pop(task_id, ()):
            if not wakeup.done():
                wakeup.set_result(None)
        for listener in tuple(self._listeners.get(task_id, ())):
            listener()

    def close(self, error: Callable[[], Exception]) -> None:
        """Tell everyone that there will be no more news; each gets an error of its own."""
        for waiters in self._waiters.values():
            for wakeup in waiters:
                if not wakeup.done():
                    wakeup.set_exception(error())
        for listeners in tuple(self._listeners.values()):
            for listener in tuple(listeners):
                listener()
