"""Writes to a SQLite file in its own thread. Waiting writes are one transaction."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeAlias, TypeVar

from trunkline.core.database import Database, savepoint
from trunkline.errors import JournalUnavailableError

_WRITE_LIMIT: Final = 1_000
_T = TypeVar("_T")
_Result: TypeAlias = tuple["asyncio.Future[Any]", object, BaseException | None]


@dataclass(slots=True)
class Counters:
    """The counts of a store. A failed write does not change them."""

    position: int = 0
    """The position of the newest message."""
    change: int = 0
    """The number of the last change of a message or its deliveries."""
    open_count: int = 0
    """The number of deliveries that have not ended."""

    def restore(self, earlier: "Counters") -> None:
        """Set all counters to the values of earlier counters."""
        self.position, self.change = earlier.position, earlier.change
        self.open_count = earlier.open_count


@dataclass(frozen=True, slots=True)
class _Write(Generic[_T]):
    """A write that waits for the next transaction."""

    work: Callable[[], _T]
    future: "asyncio.Future[_T]"
    on_done: Callable[[], None] | None


class GroupWriter:
    """The writes to a file, which the file's own thread makes."""

    def __init__(self, database: Database, *, on_commit: Callable[[], None]) -> None:
        """Use an open file. `on_commit` is called in the loop after each transaction."""
        self._database = database
        self._connection = database.connection
        self._on_commit = on_commit
        self._writes: list[_Write[Any]] = []
        self._is_writing = False
        self.counters = Counters()

    async def write(self, work: Callable[[], _T], on_done: Callable[[], None] | None = None) -> _T:
        """Run a function that writes, in the next transaction; return once that is committed.

        If a write of the same transaction fails, the transaction is rolled back and `work` runs
        again. `on_done` is called in the connection's thread after the transaction, also if `work`
        has raised an error.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        self._writes.append(_Write(work, future, on_done))
        if not self._is_writing:
            self._is_writing = True
            self._database.submit(self._commit_all, loop)
        return await future

    def _commit_all(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit the waiting writes until none waits. Runs in the connection's thread."""
        while True:
            writes = self._writes[:_WRITE_LIMIT]
            if not writes:
                # The loop's thread appends, so only it knows that nothing was added meanwhile.
                loop.call_soon_threadsafe(self._stop_writing, loop)
                return
            del self._writes[: len(writes)]
            results = self._commit(writes)
            loop.call_soon_threadsafe(self._resolve, results)

    def _stop_writing(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_writing = bool(self._writes)
        if self._writes:
            self._database.submit(self._commit_all, loop)

    def _commit(self, writes: Sequence[_Write[Any]]) -> list[_Result]:
        """Run writes in one transaction. A failed write changes nothing and fails no other."""
        before = replace(self.counters)
        try:
            try:
                results = self._run_all(writes, self._run_plainly)
            except (sqlite3.Error, JournalUnavailableError):
                raise
            except Exception:  # noqa: BLE001  a write failed, which is rare
                self.counters.restore(before)
                results = self._run_all(writes, self._run_apart)
        except Exception as error:  # noqa: BLE001  all callers get it
            self.counters.restore(before)
            return [(write.future, None, error) for write in writes]
        for write in writes:
            if write.on_done is not None:
                write.on_done()
        return results

    def _run_all(
        self, writes: Sequence[_Write[Any]], run: Callable[[_Write[Any]], _Result]
    ) -> list[_Result]:
        with self._database.write() as connection:
            results = [run(write) for write in writes]
            connection.executemany(
                "INSERT OR REPLACE INTO counters VALUES (?, ?)",
                [("position", self.counters.position), ("change", self.counters.change)],
            )
        return results

    def _run_plainly(self, write: _Write[Any]) -> _Result:
        return write.future, write.work(), None

    def _run_apart(self, write: _Write[Any]) -> _Result:
        """Run a write whose error undoes only this write."""
        earlier = replace(self.counters)
        try:
            with savepoint(self._connection):
                return write.future, write.work(), None
        except (sqlite3.Error, JournalUnavailableError):
            raise
        except Exception as error:  # noqa: BLE001  its caller gets it
            self.counters.restore(earlier)
            return write.future, None, error

    def _resolve(self, results: Sequence[_Result]) -> None:
        for future, result, error in results:
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        self._on_commit()
