"""A store that signals each settling step."""

import asyncio
from pathlib import Path
from typing import Literal

from trunkline.journal.journal import Journal
from trunkline.journal.sqlite import SqliteStore


class WatchedStore(SqliteStore):
    """SQLite's store, with an event for each settling step."""

    def watch(self) -> None:
        """Signal the steps on this event loop."""
        self._loop = asyncio.get_running_loop()
        self._stepped = asyncio.Event()

    def settle(self, *, budget_bytes: int) -> bool:
        try:
            return super().settle(budget_bytes=budget_bytes)
        finally:
            self._loop.call_soon_threadsafe(self._stepped.set)

    async def step(self) -> None:
        """Wait for the next step, which may fail, if there is anything to do."""
        if not self.has_backlog():
            return
        self._stepped.clear()
        async with asyncio.timeout(60):
            await self._stepped.wait()

    async def settled(self) -> None:
        """Wait until nothing is left to settle."""
        while self.has_backlog():
            await self.step()


def watched_journal(
    path: Path, synchronous: Literal["normal", "full"] = "normal"
) -> tuple[Journal, WatchedStore]:
    """Open a journal on such a store."""
    store = WatchedStore.open(path, synchronous=synchronous)
    store.watch()
    return Journal(store, is_threaded=synchronous == "full"), store
