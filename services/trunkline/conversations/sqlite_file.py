"""A SQLite file that is used on the event loop.

One statement takes about 20 µs there, and longer in a thread.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from trunkline.core.backoff import Backoff
from trunkline.core.database import (
    connect,
    connect_in_memory,
    create_file,
    transaction,
    translate_errors,
)
from trunkline.core.private_files import lock_file
from trunkline.errors import JournalUnavailableError

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

# The time to wait for a lock of another process.
_LOCK_S: Final = 5.0
_DAMAGED: Final = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})
_LOCKED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class SqliteFile:
    """A file with tables, which is opened when it is used first.

    Writes are not synced: they survive a killed process, and a power failure may damage the file. A
    file that is damaged, is a link, or may be changed by other users is created anew.

    The event loop is free while the file waits for a lock of another process, for 5 s at most.
    """

    def __init__(
        self,
        path: Path | None,
        prepare: Callable[[sqlite3.Connection], None],
    ) -> None:
        """Without a path, the content is in memory. `prepare` creates the tables."""
        self.path: Path | None = path
        self._prepare = prepare
        self._connection: sqlite3.Connection | None = None
        self._is_closed = False

    @property
    def exists(self) -> bool:
        """True if it was opened, or is there from earlier."""
        return self._connection is not None or (self.path is not None and self.path.exists())

    @property
    def name(self) -> str:
        """The name of the file, for errors."""
        return str(self.path or "memory")

    async def read(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Run a function that reads.

        Raises:
            JournalUnavailableError: the file can't be read, or is closed.
        """
        return await self._run(lambda: work(self._open()))

    async def write(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Run a function in one transaction.

        Raises:
            JournalUnavailableError: the file can't be written, or is closed.
        """

        def write() -> _Result:
            connection = self._open()
            with transaction(connection):
                return work(connection)

        return await self._run(write)

    def close(self) -> None:
        """Close the file for good."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _run(self, step: Callable[[], _Result]) -> _Result:
        """Run a step, and run it again while another process has a lock on the file."""
        backoff: Backoff | None = None
        give_up_at_s = time.monotonic() + _LOCK_S
        with translate_errors(Path(self.name)):
            while True:
                try:
                    return step()
                except sqlite3.OperationalError as error:
                    if _get_code(error) not in _LOCKED or time.monotonic() > give_up_at_s:
                        raise
                backoff = backoff or Backoff(first_s=0.001, limit_s=0.05)
                await backoff.pause()

    def _open(self) -> sqlite3.Connection:
        if self._is_closed:
            raise JournalUnavailableError(self.name, "it is closed")
        if self._connection is None:
            self._connection = self._open_memory() if self.path is None else self._open_file()
        return self._connection

    def _open_memory(self) -> sqlite3.Connection:
        connection = connect_in_memory()
        self._prepare(connection)
        return connection

    def _open_file(self) -> sqlite3.Connection:
        assert self.path is not None  # noqa: S101  the caller has a path
        try:
            return self._open_path(self.path)
        except (sqlite3.Error, JournalUnavailableError) as error:
            if not _is_unusable(error):
                raise
            problem = str(error)
        try:
            connection = self._create_anew(self.path)
        except OSError as error:
            raise JournalUnavailableError(self.name, error.strerror or str(error)) from error
        logger.warning("checkpoints.made_anew", extra={"file": self.name, "problem": problem})
        return connection

    def _create_anew(self, path: Path) -> sqlite3.Connection:
        """Replace a file that is not usable. Of several processes, one replaces it."""
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            lock_file(folder, timeout_s=_LOCK_S)
            try:
                return self._open_path(path)
            except (sqlite3.Error, JournalUnavailableError) as error:
                if not _is_unusable(error):
                    raise
            for ending in ("", "-wal", "-shm", "-journal"):
                Path(f"{path}{ending}").unlink(missing_ok=True)
            return self._open_path(path)
        finally:
            os.close(folder)

    def _open_path(self, path: Path) -> sqlite3.Connection:
        create_file(path)
        # Waiting for a lock must not block the event loop.
        connection = connect(path, busy_s=0)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = OFF")
            with transaction(connection):
                self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _is_unusable(error: sqlite3.Error | JournalUnavailableError) -> bool:
    """Return whether a file has to be created anew, which an error of the system does not say."""
    if isinstance(error, JournalUnavailableError):
        return not isinstance(error.__cause__, OSError)
    return _get_code(error) in _DAMAGED


def _get_code(error: sqlite3.Error) -> int:
    # The low byte is the primary result code.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
