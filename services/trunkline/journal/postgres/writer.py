"""Commits to PostgreSQL whose outcome is always known."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import asyncpg

from trunkline.core.backoff import Backoff
from trunkline.core.postgres import ERRORS, UNREPLICATED, Connection, PostgresDatabase
from trunkline.errors import FencedError, JournalUnavailableError
from trunkline.journal.postgres.fence import hold_fence

logger = logging.getLogger(__name__)

Fence: TypeAlias = tuple[str, int, int, int]
"""The journal's id, its epoch, the number of its last write, and the number of this write."""
_Work: TypeAlias = Callable[[Connection, Fence], Awaitable[bool]]

FENCE: Final = (
    "UPDATE trunkline_journals SET writes = $4 "
    "WHERE journal_id = $1 AND epoch = $2 AND writes = $3 RETURNING true AS held"
)
"""Begins each write, with the values of a `Fence`. It returns a row if the write may continue."""
# It writes the row, so its end waits for a synchronous standby, and with it for earlier writes.
_READ_WRITES: Final = (
    "UPDATE trunkline_journals SET writes = writes WHERE journal_id = $1 AND epoch = $2 "
    "RETURNING writes"
)


class PostgresWriter:
    """The connection that writes to one journal, one transaction at a time.

    The writes of an owner have numbers, and the journal's row has the number of the last one. Each
    write begins with a compare-and-set of epoch and number in this row, which is three things:

    - The fence: after a takeover, the epoch is another one, and nothing is written.
    - The answer to whether a write was stored, if its connection was lost. The writer sends the
      same write again. It waits for the lock of an attempt that still runs in the server, and is
      stored if no attempt was. So nothing is stored twice, and an error means that nothing is
      stored. Meanwhile the caller waits, also while the database is away.
    - The proof that the database has all earlier writes. A database that has failed over to an
      asynchronous standby may lack some that were acknowledged. The journal then counts as lost,
      so that the host reads it anew.
    """

    def __init__(
        self, database: PostgresDatabase, journal_id: str, epoch: int, writes: int
    ) -> None:
        """`writes` is the number in the journal's row."""
        self._database = database
        self._journal_id = journal_id
        self._epoch = epoch
        self._stored = writes
        # A write that failed leaves its number unused: an attempt may still reach the server.
        self._latest = writes
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._lock = asyncio.Lock()
        self._is_closed = False
        self._is_unreplicated = False

    async def write(self, work: _Work) -> None:
        """Run statements in one transaction, which begins with FENCE.

        `work` returns False if FENCE returned no row. It may run again.

        Raises:
            FencedError: another process has taken over, the database has lost earlier writes, or
                the writer was closed while the outcome was unknown.
            JournalUnavailableError: nothing was stored.
        """
        async with self._lock:
            self._latest += 1
            backoff = Backoff()
            is_in_doubt = False
            while not await self._try(work, is_in_doubt=is_in_doubt):
                is_in_doubt = True
                await backoff.pause()
            self._stored = self._latest

    async def hold_fence(self, connection: Connection) -> None:
        """Lock the epoch until the end of a transaction beside the writes.

        Raises:
            FencedError: another process has taken over, or the database has lost earlier writes.
        """
        stored = self._stored
        writes = await hold_fence(connection, self._journal_id, self._epoch)
        if writes < stored:
            raise self._fenced(writes)

    async def close(self) -> None:
        """Close the connection after the write in flight."""
        self._is_closed = True
        async with self._lock:
            self.disconnect()

    def disconnect(self) -> None:
        """Close the connection at once."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _try(self, work: _Work, *, is_in_doubt: bool) -> bool:
        """Return whether the work is stored; False means that this is unknown."""
        if self._is_closed:
            if is_in_doubt:
                raise FencedError(self._journal_id)
            raise JournalUnavailableError(self._database.name, "it is closed; open it again")
        fence = (self._journal_id, self._epoch, self._stored, self._latest)
        connection: Connection | None = None
        try:
            connection = await self._connect()
            self._is_unreplicated = False
            is_stored = await work(connection, fence) or await self._is_stored(connection)
        except (JournalUnavailableError, *ERRORS) as error:
            self.disconnect()
            if connection is None and not is_in_doubt:
                raise
            if self._database.adapt(error):
                return False
            if _is_refused(error, is_in_doubt=is_in_doubt):
                problem = str(error) or type(error).__name__
                raise JournalUnavailableError(self._database.name, problem) from error
            if not is_in_doubt:
                extra = {"journal": self._journal_id, "problem": repr(error)}
                logger.warning("journal.commit_in_doubt", extra=extra)
            return False
        except BaseException:
            self.disconnect()
            raise
        return is_stored and not self._is_unreplicated

    async def _connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.connect()
            self._connection.add_log_listener(self._note_message)
        return self._connection

    async def _is_stored(self, connection: Connection) -> bool:
        """Return whether an earlier attempt of the write was stored."""
        writes = await connection.fetchval(_READ_WRITES, self._journal_id, self._epoch)
        if writes not in (self._stored, self._latest):
            raise self._fenced(writes)
        return bool(writes == self._latest)

    def _fenced(self, writes: int | None) -> FencedError:
        if writes is not None:
            logger.error("journal.commits_lost", extra={"journal": self._journal_id})
        return FencedError(self._journal_id)

    def _note_message(self, _connection: object, message: asyncpg.PostgresLogMessage) -> None:
        if message.sqlstate == UNREPLICATED:
            self._is_unreplicated = True


def _is_refused(error: Exception, *, is_in_doubt: bool) -> bool:
    """Return whether the server refused the statement, so that nothing is stored.

    The classes 08 and 57P mean that the connection or the server is gone. Transactions of the class
    40 are tried again. If an earlier attempt is in doubt, an error says nothing about it, so only
    errors that every attempt gets count.
    """
    sqlstate = error.sqlstate if isinstance(error, asyncpg.PostgresError) else None
    if not sqlstate:
        return False
    if is_in_doubt:
        return sqlstate.startswith(("22", "23", "42", "54"))
    return not sqlstate.startswith(("08", "57P", "40"))
