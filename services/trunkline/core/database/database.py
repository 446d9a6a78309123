"""A SQLite file that this process has open for reading and writing."""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, ParamSpec, Self, TypeVar

from trunkline.core.database.connection import (
    BUSY_S,
    Synchronous,
    connect,
    create_file,
    transaction,
)
from trunkline.core.database.errors import translate_errors
from trunkline.core.database.lock import FileLock
from trunkline.core.database.schema import Schema

_P = ParamSpec("_P")
_T = TypeVar("_T")

# The pause before the next try to change the mode of a file.
_RETRY_S: Final = 0.01


class Database:
    """An open SQLite file with a schema, in WAL mode.

    Any thread may use it: `read` and `write` give one thread at a time the connection. On an event
    loop, call functions that use it through `run`.
    """

    def __init__(
        self,
        path: Path,
        schema: Schema,
        *,
        synchronous: Synchronous = "normal",
        lock_wait_s: float | None = None,
    ) -> None:
        """Open the file, or create it, and make or migrate its tables.

        With `lock_wait_s`, no other process may have the file open meanwhile; that is the time in
        seconds to wait for another process to close it.

        Raises:
            JournalUnavailableError: the file can't be used, it is a link, other users may change
                it, another program or a later version made it, or another process has it locked.
        """
        self.path = path
        self._guard = threading.RLock()
        # It starts its thread at the first use.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{path.stem}-db")
        with contextlib.ExitStack() as undo:
            create_file(path)
            if lock_wait_s is not None:
                lock = FileLock.acquire(path, wait_s=lock_wait_s)
                undo.callback(lock.close)
            with translate_errors(path):
                self.connection: sqlite3.Connection = undo.enter_context(
                    contextlib.closing(connect(path))
                )
                _use_wal(self.connection)
                self.connection.execute(f"PRAGMA synchronous = {synchronous.upper()}")
                self.connection.execute("PRAGMA foreign_keys = ON")
                schema.prepare(self.connection, path)
            self._opened = undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the end of what `run` began, and close the file. It blocks."""
        self._executor.shutdown()
        with self._guard:
            self._opened.close()

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Give a block the connection, to read.

        Raises:
            JournalUnavailableError: the file can't be read, or is damaged.
        """
        with self._guard, translate_errors(self.path):
            yield self.connection

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Give a block the connection in a transaction, which is undone if the block raises.

        Raises:
            JournalUnavailableError: the file can't be written, or is damaged.
        """
        with self._guard, translate_errors(self.path), transaction(self.connection):
            yield self.connection

    async def run(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function that reads or writes, from an event loop, in the file's own thread."""
        return await asyncio.wrap_future(self.submit(function, *args, **kwargs))

    def submit(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Begin a call in the file's own thread, which makes one at a time in their order."""
        return self._executor.submit(function, *args, **kwargs)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Keep a write-ahead log. Of processes that make this change at once, SQLite lets none wait."""
    give_up_s = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_s:
                raise
            time.sleep(_RETRY_S)
        else:
            return
