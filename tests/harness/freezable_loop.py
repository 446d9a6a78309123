"""An event loop that a test freezes, as SIGSTOP freezes a process."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")


class FreezableLoop:
    """An event loop in a thread of its own. Nothing of it runs while it is frozen."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._may_run = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.thaw()
        asyncio.run_coroutine_threadsafe(self._end_tasks(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end_tasks(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)
        await self._loop.shutdown_asyncgens()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop; return its result."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def freeze(self) -> None:
        """Stop everything in the loop. Return when it has stopped."""
        self._may_run.clear()
        has_stopped = threading.Event()

        def stop() -> None:
            has_stopped.set()
            self._may_run.wait()

        self._loop.call_soon_threadsafe(stop)
        await asyncio.to_thread(has_stopped.wait)

    def thaw(self) -> None:
        """Let the loop go on."""
        self._may_run.set()
